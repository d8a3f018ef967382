"""From the notes of nodes and links to the requests that make them."""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Interface
from typing import Any

from railyard.errors import MachineError
from railyard.scale import bucket_burst_bytes
from topos import netlink, tuning
from topos.links import RecordedIntf, RecordedLink
from topos.namespaces import inside
from topos.netlink import LO_INDEX, End, Netlink, Request
from topos.nodes import RailSwitch

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


def _end(intf: RecordedIntf, namespaces: Mapping[str, int]) -> End:
    return End(intf.name, intf.index, intf.mac, namespaces.get(intf.node.name))


def link_requests(links: Sequence[RecordedLink], namespaces: Mapping[str, int]) -> Iterator[Request]:
    """Requests to the yard that make every link."""
    for link in links:
        switch, other = link.intf2, link.intf1
        if isinstance(other.node, RailSwitch):
            switch, other = other, switch
        yield netlink.veth(_end(switch, namespaces), _end(other, namespaces), switch.mtu, LINK_GROUP)
        if isinstance(other.node, RailSwitch):
            yield netlink.link_up(other.index, other.name)


def switch_shaping(switches: Sequence[RailSwitch]) -> Iterator[Request]:
    """Requests to the yard that shape the electrical switches' ends, where senders can meet.

    For after the switch took the interfaces, since it removes the queues that it finds on them.
    """
    for switch in switches:
        for intf in switch.intfList() if switch.kind == "electrical" else ():
            rate = intf.rate_mbps
            if rate is not None:
                burst = tuning.switch_burst_bytes(rate, intf.mtu)
                queue = tuning.queue_bytes(rate, intf.mtu)
                yield netlink.token_bucket(intf.index, intf.name, rate, burst, queue)


def _peers(switch: RailSwitch) -> list[RecordedIntf]:
    """The hosts' interfaces that are plugged into a switch."""
    ends = [_far(intf) for intf in switch.intfList()]
    return [end for end in ends if end.ip and end.mac and not isinstance(end.node, RailSwitch)]


def _far(intf: RecordedIntf) -> Any:
    link: Any = intf.link
    return link.intf2 if link.intf1 is intf else link.intf1


def host_requests(
    hosts: Sequence[Any], switches: Sequence[RailSwitch], host_tuning: tuning.HostTuning
) -> Iterator[tuple[str, list[Request]]]:
    """For each host the requests to its namespace: addresses, routes, rules, neighbours, shaping."""
    peers = {switch: _peers(switch) for switch in switches}
    for host in hosts:
        requests = [netlink.link_up(LO_INDEX, "lo")]
        lanes: dict[Any, int] = defaultdict(int)
        for intf in host.intfList():
            largest = None if intf.rate_mbps is None else tuning.largest_piece_bytes(intf.rate_mbps, intf.mtu)
            requests.append(netlink.link_up(intf.index, intf.name, largest))
            if intf.ip:
                network = IPv4Interface(f"{intf.ip}/{intf.prefixLen}").network
                requests += _addressing(intf, lanes[network], host_tuning)
                lanes[network] += 1
            others = (peer for peer in peers.get(_far(intf).node, ()) if peer.node is not host)
            requests += [netlink.neighbour(intf.index, peer.ip, peer.mac) for peer in others]
            rate = intf.rate_mbps
            if rate is not None:
                burst, queue = bucket_burst_bytes(rate, intf.mtu), tuning.queue_bytes(rate, intf.mtu)
                requests.append(netlink.token_bucket(intf.index, intf.name, rate, burst, queue))
        yield host.name, requests


def _addressing(intf: RecordedIntf, lane: int, host_tuning: tuning.HostTuning) -> Iterator[Request]:
    """Address and route of one interface.

    A host may have several interfaces (lanes) in one subnet. A socket bound to a device takes that device's
    route; unbound traffic takes the lowest metric, lane 0; what answers from the address of another lane
    leaves by that lane.
    """
    ip, prefix, index = str(intf.ip), int(intf.prefixLen), intf.index
    yield netlink.address(index, intf.name, ip, prefix)
    yield netlink.route(index, ip, prefix, 10 + lane, host_tuning.route)
    if lane:
        table = _FIRST_TABLE + index
        yield netlink.route(index, ip, prefix, 10, host_tuning.route, table)
        yield netlink.source_rule(ip, table)


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
