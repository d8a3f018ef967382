"""The links of a fabric as the model sees them: what meets at a port shares its rate, and nothing is lost."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from railyard.scale import ETHERNET_HEADER_BYTES, TCP_IP_HEADER_BYTES
from topos.plan import FabricPlan
from workloads.agent.transport.paths import NETWORK_OF_DOMAIN
from workloads.program import Domain

Done = Callable[[float, float], None]
"""Called with the times of the first and the last byte."""
End = tuple[str, str, int, int]
"""(out or in, network, rank, lane): one direction of a port of a host; (link, switch, port, 0): a link between switches
as the switch sends on it."""
Way = tuple[End, ...]
"""Where a message leaves, the links between switches that it takes, and where it comes in."""
Routing = Callable[[int, int], Sequence[tuple[str, int]]]
"""(switch, port it leaves by) all the way from one rank to another; raises ``ControlError`` where there is no way."""


def wire_bytes(payload: int, mtu: int) -> int:
    """What a link's token bucket counts for a TCP payload: full packets, each with its headers, and no acks."""
    if payload <= 0:
        return 0
    packets = ceil(payload / (mtu - TCP_IP_HEADER_BYTES))
    return payload + packets * (TCP_IP_HEADER_BYTES + ETHERNET_HEADER_BYTES)


@dataclass(eq=False)
class _Message:
    """A message on its way: ``left`` bytes of the wire at ``rate`` since ``since``."""

    way: Way
    left: float
    done: Done
    began: float = 0.0
    since: float = 0.0
    rate: float = 0.0
    turn: int = 0
    """Counts the changes of its rate: an end that was foreseen before the last one is none."""


class Wires:
    """Every port of a plan, full duplex. Times are wall-clock seconds, sizes emulated bytes.

    Messages from one port to another follow each other, as on a connection. Those of different connections share the
    ports and the links between switches they meet at, max-min fairly, as TCP's do. ``at(time, what)`` is the clock: it
    calls ``what`` at ``time``. ``routing`` says which links a message between two ranks takes on the rail network,
    where the plan has such links.
    """

    def __init__(
        self, plan: FabricPlan, at: Callable[[float, Callable[[], None]], None], routing: Routing | None = None
    ) -> None:
        self._mtu = plan.mtu
        self._at = at
        self._routing = routing
        self._between: dict[tuple[int, int], Way] = {}
        self._rate: dict[End, float] = {}
        for switch in plan.switches:
            for port in switch.ports:
                for side in ("out", "in"):
                    self._rate[side, switch.network, port.rank, port.lane] = port.rate_mbps * 1e6 / 8
        for link in plan.links:
            for switch_name, number in ((link.a, link.a_port), (link.b, link.b_port)):
                self._rate["link", switch_name, number, 0] = link.rate_mbps * 1e6 / 8
        self._queued: dict[Way, deque[_Message]] = defaultdict(deque)
        self._busy: dict[End, set[_Message]] = defaultdict(set)
        self._changed: set[End] = set()

    def send(
        self, now: float, domain: Domain, src: tuple[int, int], dst: tuple[int, int], payload: int, done: Done
    ) -> None:
        """Carry ``payload`` from port ``src`` to port ``dst`` (rank, lane); ``done(began, ended)`` when it is there.

        On a network that the plan does not have (a front-end for scalars, say) bytes take no time.
        """
        network = NETWORK_OF_DOMAIN[domain]
        ends: Way = (("out", network, *src), ("in", network, *dst))
        if not all(end in self._rate for end in ends):
            self._at(now, lambda: done(now, now))
            return
        links = self._links(src[0], dst[0]) if network == "rail" else ()
        way = (ends[0], *links, ends[1])
        queue = self._queued[way]
        queue.append(_Message(way, wire_bytes(payload, self._mtu), done))
        if len(queue) == 1:
            self._start(queue[0], now)

    def _links(self, src: int, dst: int) -> Way:
        """The links between switches that a message from ``src`` to ``dst`` takes."""
        if self._routing is None:
            return ()
        if (src, dst) not in self._between:
            hops: list[End] = [("link", switch, port, 0) for switch, port in self._routing(src, dst)]
            self._between[src, dst] = tuple(hop for hop in hops if hop in self._rate)  # the last is a host's port
        return self._between[src, dst]

    def _start(self, message: _Message, now: float) -> None:
        message.began = message.since = now
        for end in message.way:
            self._busy[end].add(message)
        self._change(message.way, now)

    def _change(self, way: Way, now: float) -> None:
        """Share anew, once for all that happens at this moment."""
        if not self._changed:
            self._at(now, lambda: self._share(now))
        self._changed.update(way)

    def _share(self, now: float) -> None:
        changed, self._changed = self._changed, set()
        messages = self._touched(changed)
        for message in messages:
            message.left = max(0.0, message.left - message.rate * (now - message.since))
            message.since = now
        self._fill(messages)
        for message in messages:
            message.turn += 1
            end = now + message.left / message.rate
            self._at(end, lambda m=message, turn=message.turn, end=end: self._ended(m, turn, end))  # type: ignore[misc]

    def _touched(self, changed: set[End]) -> list[_Message]:
        """All messages whose share may change: those at the ``changed`` ports, and at the ports of those."""
        found: dict[_Message, None] = {}
        seen, ends = set(changed), list(changed)
        while ends:
            for message in self._busy[ends.pop()]:
                found[message] = None
                ends += [end for end in message.way if end not in seen]
                seen.update(message.way)
        return list(found)

    def _fill(self, messages: Iterable[_Message]) -> None:
        """Max-min fair rates: the fullest port shares itself out, then the fullest of what is left, and so on."""
        open_at: dict[End, set[_Message]] = defaultdict(set)
        for message in messages:
            for end in message.way:
                open_at[end].add(message)
        left = {end: self._rate[end] for end in open_at}
        while open_at:
            fullest = min(open_at, key=lambda end: left[end] / len(open_at[end]))
            share = left[fullest] / len(open_at[fullest])
            for message in list(open_at[fullest]):
                message.rate = share
                for end in message.way:
                    open_at[end].discard(message)
                    left[end] = max(0.0, left[end] - share)
                    if not open_at[end]:
                        del open_at[end]

    def _ended(self, message: _Message, turn: int, now: float) -> None:
        if message.turn != turn:
            return
        for end in message.way:
            self._busy[end].remove(message)
        queue = self._queued[message.way]
        queue.popleft()
        message.done(message.began, now)
        if queue:
            self._start(queue[0], now)
        else:
            self._change(message.way, now)
