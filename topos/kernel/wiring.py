"""From the notes of nodes and links to the requests that make them."""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface
from typing import Any

from railyard.errors import MachineError
from railyard.scale import bucket_burst_bytes
from topos.kernel import netlink, tuning
from topos.kernel.link_queue import link_queue
from topos.kernel.links import RecordedIntf, RecordedLink
from topos.kernel.namespaces import inside
from topos.kernel.netlink import LO_INDEX, Netlink, NetlinkRequest, VethEnd
from topos.kernel.nodes import RailSwitch

LINK_GROUP = 77
"""Interface group of all links of a yard, so that they can be deleted at once."""
_FIRST_YARD_INDEX = 1000
_FIRST_TABLE = 100
_OVS_INTERFACES = ("ovs-netdev",)


def number_interfaces(links: Sequence[RecordedLink]) -> None:
    """Give each interface the index it will have in its namespace (1 is ``lo``; bridges take low ones in the yard)."""
    count: dict[Any, int] = defaultdict(lambda: LO_INDEX)
    yard = _FIRST_YARD_INDEX
    for link in links:
        for intf in (link.intf1, link.intf2):
            if isinstance(intf.node, RailSwitch):
                intf.index = yard = yard + 1
            else:
                count[intf.node] += 1
                intf.index = count[intf.node]


def _end(intf: RecordedIntf, namespaces: Mapping[str, int]) -> VethEnd:
    return VethEnd(intf.name, intf.index, intf.mac, namespaces.get(intf.node.name))


def link_requests(links: Sequence[RecordedLink], namespaces: Mapping[str, int]) -> Iterator[NetlinkRequest]:
    """Requests to the yard that make every link."""
    for link in links:
        switch, other = link.intf2, link.intf1
        if isinstance(other.node, RailSwitch):
            switch, other = other, switch
        yield netlink.veth(_end(switch, namespaces), _end(other, namespaces), switch.mtu, LINK_GROUP)
        if isinstance(other.node, RailSwitch):
            yield netlink.link_up(other.index, other.name)


def switch_shaping(switches: Sequence[RailSwitch]) -> Iterator[NetlinkRequest]:
    """Requests to the yard that shape the electrical switches' ends, where senders can meet.

    For after the switch took the interfaces, since it removes the queues that it finds on them.
    """
    for switch in switches:
        for intf in switch.intfList() if switch.kind == "electrical" else ():
            rate = intf.rate_mbps
            if rate is not None:
                burst = tuning.switch_burst_bytes(rate, intf.mtu)
                queue = tuning.queue_bytes(rate, intf.mtu)
                if isinstance(_far(intf).node, RailSwitch):
                    yield from link_queue(intf.index, intf.name, rate, burst, queue)
                else:
                    yield netlink.token_bucket(intf.index, intf.name, rate, burst, queue)


@dataclass(frozen=True)
class _Reach:
    """What a switch, with those that it is linked to, leads to: hosts' interfaces, and links between switches."""

    ports: list[RecordedIntf]
    links: list[RecordedIntf]

    def largest_piece(self, intf: RecordedIntf) -> int | None:
        """What a host may hand interface ``intf`` in one piece, so that no bucket on its way cuts it up."""
        if intf.rate_mbps is None:
            return None
        mine = tuning.largest_piece_bytes(intf.rate_mbps, intf.mtu)
        links = {(link.rate_mbps, link.mtu) for link in self.links if link.rate_mbps is not None}
        return min([mine, *(tuning.largest_forwarded_bytes(rate, mtu) for rate, mtu in links)])


_NOWHERE = _Reach([], [])


def _reaches(switches: Sequence[RailSwitch]) -> dict[Any, _Reach]:
    """For each switch what can be reached through it; switches that are linked together share one."""
    reaches: dict[Any, _Reach] = {}
    for start in switches:
        if start in reaches:
            continue
        reach = reaches[start] = _Reach([], [])
        todo = [start]
        while todo:
            for end in map(_far, todo.pop().intfList()):
                if not isinstance(end.node, RailSwitch):
                    if end.ip and end.mac:
                        reach.ports.append(end)
                    continue
                reach.links.append(end)
                if end.node not in reaches:
                    reaches[end.node] = reach
                    todo.append(end.node)
    return reaches


def _far(intf: RecordedIntf) -> Any:
    link: Any = intf.link
    return link.intf2 if link.intf1 is intf else link.intf1


def host_requests(
    hosts: Sequence[Any], switches: Sequence[RailSwitch], host_tuning: tuning.HostTuning
) -> Iterator[tuple[str, list[NetlinkRequest]]]:
    """For each host the requests to its namespace: addresses, routes, rules, neighbours, shaping."""
    reaches = _reaches(switches)
    for host in hosts:
        requests = [netlink.link_up(LO_INDEX, "lo")]
        for intf, lane in _lanes(host):
            reach = reaches.get(_far(intf).node, _NOWHERE)
            requests.append(netlink.link_up(intf.index, intf.name, reach.largest_piece(intf)))
            if intf.ip:
                requests += _addressing(intf, lane)
                requests += _routing(intf, lane, host_tuning)
            requests += _neighbours(intf, reach)
            rate = intf.rate_mbps
            if rate is not None:
                burst, queue = bucket_burst_bytes(rate, intf.mtu), tuning.queue_bytes(rate, intf.mtu)
                requests.append(netlink.token_bucket(intf.index, intf.name, rate, burst, queue))
        yield host.name, requests


def _lanes(host: Any) -> Iterator[tuple[RecordedIntf, int]]:
    """Each interface of a host, and how many before it are in the same subnet."""
    lanes: dict[Any, int] = defaultdict(int)
    for intf in host.intfList():
        network = IPv4Interface(f"{intf.ip}/{intf.prefixLen}").network if intf.ip else None
        yield intf, lanes[network]
        lanes[network] += 1


def _neighbours(intf: RecordedIntf, reach: _Reach) -> list[NetlinkRequest]:
    return [netlink.neighbour(intf.index, far.ip, far.mac) for far in reach.ports if far.node is not intf.node]


def _addressing(intf: RecordedIntf, lane: int) -> Iterator[NetlinkRequest]:
    """Address of one interface, and the rule by which what answers from a further lane's leaves by that lane."""
    yield netlink.address(intf.index, intf.name, str(intf.ip), int(intf.prefixLen))
    if lane:
        yield netlink.source_rule(str(intf.ip), _FIRST_TABLE + intf.index)


def _routing(intf: RecordedIntf, lane: int, host_tuning: tuning.HostTuning) -> Iterator[NetlinkRequest]:
    """Routes of one interface.

    A host may have several interfaces (lanes) in one subnet. A socket bound to a device takes that device's
    route; unbound traffic takes the lowest metric, lane 0; what answers from the address of another lane
    leaves by that lane.
    """
    ip, prefix, index = str(intf.ip), int(intf.prefixLen), intf.index
    route = tuning.route_tuning(host_tuning.route, intf.rate_mbps, intf.mtu)
    yield netlink.route(index, ip, prefix, 10 + lane, route)
    if lane:
        yield netlink.route(index, ip, prefix, 10, route, _FIRST_TABLE + index)


def own_ends(host: Any, switches: Sequence[RailSwitch]) -> list[RecordedIntf]:
    """The ends in the yard of all links that die with a host: its own, and in a torus those of its node."""
    ends = [_far(intf) for intf in host.intfList()]
    nodes = [s for s in switches if "rank" in s.params and s.params["rank"] == host.params.get("rank")]
    return list(dict.fromkeys([*ends, *(intf for node in nodes for intf in node.intfList())]))


def cut_requests(ends: Iterable[RecordedIntf]) -> list[NetlinkRequest]:
    """Requests that take interfaces down; what is at the other ends of their links loses its carrier."""
    return [netlink.link_down(intf.index, intf.name) for intf in ends]


def mend_requests(host: Any, switches: Sequence[RailSwitch], host_tuning: tuning.HostTuning) -> list[NetlinkRequest]:
    """Requests to a host's namespace that bring up what ``cut_requests`` took down.

    With a link that goes down the kernel drops the routes over it and the neighbours; addresses, rules and
    queues stay.
    """
    reaches = _reaches(switches)
    requests: list[NetlinkRequest] = []
    for intf, lane in _lanes(host):
        requests.append(netlink.link_up(intf.index, intf.name))
        requests += _routing(intf, lane, host_tuning) if intf.ip else ()
        requests += _neighbours(intf, reaches.get(_far(intf).node, _NOWHERE))
    return requests


def clear_links(yard_fd: int, names: Iterable[str]) -> None:
    """Delete the interfaces ``names`` of a yard (with a veth its peer) all at once.

    Returns when they are gone; raises ``MachineError`` naming any that is not.
    """
    ours = {*names, *_OVS_INTERFACES}
    with inside(yard_fd), Netlink() as kernel:
        found = [(index, name) for index, name in socket.if_nameindex() if name in ours]
        if found:
            kernel.run(netlink.set_group(index, name, LINK_GROUP) for index, name in found)
            kernel.run([netlink.delete_group(LINK_GROUP)])
        left = ours.intersection(name for _, name in socket.if_nameindex())
    if left:
        raise MachineError(f"interfaces {', '.join(sorted(left))} are still there; a process may hold them open")
