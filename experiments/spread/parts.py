"""The part of a fabric that each machine makes, and what is sent of it: topology, nodes, tunnels, counters. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mininet.topo import Topo

from measure.live.counters import LinkCounters
from measure.live.delivery import PortCounters
from railyard.errors import MachineError
from railyard.timeline import Event
from topos.kernel.links import Part
from topos.kernel.netlink import Tunnel
from topos.placement import Placed

UDP_PORT = 4789
"""Port of the outer packets of VXLAN (RFC 7348)."""
_NUMBERS = 1 << 24


def first_number(run: str, attempt: int, count: int) -> int:
    """The first of ``count`` VXLAN network identifiers in a row, drawn from the id of a run and an attempt."""
    drawn = int.from_bytes(hashlib.sha256(f"{run} {attempt}".encode()).digest()[:4], "big")
    return 1 + drawn % (_NUMBERS - 1 - count)


def parts(placed: Placed, addresses: Mapping[str, str], first: int) -> dict[str, Part]:
    """The part of each machine; its ``addresses`` are those on the network between the machines.

    Cut link ``i`` is the tunnel with identifier ``first + i`` on both of its machines.
    """
    tunnels: dict[str, dict[str, Tunnel]] = {machine: {} for machine in placed.machines}
    for cut in placed.cuts:
        number, here, there = first + cut.number, addresses[cut.host_machine], addresses[cut.switch_machine]
        tunnels[cut.host_machine][cut.interface] = Tunnel(number, here, there, UDP_PORT)
        tunnels[cut.switch_machine][f"{cut.switch}-eth{cut.port}"] = Tunnel(number, there, here, UDP_PORT)
    return {
        machine: Part(frozenset((*placed.hosts_on(machine), *placed.switches_on(machine))), tunnels[machine])
        for machine in placed.machines
    }


def part_to_plain(part: Part) -> dict[str, Any]:
    return {
        "nodes": sorted(part.nodes or ()),
        "tunnels": {interface: asdict(tunnel) for interface, tunnel in part.tunnels.items()},
    }


def topology_to_plain(topo: Topo) -> dict[str, Any]:
    """The nodes and links of a topology with their options, in order.

    ``MachineError`` for options that are no plain data, such as classes of nodes.
    """
    nodes = [[name, dict(topo.nodeInfo(name))] for name in topo.nodes()]
    links = [dict(info) for *_, info in topo.links(withInfo=True)]
    for name, options in (*nodes, *((f"{link['node1']}-{link['node2']}", link) for link in links)):
        for key, value in options.items():
            if not isinstance(value, str | int | float | bool | dict | None):
                raise MachineError(f"option {key} of {name} is no plain data, so no other machine can make it")
    return {"nodes": nodes, "links": links}


def topology_from_plain(plain: Mapping[str, Any]) -> Topo:
    topo = Topo()
    for name, options in plain["nodes"]:
        topo.addNode(name, **options)
    for options in plain["links"]:
        ends = {"node1", "node2"}
        topo.addLink(options["node1"], options["node2"], **{k: v for k, v in options.items() if k not in ends})
    return topo


def read_to_plain(events: Sequence[Event], ports: PortCounters) -> dict[str, Any]:
    """A reading of counters: ``events`` as lines, ``ports`` as [rank, lane, counters]."""
    return {
        "events": [event.to_line() for event in events],
        "ports": [[*port, asdict(counters)] for port, counters in ports.items()],
    }


def read_from_plain(plain: Mapping[str, Any]) -> tuple[list[Event], PortCounters]:
    ports = {(rank, lane): LinkCounters(**counters) for rank, lane, counters in plain["ports"]}
    return [*map(Event.from_line, plain["events"])], ports
