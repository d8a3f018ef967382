"""The middles of links that delay or lose packets, as netlink requests.

Such a link consists of two veth pairs whose inner ends, its middle, are in a namespace of their own::

    end of node 1 - middle a | middle b - end of node 2

Packets that arrive at one inner end leave by the other one. In between a relay holds them, or the kernel forwards them
and netem holds them at the inner end by which they leave; there some are lost at random too. Both happen outside the
namespaces of the nodes, so a sender's stack counts packets under way as sent, and Open vSwitch, which reads packets
before the filters of an interface see them, receives only those that are not lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from topos.kernel import netlink, queues
from topos.kernel.links import RecordedIntf, RecordedLink, Way
from topos.kernel.netlink import NetlinkRequest, VethEnd
from topos.kernel.nodes import RailSwitch

Method = Literal["none", "netem", "relay"]
"""How an emulation holds the packets of delayed links; ``none``: it has no such link."""
_FIRST_INDEX = 10
_LEAST_ROOM_BYTES = 1 << 20
_UNSHAPED_ROOM_BYTES = 16 << 20


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


def passages(links: Sequence[RecordedLink]) -> list[Passage]:
    """Both ways of every link that delays or loses packets."""
    found: list[Passage] = []
    for number, link in enumerate(link for link in links if any(link.intf1.way) or any(link.intf2.way)):
        a, b = (VethEnd(f"mid{number}{side}", _FIRST_INDEX + 2 * number + place) for place, side in enumerate("ab"))
        for sender, enters, leaves in ((link.intf1, a, b), (link.intf2, b, a)):
            found.append(Passage(sender, sender.way, enters, leaves, room_bytes(sender.way, sender.rate_mbps)))
    return found


def pair_requests(found: Sequence[Passage], namespaces: Mapping[str, int], yard_fd: int) -> Iterator[NetlinkRequest]:
    """Requests to the namespace of the middles that make the veth pairs; the nodes' ends are down.

    ``namespaces`` are the hosts' (name -> descriptor); switches are in the yard.
    """
    for passage in found:
        end = passage.sender
        outer = VethEnd(end.name, end.index, end.mac, namespaces.get(end.node.name, yard_fd))
        yield netlink.veth(passage.enters, outer, end.mtu)


def switch_end_requests(found: Sequence[Passage]) -> Iterator[NetlinkRequest]:
    for end in (passage.sender for passage in found if isinstance(passage.sender.node, RailSwitch)):
        yield netlink.link_up(end.index, end.name, single=end.way.loss_percent > 0)


def forwarding_requests(found: Sequence[Passage], method: Method) -> Iterator[NetlinkRequest]:
    """Requests to the namespace of the middles that delay, lose and forward packets, except what a relay does."""
    for passage in found:
        index, name, way = passage.leaves.index, passage.leaves.name, passage.way
        yield queues.filters(index, name)
        if method == "netem" and way.delay_s:
            yield queues.delay_packets(index, name, way.delay_s * 1e6, way.jitter_s * 1e6)
        if way.loss_percent:
            yield queues.lose(index, name, way.loss_percent)
    for passage in found:
        if not passage.relayed(method):
            yield queues.redirect(passage.enters.index, passage.enters.name, passage.leaves.index)


def crossing(found: Sequence[Passage], ends: Collection[RecordedIntf]) -> set[VethEnd]:
    return {end for passage in found if passage.sender in ends for end in (passage.enters, passage.leaves)}
