"""The links of an emulation that delay or lose packets: their middles, and the relay if the kernel has no netem.

Such a link consists of two veth pairs whose inner ends, its middle, are in a namespace of their own::

    end of node 1 - middle a | middle b - end of node 2

Packets that arrive at one inner end leave by the other one. In between a relay holds them, or the kernel forwards them
and netem holds them at the inner end by which they leave; there some are lost at random too. Both happen outside the
namespaces of the nodes, so a sender's stack counts packets under way as sent, and Open vSwitch, which reads packets
before the filters of an interface see them, receives only those that are not lost.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from railyard.errors import ConfigError, MachineError
from topos.kernel import namespaces, netlink, queues, tuning
from topos.kernel.delay_relay import DelayRelay
from topos.kernel.links import RecordedIntf, RecordedLink, Way
from topos.kernel.netlink import Netlink, NetlinkRequest, VethEnd, link_down, link_up
from topos.kernel.nodes import RailSwitch
from topos.kernel.path_latency import unsupported_reason

Method = Literal["none", "netem", "relay"]
"""How an emulation holds the packets of delayed links; ``none``: it has no such link."""
_FIRST_INDEX = 10
_LEAST_ROOM_BYTES = 1 << 20
_UNSHAPED_ROOM_BYTES = 16 << 20
_NO_TROUBLE = Way()


@dataclass(frozen=True)
class Passage:
    """One way through the middle of a link: packets of ``sender`` come in at one inner end and leave by the other.

    ``room_bytes`` is how much a relay may hold.
    """

    sender: RecordedIntf
    way: Way
    enters: VethEnd
    leaves: VethEnd
    room_bytes: int

    def relayed(self, method: Method) -> bool:
        """Whether a relay forwards the packets, and not the kernel."""
        return method == "relay" and self.way.delay_s > 0

    def for_relay(self) -> dict[str, Any]:
        return {
            "enters": self.enters.name,
            "leaves": self.leaves.name,
            "delay_s": self.way.delay_s,
            "jitter_s": self.way.jitter_s,
            "room_bytes": self.room_bytes,
        }


def room_bytes(way: Way, rate_mbps: float | None) -> int:
    """Bytes that a relay may hold for one way: twice what the link has in flight, and at least 1 MiB."""
    if rate_mbps is None:
        return _UNSHAPED_ROOM_BYTES
    return max(_LEAST_ROOM_BYTES, round(2 * rate_mbps * 1e6 / 8 * (way.delay_s + way.jitter_s)))


def _room(sender: RecordedIntf) -> int:
    return room_bytes(sender.way, sender.rate_mbps)


def passages(links: Sequence[RecordedLink]) -> list[Passage]:
    """Both ways of every link that delays or loses packets."""
    ways: list[Passage] = []
    for number, link in enumerate(link for link in links if any(link.intf1.way) or any(link.intf2.way)):
        a, b = (VethEnd(f"mid{number}{side}", _FIRST_INDEX + 2 * number + place) for place, side in enumerate("ab"))
        for sender, enters, leaves in ((link.intf1, a, b), (link.intf2, b, a)):
            ways.append(Passage(sender, sender.way, enters, leaves, _room(sender)))
    return ways


def pair_requests(ways: Sequence[Passage], namespaces: Mapping[str, int], yard_fd: int) -> Iterator[NetlinkRequest]:
    """Requests to the namespace of the middles that make the veth pairs; the nodes' ends are down.

    ``namespaces`` are the hosts' (name -> descriptor); switches are in the yard.
    """
    for passage in ways:
        end = passage.sender
        outer = VethEnd(end.name, end.index, end.mac, namespaces.get(end.node.name, yard_fd))
        yield netlink.veth(passage.enters, outer, end.mtu)


def switch_end_requests(ways: Sequence[Passage]) -> Iterator[NetlinkRequest]:
    for end in (passage.sender for passage in ways if isinstance(passage.sender.node, RailSwitch)):
        yield netlink.link_up(end.index, end.name, single=end.way.loss_percent > 0)


def forwarding_requests(ways: Sequence[Passage], method: Method) -> Iterator[NetlinkRequest]:
    """Requests to the namespace of the middles that delay, lose and forward packets, except what a relay does."""
    for passage in ways:
        yield queues.filters(passage.leaves.index, passage.leaves.name)
        yield from _trouble(passage, method)
    for passage in ways:
        if not passage.relayed(method):
            yield queues.redirect(passage.enters.index, passage.enters.name, passage.leaves.index)


def _trouble(passage: Passage, method: Method, before: Way = _NO_TROUBLE) -> Iterator[NetlinkRequest]:
    """Requests by which the kernel delays and loses packets of a passage, in place of what it did ``before``."""
    index, name, way = passage.leaves.index, passage.leaves.name, passage.way
    if method == "netem" and (way.delay_s or before.delay_s):
        yield queues.delay_packets(index, name, way.delay_s * 1e6, way.jitter_s * 1e6)
    if way.loss_percent or before.loss_percent:
        yield queues.lose(index, name, way.loss_percent)


def crossing(ways: Sequence[Passage], ends: Collection[RecordedIntf]) -> set[VethEnd]:
    return {end for passage in ways if passage.sender in ends for end in (passage.enters, passage.leaves)}


Choice = Literal["auto", "netem", "relay"]


def _method(choice: Choice, passages: Sequence[Passage]) -> Method:
    """How to hold packets; ``MachineError`` if that is netem by choice and the kernel has none."""
    if not any(passage.way.delay_s for passage in passages):
        return "none"
    if choice == "relay":
        return "relay"
    reason = unsupported_reason()
    if reason is None:
        return "netem"
    if choice == "netem":
        raise MachineError(f"links cannot be delayed by netem: {reason}; take link_delay=relay")
    return "relay"


class LinkDelays:
    """The delayed and lossy ones of ``links``; ``choice`` is how packets are held (auto: netem if the kernel has it).

    Raises ``ConfigError`` for bad link parameters, and ``MachineError`` where the machine lacks something.
    """

    def __init__(self, links: Sequence[RecordedLink], choice: Choice = "auto") -> None:
        self.choice = choice
        self.passages = passages(links)
        self.method: Method = _method(choice, self.passages)
        self.relay: DelayRelay | None = None
        self._lines = [number for number, passage in enumerate(self.passages) if passage.relayed(self.method)]
        """Numbers of the passages that a relay holds, in its order."""
        self.netns_fd: int | None = None
        """Descriptor of the namespace of the middles; None before ``make`` and without such links."""

    def make(self, namespaces_of_hosts: Mapping[str, int], yard_fd: int) -> None:
        """Make the links and start the relay if there is one. The hosts' ends are down."""
        if not self.passages:
            return
        (self.netns_fd,) = namespaces.make(1)
        with namespaces.inside(self.netns_fd):
            namespaces.write_sysctls(tuning.YARD_SYSCTLS)
        with Netlink(self.netns_fd) as kernel:
            kernel.run(pair_requests(self.passages, namespaces_of_hosts, yard_fd))
            kernel.run(forwarding_requests(self.passages, self.method))
        with Netlink(yard_fd) as kernel:
            kernel.run(switch_end_requests(self.passages))
        if self._lines:
            relayed = [self.passages[number].for_relay() for number in self._lines]
            self.relay = DelayRelay(self.netns_fd, relayed).start()

    def change(self, ends: Collection[RecordedIntf]) -> None:
        """Delay and lose packets of the links of ``ends`` as these are now recorded; frames under way keep their time.

        ``ConfigError``, and nothing is changed, for a link that was made without what this takes.
        """
        changed = {
            number: replace(passage, way=passage.sender.way, room_bytes=_room(passage.sender))
            for number, passage in enumerate(self.passages)
            if passage.sender in ends
        }
        method = _method(self.choice, [*changed.values()]) if self.method == "none" else self.method
        ready = {p.sender for n, p in changed.items() if not p.relayed(method) or n in self._lines}
        for end in ends:
            if any(end.way) and end not in ready:
                raise ConfigError(
                    f"{end.name} cannot get one while it is up, since its link was made without; give the link a small "
                    "delay when the fabric comes up (delay_ms=0.1)",
                    key="delay" if end.way.delay_s else "loss",
                )
        self.method = method
        if changed:
            with Netlink(self.netns_fd) as kernel:
                kernel.run(request for n, p in changed.items() for request in _trouble(p, method, self.passages[n].way))
        for number, passage in changed.items():
            if self.relay is not None and number in self._lines:
                self.relay.change(self._lines.index(number), passage.for_relay())
            self.passages[number] = passage

    def cut(self, ends: Collection[RecordedIntf]) -> None:
        """Take down the middles of the links of ``ends``, so that the ends on both sides lose their carrier."""
        inner = crossing(self.passages, ends)
        if inner:
            with Netlink(self.netns_fd) as kernel:
                kernel.run(link_down(end.index, end.name) for end in inner)

    def mend(self, ends: Collection[RecordedIntf], still_cut: Collection[RecordedIntf]) -> None:
        inner = crossing(self.passages, ends) - crossing(self.passages, still_cut)
        if inner:
            with Netlink(self.netns_fd) as kernel:
                kernel.run(link_up(end.index, end.name) for end in inner)

    def check(self) -> None:
        if self.relay is not None:
            self.relay.check()

    def report(self) -> dict[str, Any] | None:
        """How late frames were since the last report (``topos.kernel.holding.Lateness.report``); None without relay.

        Raises ``MachineError`` if the relay has ended.
        """
        return None if self.relay is None else self.relay.report()

    @property
    def interfaces(self) -> set[str]:
        return {passage.enters.name for passage in self.passages}

    def close(self) -> None:
        """End the relay and close the namespace, whose interfaces must have been deleted."""
        if self.relay is not None:
            self.relay.close()
        if self.netns_fd is not None:
            os.close(self.netns_fd)
            self.netns_fd = None
