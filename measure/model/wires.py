"""The links of a fabric in the model: messages share the rate of ports and links, and none is lost."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import ceil

from railyard.errors import ConfigError
from railyard.scale import ETHERNET_HEADER_BYTES, TCP_IP_HEADER_BYTES, Scale
from topos.plan import FabricPlan
from workloads.program import Domain
from workloads.rank.paths import NETWORK_OF_DOMAIN

Done = Callable[[float, float], None]
"""Callback with the times of the first and the last byte of a message."""
End = tuple[str, str, int, int]
"""One direction of a link. Host port: (``out`` or ``in``, network, rank, lane). Link between switches, as sent on by
``switch``: (``link``, switch, port, 0)."""
Route = tuple[End, ...]
"""The route of a message: the sender's port, the links between switches, the receiver's port."""
Routing = Callable[[int, int], Sequence[tuple[str, int]]]
"""(sending rank, receiving rank) -> (switch, outgoing port) along the route; ``ControlError`` if there is none."""


def wire_bytes(payload: int, mtu: int, overhead: int = 0) -> int:
    """Bytes that a link's token bucket counts for a TCP payload: full packets with headers, without acks."""
    if payload <= 0:
        return 0
    packets = ceil(payload / (mtu - TCP_IP_HEADER_BYTES))
    return payload + packets * (TCP_IP_HEADER_BYTES + ETHERNET_HEADER_BYTES + overhead)


def checkpoint_seconds(checkpoint_bytes: float, plan: FabricPlan, scale: Scale, copies: int = 1) -> float:
    """Real seconds for ``copies`` of a checkpoint from one host at once, at the rate of its front-end port.

    ``ConfigError`` on a fabric without a front-end network.
    """
    rates = [port.rate_mbps for switch in plan.network("front-end") for port in switch.ports]
    if not rates:
        raise ConfigError("the fabric has no front-end network to fetch a checkpoint over", key="fabric.front_end")
    on_wire = copies * wire_bytes(scale.emulated_bytes(checkpoint_bytes), plan.mtu, plan.overhead)
    return scale.real_s(on_wire * 8 / (min(rates) * 1e6))


@dataclass(eq=False)
class _Message:
    """A message in flight: ``left`` wire bytes at time ``since``, sent at ``rate`` bytes per second from then on."""

    route: Route
    left: float
    done: Done
    began: float = 0.0
    since: float = 0.0
    rate: float = 0.0
    version: int = 0
    """Number of changes of the rate; an end that was scheduled for an earlier version is ignored."""


class Wires:
    """All ports of a plan, full duplex. Times are wall-clock seconds, sizes emulated bytes.

    Messages from one port to another are sent in sequence, as on a connection. Different connections share the ports
    and the links between switches max-min fairly, as TCP approximately does. ``at(time, callback)`` is the clock, which
    calls ``callback`` at ``time``. ``routing`` gives the links between switches that a message between two ranks takes
    on the rail network, if the plan has such links.
    """

    def __init__(
        self, plan: FabricPlan, at: Callable[[float, Callable[[], None]], None], routing: Routing | None = None
    ) -> None:
        self._frames = plan.mtu, plan.overhead
        self._at = at
        self._routing = routing
        self._routes: dict[tuple[int, int], Route] = {}
        self._rate: dict[End, float] = {}
        for switch in plan.switches:
            for port in switch.ports:
                for side in ("out", "in"):
                    self._rate[side, switch.network, port.rank, port.lane] = port.rate_mbps * 1e6 / 8
        for link in plan.links:
            for switch_name, number in ((link.a, link.a_port), (link.b, link.b_port)):
                self._rate["link", switch_name, number, 0] = link.rate_mbps * 1e6 / 8
        self._queued: dict[Route, deque[_Message]] = defaultdict(deque)
        self._busy: dict[End, set[_Message]] = defaultdict(set)
        self._changed: set[End] = set()

    def send(
        self,
        now: float,
        domain: Domain,
        src: tuple[int, int],
        dst: tuple[int, int],
        payload: int,
        done: Done,
        times: float = 1.0,
    ) -> None:
        """Send ``payload`` bytes, ``times`` times, from port ``src`` to ``dst`` (rank, lane): ``done(began, ended)``.

        On a network that the plan does not have (such as a front-end network for scalars) bytes take no time.
        """
        network = NETWORK_OF_DOMAIN[domain]
        ends: Route = (("out", network, *src), ("in", network, *dst))
        if not all(end in self._rate for end in ends):
            self._at(now, lambda: done(now, now))
            return
        links = self._links(src[0], dst[0]) if network == "rail" else ()
        route = (ends[0], *links, ends[1])
        queue = self._queued[route]
        queue.append(_Message(route, times * wire_bytes(payload, *self._frames), done))
        if len(queue) == 1:
            self._start(queue[0], now)

    def _links(self, src: int, dst: int) -> Route:
        if self._routing is None:
            return ()
        if (src, dst) not in self._routes:
            hops: list[End] = [("link", switch, port, 0) for switch, port in self._routing(src, dst)]
            self._routes[src, dst] = tuple(hop for hop in hops if hop in self._rate)  # the last hop is a host's port
        return self._routes[src, dst]

    def _start(self, message: _Message, now: float) -> None:
        message.began = message.since = now
        for end in message.route:
            self._busy[end].add(message)
        self._change(message.route, now)

    def _change(self, route: Route, now: float) -> None:
        """Schedule new rates for the messages on ``route``, once for all changes at this moment."""
        if not self._changed:
            self._at(now, lambda: self._share(now))
        self._changed.update(route)

    def _share(self, now: float) -> None:
        changed, self._changed = self._changed, set()
        messages = self._touched(changed)
        for message in messages:
            message.left = max(0.0, message.left - message.rate * (now - message.since))
            message.since = now
        self._fill(messages)
        for message in messages:
            message.version += 1
            end = now + message.left / message.rate
            self._at(end, lambda m=message, version=message.version, end=end: self._ended(m, version, end))  # type: ignore[misc]

    def _touched(self, changed: set[End]) -> list[_Message]:
        """All messages whose rate may change: those that share ends with ``changed``, directly or through others."""
        found: dict[_Message, None] = {}
        seen, ends = set(changed), list(changed)
        while ends:
            for message in self._busy[ends.pop()]:
                found[message] = None
                ends += [end for end in message.route if end not in seen]
                seen.update(message.route)
        return list(found)

    def _fill(self, messages: Iterable[_Message]) -> None:
        """Set max-min fair rates by progressive filling: the end with the least share per message is filled first."""
        open_at: dict[End, set[_Message]] = defaultdict(set)
        for message in messages:
            for end in message.route:
                open_at[end].add(message)
        left = {end: self._rate[end] for end in open_at}
        place = {end: number for number, end in enumerate(open_at)}
        shares = [(left[end] / len(held), place[end], end) for end, held in open_at.items()]
        heapify(shares)
        while shares:
            share, _, fullest = heappop(shares)
            held = open_at[fullest]
            if not held or share != left[fullest] / len(held):
                continue  # it was filled, or has another share by now
            changed: set[End] = set()
            for message in list(held):
                message.rate = share
                for end in message.route:
                    open_at[end].discard(message)
                    left[end] = max(0.0, left[end] - share)
                changed.update(message.route)
            for end in changed:
                if open_at[end]:
                    heappush(shares, (left[end] / len(open_at[end]), place[end], end))

    def _ended(self, message: _Message, version: int, now: float) -> None:
        if message.version != version:
            return
        for end in message.route:
            self._busy[end].remove(message)
        queue = self._queued[message.route]
        queue.popleft()
        message.done(message.began, now)
        if queue:
            self._start(queue[0], now)
        else:
            self._change(message.route, now)
