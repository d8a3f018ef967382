"""From the notes of nodes and links to the requests that make them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Interface
from typing import Any

from railyard.errors import MachineError
from railyard.scale import bucket_burst_bytes
from topos import netlink, tuning
from topos.links import RecordedIntf, RecordedLink
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


def _peers(switches: Sequence[RailSwitch]) -> dict[Any, list[tuple[Any, bytes]]]:
    """For each switch the hosts plugged into it: (host, neighbour message)."""
    table: dict[Any, list[tuple[Any, bytes]]] = {}
    for switch in switches:
        table[switch] = []
        for intf in switch.intfList():
            far = _far(intf)
            if far.ip and far.mac and not isinstance(far.node, RailSwitch):
                table[switch].append((far.node, netlink.neighbour_tail(far.ip, far.mac)))
    return table


def _far(intf: RecordedIntf) -> Any:
    link: Any = intf.link
    return link.intf2 if link.intf1 is intf else link.intf1


def host_requests(
    hosts: Sequence[Any], switches: Sequence[RailSwitch], host_tuning: tuning.HostTuning
) -> Iterator[tuple[str, list[Request]]]:
    """For each host the requests to its namespace: addresses, routes, rules, neighbours, shaping."""
    peers = _peers(switches)
    for host in hosts:
        requests = [netlink.link_up(LO_INDEX, "lo")]
        lanes: dict[Any, int] = defaultdict(int)
        for intf in host.intfList():
            requests.append(netlink.link_up(intf.index, intf.name))
            if intf.ip:
                network = IPv4Interface(f"{intf.ip}/{intf.prefixLen}").network
                requests += _addressing(intf, lanes[network], host_tuning)
                lanes[network] += 1
            far = _far(intf).node
            requests += [netlink.neighbour(intf.index, tail) for node, tail in peers.get(far, ()) if node is not host]
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
    with Netlink(yard_fd) as kernel:
        found = {name: index for name, index in kernel.links().items() if name in ours}
        if found:
            kernel.run(netlink.set_group(index, name, LINK_GROUP) for name, index in found.items())
            kernel.run([netlink.delete_group(LINK_GROUP)])
        left = ours.intersection(kernel.links())
    if left:
        raise MachineError(f"interfaces {', '.join(sorted(left))} are still there; a process may hold them open")
