"""Changes of rules in the kernel at a given time, which Open vSwitch has made already. Pure.

A dark time ends when a flow-mod that removes its flows has been executed, and how long Open vSwitch takes for that is
uncertain by a part of a millisecond. A controller therefore sends the flow-mod early, after a request of this module:
the rules of the flows then end at the time that it names, and the reply to its barrier follows them. Times are counted
from when the kernel held the rules first, so they do not depend on how long replies take either. ``NotBefore`` is for
changes of other kinds: all changes of the switch wait for a time. ``DarkPorts`` keeps dark times by itself, for
controllers that send neither.

Both requests are experimenter messages of OpenFlow 1.4; the relay between switch and controller carries them out and
does not pass them on.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Collection, Mapping
from math import inf, isfinite
from typing import NamedTuple

_REQUEST = struct.Struct("!BBHIIIQQ")
_VERSION, _TYPE_EXPERIMENTER = 5, 4
_EXPERIMENTER, _LASTS, _NOT_BEFORE = 0x52594C41, 1, 2
_LONGEST_S = 1.0
"""A rule stays at most so much longer than its flow."""
_MOST_COOKIES = 1 << 12
"""Cookies whose first time in the kernel is remembered."""

FlowKey = tuple[int, bytes]
"""Priority and match of a flow."""


class Lasts(NamedTuple):
    """Request: the flows with ``cookie`` last ``seconds`` from when the kernel held them; ``xid`` of its barrier."""

    xid: int
    cookie: int
    seconds: float


class NotBefore(NamedTuple):
    """Request: the kernel follows no change of the switch before time ``at`` (seconds of the monotonic clock)."""

    xid: int
    at: float


def encode(request: Lasts | NotBefore) -> bytes:
    """The message to send before the flow-mods."""
    kind, cookie, seconds = (
        (_LASTS, request.cookie, request.seconds) if isinstance(request, Lasts) else (_NOT_BEFORE, 0, request.at)
    )
    head = _VERSION, _TYPE_EXPERIMENTER, _REQUEST.size, request.xid, _EXPERIMENTER, kind
    return _REQUEST.pack(*head, cookie, max(0, round(seconds * 1e9)))


def decode(message: bytes) -> Lasts | NotBefore | None:
    """The request in an OpenFlow message; None if it is something else."""
    if len(message) != _REQUEST.size or message[:2] != b"\x05\x04":
        return None
    *_, xid, experimenter, kind, cookie, nanoseconds = _REQUEST.unpack(message)
    if experimenter != _EXPERIMENTER or kind not in (_LASTS, _NOT_BEFORE):
        return None
    return Lasts(xid, cookie, nanoseconds / 1e9) if kind == _LASTS else NotBefore(xid, nanoseconds / 1e9)


class Lasting:
    """The flows of one switch that are to last. All times are seconds of one clock."""

    def __init__(self) -> None:
        self._began: OrderedDict[int, float] = OrderedDict()
        self._added: set[int] = set()
        self._asked: dict[int, float] = {}
        self._early: dict[int, float] = {}
        """Seconds that flows are to last which have not begun yet, by cookie."""
        self._leaving: dict[FlowKey, int] = {}

    def ask(self, cookie: int, seconds: float, now: float) -> None:
        """Let the flows with ``cookie`` last ``seconds`` from when they began, or will begin."""
        began = self._began.get(cookie)
        if began is not None:
            self._asked[cookie] = min(began + seconds, now + _LONGEST_S)
            return
        self._early[cookie] = min(seconds, _LONGEST_S)
        while len(self._early) > _MOST_COOKIES:
            del self._early[next(iter(self._early))]

    def added(self, cookie: int) -> None:
        """Take note of a new flow, which ``committed`` will have put into the kernel."""
        self._added.add(cookie)

    def committed(self, now: float) -> None:
        """Take note that the kernel holds the rules of all flows that were added."""
        for cookie in self._added:
            began = self._began.setdefault(cookie, now)
            if cookie in self._early:
                self._asked[cookie] = began + self._early.pop(cookie)
        self._added.clear()
        while len(self._began) > _MOST_COOKIES:
            self._asked.pop(self._began.popitem(last=False)[0], None)

    def keep(self, key: FlowKey, cookie: int) -> bool:
        """Whether the rule of a flow that was removed is to stay for now."""
        if cookie not in self._asked and not (cookie in self._early and cookie in self._added):
            return False
        self._leaving[key] = cookie
        return True

    def replace(self, key: FlowKey) -> bool:
        """Forget a flow in whose place another one comes; whether it was to stay."""
        return self._leaving.pop(key, None) is not None

    def next_end(self) -> float | None:
        return min((self._asked[cookie] for cookie in self._leaving.values() if cookie in self._asked), default=None)

    def end(self, now: float) -> list[FlowKey]:
        """The flows whose time is over at ``now``; they are forgotten."""
        over = [key for key, cookie in self._leaving.items() if self._asked.get(cookie, now + 1.0) <= now]
        for cookie in {self._leaving.pop(key) for key in over}:
            self._began.pop(cookie, None)
            self._asked.pop(cookie, None)
        return over

    def has(self, cookie: int) -> bool:
        return cookie in self._leaving.values()


ELSEWHERE = -1
"""The way of packets for which Open vSwitch does something else than to send them out of one port."""
Ways = frozenset[int]
"""The ports out of which the packets that one port receives may go, and ``ELSEWHERE``; empty for a port without."""


class DarkPorts:
    """The ports of an optical switch that are dark since their ways changed. All times are seconds of one clock.

    A port whose ways change is dark for ``seconds``, and so are the ports that it leads to now. A further change
    begins its dark time again. What leads to a dark port passes nothing either.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._ways: dict[int, Ways] = {}
        self._until: dict[int, float] = {}

    def keep(self, seconds: float, ways: Mapping[int, Ways]) -> set[int]:
        """Keep dark times of ``seconds`` from now on, where the ways are ``ways``; returns the ports that end theirs.

        That is all of them with 0 seconds, which keeps none.
        """
        if not self.seconds:
            self._ways = dict(ways)
        self.seconds = seconds
        return set() if seconds else self.end(inf)

    def see(self, ways: Mapping[int, Ways]) -> set[int]:
        """Take the ways that ports will have with the next ``committed``; returns the ports that may be dark by then.

        Nothing is seen as long as no dark times are kept.
        """
        if not self.seconds:
            return set()
        changed = {port for port, way in ways.items() if way != self._ways.get(port, Ways())}
        self._ways |= ways
        begun = changed.union(*(ways[port] for port in changed)) - {ELSEWHERE}
        self._until |= dict.fromkeys(begun, inf)
        return self.around(begun)

    def committed(self, now: float) -> None:
        """Take note that the kernel holds the changes: dark times begin."""
        for port, until in self._until.items():
            if not isfinite(until):
                self._until[port] = now + self.seconds

    def is_dark(self, port: int) -> bool:
        return port in self._until or not self._until.keys().isdisjoint(self._ways.get(port, ()))

    def around(self, ports: Collection[int]) -> set[int]:
        """``ports``, and those that lead to one of them."""
        return {*ports, *(port for port, way in self._ways.items() if not way.isdisjoint(ports))}

    def awaited(self) -> set[int]:
        """The dark ports that get light at the end, since a way begins or ends there."""
        led_to = Ways().union(*self._ways.values())
        return {port for port in self._until if port in led_to or self._ways.get(port)}

    def next_end(self) -> float | None:
        return min(self._until.values(), default=None)

    def end(self, now: float) -> set[int]:
        """The ports whose dark time is over at ``now``; they are forgotten."""
        over = {port for port, until in self._until.items() if until <= now}
        for port in over:
            del self._until[port]
        return over
