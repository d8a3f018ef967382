"""Translates the recorded settings of nodes and links into netlink requests and bridges."""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from railyard.errors import MachineError
from railyard.scale import bucket_burst_bytes
from topos.kernel import netlink, tuning
from topos.kernel.fastpath.offload import tap_name
from topos.kernel.links import RecordedIntf, RecordedLink
from topos.kernel.namespaces import inside
from topos.kernel.netlink import LO_INDEX, Netlink, NetlinkRequest, Tunnel, VethEnd
from topos.kernel.nodes import RailSwitch
from topos.kernel.ovs import Bridge, BridgePort
from topos.kernel.queues import counting, link_queue, token_bucket

LINK_GROUP = 77
"""Interface group of all links of a yard, by which they are deleted at once."""
_FIRST_YARD_INDEX = 1000
_FIRST_TABLE = 100
_METRIC, _PEER_METRIC = 10, 5
"""Metric of the route over lane 0 to its network, and of a route to one peer."""
_OVS_INTERFACE = "ovs-netdev"


def number_interfaces(links: Sequence[RecordedLink]) -> None:
    """Set the index that each interface will have in its namespace.

    Index 1 is ``lo``; in the yard low indices are left to the bridges.
    """
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
    """Requests to the yard that make all links, except those that delay or lose packets (``link_delays``)."""
    for link in (link for link in links if not any(link.intf1.way) and not any(link.intf2.way)):
        switch, other = link.intf2, link.intf1
        if isinstance(other.node, RailSwitch):
            switch, other = other, switch
        yield netlink.veth(_end(switch, namespaces), _end(other, namespaces), switch.mtu, LINK_GROUP)
        if isinstance(other.node, RailSwitch):
            yield netlink.link_up(other.index, other.name)


def tunnel_requests(
    links: Iterable[RecordedLink], namespaces: Mapping[str, int], yard_fd: int, tunnels: Mapping[str, Tunnel]
) -> Iterator[NetlinkRequest]:
    """Requests to the machine's own namespace that make the ends here of links whose other ends are on other machines.

    ``tunnels`` are those of these links, by the name of the end that is here. The ends at switches are up, those at
    hosts must be set up later.
    """
    for link in links:
        for intf in (link.intf1, link.intf2):
            if intf.name in tunnels:
                at_switch = isinstance(intf.node, RailSwitch)
                fd = yard_fd if at_switch else namespaces[intf.node.name]
                end = VethEnd(intf.name, intf.index, intf.mac, fd)
                yield netlink.tunnel(end, tunnels[intf.name], intf.mtu, LINK_GROUP, up=at_switch)


def switch_shaping(switches: Sequence[RailSwitch]) -> Iterator[NetlinkRequest]:
    """Requests to the yard that shape the ports of the electrical switches, where senders can compete.

    To be sent after Open vSwitch has opened the interfaces, since it removes existing queues from them.
    """
    for switch in switches:
        for intf in switch.intfList():
            yield from shaping(intf)


def shaping(intf: RecordedIntf, *, again: bool = False) -> Iterator[NetlinkRequest]:
    """Requests that shape what leaves ``intf`` to its rate: of a host, or of an electrical switch. Others have none.

    ``again``: it is shaped already, and its queue keeps its packets. Then bucket and queue stay as deep as at the
    highest rate that it has had: a segment that was longer than the bucket would stay in the queue for ever, and a
    queue that was longer than its limit would lose what comes next.
    """
    rate = intf.rate_mbps
    if rate is None or getattr(intf.node, "kind", "electrical") != "electrical":
        return
    deepest = max(rate, *intf.earlier_mbps, 0.0)
    at_switch = isinstance(intf.node, RailSwitch)
    burst = (tuning.switch_burst_bytes if at_switch else bucket_burst_bytes)(deepest, intf.mtu, intf.burst)
    queue = tuning.queue_bytes(deepest, intf.mtu)
    htb = bool(intf.params.get("changing")) or (at_switch and isinstance(far_end(intf).node, RailSwitch))
    where = intf.index, intf.name, rate, burst, queue
    first, *rest = link_queue(*where, again=again) if htb else [token_bucket(*where)]
    yield first if htb and again else counting(first, intf.mtu, intf.overhead)
    yield from rest


def shaped_ports(host: Any) -> list[tuple[float, int, int]]:
    """Rate (Mb/s), MTU and least depth of the bucket (bytes) of each interface of a host that is shaped."""
    return [(intf.rate_mbps, intf.mtu, intf.burst) for intf in host.intfList() if intf.rate_mbps is not None]


@dataclass(frozen=True)
class _Reach:
    """Host interfaces and inter-switch links that can be reached through a switch and those linked to it."""

    ports: list[RecordedIntf]
    links: list[RecordedIntf]

    def largest_segment(self, intf: RecordedIntf) -> int | None:
        """Largest segment for interface ``intf`` that no bucket on any path splits; None without a rate."""
        if intf.rate_mbps is None:
            return None
        mine = tuning.largest_segment_bytes(intf.rate_mbps, intf.mtu, intf.burst, intf.overhead)
        links = {(link.rate_mbps, link.mtu) for link in self.links if link.rate_mbps is not None}
        return min([mine, *(tuning.largest_forwarded_bytes(rate, mtu) for rate, mtu in links)])


_NOWHERE = _Reach([], [])


def _reaches(switches: Sequence[RailSwitch]) -> dict[Any, _Reach]:
    """The ``_Reach`` of each switch; switches that are linked together share one."""
    reaches: dict[Any, _Reach] = {}
    for start in switches:
        if start in reaches:
            continue
        reach = reaches[start] = _Reach([], [])
        todo = [start]
        while todo:
            for end in map(far_end, todo.pop().intfList()):
                if not isinstance(end.node, RailSwitch):
                    if end.ip and end.mac:
                        reach.ports.append(end)
                    continue
                reach.links.append(end)
                if end.node not in reaches:
                    reaches[end.node] = reach
                    todo.append(end.node)
    return reaches


def far_end(intf: RecordedIntf) -> Any:
    """The interface at the other end of the link of ``intf``."""
    link: Any = intf.link
    return link.intf2 if link.intf1 is intf else link.intf1


def forwarding(switches: Sequence[RailSwitch], openflow: bool) -> dict[str, dict[str, int]]:
    """MAC address of every host -> port that leads to it, for each switch that forwards without a controller.

    ``openflow``: whether switches have a controller at all.

    A bridge of Open vSwitch that learns addresses goes on flooding for some milliseconds, until its caches know what it
    has learned: 12 clients of one switch that got 0.9 MB each at once received parts of each other's, and the slowest
    one took twice the time.
    """
    return {
        switch.name: {
            mac: switch.ports[intf] for intf in switch.intfList() for mac in _addresses_behind(far_end(intf), {switch})
        }
        for switch in switches
        if switch.learning and not (openflow and switch.controlled)
    }


def _addresses_behind(end: RecordedIntf, passed: set[Any]) -> Iterator[str]:
    """The MAC addresses of the hosts that are reached by way of ``end``, not through the switches ``passed``."""
    if not isinstance(end.node, RailSwitch):
        yield str(end.mac)
    elif end.node not in passed:
        passed.add(end.node)
        for intf in end.node.intfList():
            yield from _addresses_behind(far_end(intf), passed)


def bridges(
    switches: Iterable[RailSwitch],
    controller_of: Callable[[RailSwitch], str | None],
    fast_path: bool,
    spanning_tree: bool = False,
) -> list[Bridge]:
    """The bridges of switches, with the targets of their controllers.

    Their ports are the switches' ends of the links, or with a ``fast_path`` those behind them. With a ``spanning_tree``
    the electrical ones agree which links between them forward.
    """
    bridges = []
    for switch in switches:
        ports = [
            BridgePort(tap_name(end.index), switch.ports[end], end.mtu, end.mac)
            if fast_path
            else BridgePort(end.name, switch.ports[end], edge=not isinstance(far_end(end).node, RailSwitch))
            for end in switch.intfList()
        ]
        controller = controller_of(switch)
        targets = () if controller is None else (controller,)
        alone = switch.learning and not targets
        tree = spanning_tree and switch.kind == "electrical"
        bridges.append(Bridge(switch.name, int(switch.dpid, 16), tuple(ports), targets, alone, tree))
    return bridges


def port_speeds(switches: Iterable[RailSwitch], multiple: float) -> dict[str, int]:
    """Speed in kb/s that each port of Open vSwitch behind a shaped link is to tell: ``multiple`` of the link's rate."""
    ends = [(end, end.rate_mbps) for switch in switches for end in switch.intfList()]
    return {tap_name(end.index): min(round(rate * 1000 * multiple), 0xFFFFFFFF) for end, rate in ends if rate}


def host_requests(hosts: Sequence[Any], switches: Sequence[RailSwitch]) -> Iterator[tuple[str, list[NetlinkRequest]]]:
    """(host, requests to its namespace) for each host: addresses, routes, rules, neighbours and shaping."""
    reaches = _reaches(switches)
    for host in hosts:
        requests = [netlink.link_up(LO_INDEX, "lo")]
        for intf, lane in _lanes(host):
            reach = reaches.get(far_end(intf).node, _NOWHERE)
            requests.append(_up(intf, reach))
            if intf.ip:
                requests += _addressing(intf, lane)
                requests += _routing(intf, lane)
            requests += _neighbours(intf, reach)
            requests += shaping(intf)
        yield host.name, requests


def _up(intf: RecordedIntf, reach: _Reach) -> NetlinkRequest:
    single = intf.way.loss_percent > 0 or bool(intf.params.get("changing"))
    return netlink.link_up(intf.index, intf.name, reach.largest_segment(intf), single=single)


def _lanes(host: Any) -> Iterator[tuple[RecordedIntf, int]]:
    """(interface, lane) for each interface of a host; lanes count the interfaces in the same subnet."""
    lanes: dict[Any, int] = defaultdict(int)
    for intf in host.intfList():
        yield intf, lanes[intf.network]
        lanes[intf.network] += 1


def _neighbours(intf: RecordedIntf, reach: _Reach) -> list[NetlinkRequest]:
    return [netlink.neighbour(intf.index, far.ip, far.mac) for far in reach.ports if far.node is not intf.node]


def _addressing(intf: RecordedIntf, lane: int) -> Iterator[NetlinkRequest]:
    """Address of one interface, and for lanes above 0 the rule that sends answers out by the same lane."""
    yield netlink.address(intf.index, intf.name, str(intf.ip), int(intf.prefixLen))
    if lane:
        yield netlink.source_rule(str(intf.ip), _FIRST_TABLE + intf.index)


def _routing(intf: RecordedIntf, lane: int, *, before_others: bool = False) -> Iterator[NetlinkRequest]:
    """Requests for the routes of one interface (``netlink.route``).

    A host may have several interfaces (lanes) in one subnet. A socket bound to a device uses the route of that device.
    Unbound traffic takes the lowest metric, which is lane 0; answers from the address of another lane leave by that
    lane, through a table of its own.
    """
    ip, prefix, index = str(intf.ip), int(intf.prefixLen), intf.index
    way = partial(netlink.route, index, ip, prefix, transport=intf.node.transport, before_others=before_others)
    yield way(metric=_METRIC + lane, rto_min_ms=intf.rto_min_ms)
    if lane:
        yield way(metric=_METRIC, rto_min_ms=intf.rto_min_ms, table=_FIRST_TABLE + index)


def peer_route(intf: RecordedIntf, peer_ip: str) -> NetlinkRequest:
    """The request for the route to one address over ``intf``, which unbound traffic takes before lane 0.

    A socket that is bound to another device does not see it.
    """
    prefix = int(intf.prefixLen)
    transport = intf.node.transport
    return netlink.route(
        intf.index, str(intf.ip), prefix, _PEER_METRIC, intf.rto_min_ms, to=peer_ip, transport=transport
    )


def unroute_requests(peer_ips: Iterable[str]) -> list[NetlinkRequest]:
    """Requests that remove routes to single addresses."""
    return [netlink.remove_route(ip, _PEER_METRIC) for ip in peer_ips]


def own_ends(host: Any, switches: Sequence[RailSwitch]) -> list[RecordedIntf]:
    """The yard's ends of all links that fail with a host: those of the host and, in a torus, of its node."""
    ends = [far_end(intf) for intf in host.intfList()]
    nodes = [s for s in switches if "rank" in s.params and s.params["rank"] == host.params.get("rank")]
    return list(dict.fromkeys([*ends, *(intf for node in nodes for intf in node.intfList())]))


def cut_requests(ends: Iterable[RecordedIntf]) -> list[NetlinkRequest]:
    """Requests that take interfaces down; the interfaces at the other ends lose their carrier."""
    return [netlink.link_down(intf.index, intf.name) for intf in ends]


def mend_requests(host: Any, ends: Collection[RecordedIntf], switches: Sequence[RailSwitch]) -> list[NetlinkRequest]:
    """Requests to a host's namespace that bring up the interfaces ``ends`` of the host, which were taken down.

    When a link goes down, the kernel drops its routes and neighbours but keeps addresses, rules and queues.
    """
    reaches = _reaches(switches)
    requests: list[NetlinkRequest] = []
    for intf, lane in ((intf, lane) for intf, lane in _lanes(host) if intf in ends):
        reach = reaches.get(far_end(intf).node, _NOWHERE)
        requests.append(_up(intf, reach))
        requests += _routing(intf, lane) if intf.ip else ()
        requests += _neighbours(intf, reach)
    return requests


def routes(host: Any, ends: Collection[RecordedIntf]) -> Iterator[NetlinkRequest]:
    """Requests to a host's namespace that replace the routes of its interfaces ``ends``, which are up."""
    for intf, lane in _lanes(host):
        if intf in ends and intf.ip:
            yield from _routing(intf, lane)


def retuning(
    host: Any, ends: Collection[RecordedIntf], switches: Sequence[RailSwitch], patient: Collection[RecordedIntf]
) -> Iterator[NetlinkRequest]:
    """Requests to a host's namespace by which its interfaces ``ends``, which are up, take over new rates and losses.

    ``patient`` are those whose minimum retransmission time-out is new.
    """
    reaches = _reaches(switches)
    for intf, lane in ((intf, lane) for intf, lane in _lanes(host) if intf in ends):
        yield _up(intf, reaches.get(far_end(intf).node, _NOWHERE))
        if intf.ip and intf in patient:
            yield from _routing(intf, lane, before_others=True)


def yard_interfaces(links: Iterable[RecordedLink], switches: Iterable[RailSwitch]) -> set[str]:
    ends = [end for link in links for end in (link.intf1, link.intf2) if isinstance(end.node, RailSwitch)]
    return {end.name for end in ends} | {tap_name(end.index) for end in ends} | {switch.name for switch in switches}


def clear_links(yard_fd: int, names: Iterable[str]) -> None:
    """Delete the interfaces ``names`` of a yard, and the peers of veths among them, all at once.

    Returns when they are removed; raises ``MachineError`` naming any that still exist.
    """
    ours = {*names, _OVS_INTERFACE}
    with inside(yard_fd), Netlink() as kernel:
        found = [(index, name) for index, name in socket.if_nameindex() if name in ours]
        if found:
            kernel.run(netlink.set_group(index, name, LINK_GROUP) for index, name in found)
            kernel.run([netlink.delete_group(LINK_GROUP)])
        left = ours.intersection(name for _, name in socket.if_nameindex())
    if left:
        raise MachineError(f"interfaces {', '.join(sorted(left))} could not be deleted; a process may hold them open")
