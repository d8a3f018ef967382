"""Derives the plan of a fabric from its Mininet topology."""

from __future__ import annotations

from typing import Any

from mininet.topo import Topo

from railyard.errors import ConfigError
from topos.fabric import FabricTopo
from topos.options import seconds
from topos.plan import FabricPlan, HostPort, SwitchLink, SwitchPlan


def plan(topo: Topo) -> FabricPlan:
    """The plan of the fabric that ``topo`` describes; the same topology always gives the same plan.

    Raises ``ConfigError`` for a topology that is not a ``FabricTopo`` (``RailTopo``, ``RackTopo``, ``EdgeTopo``): other
    topologies can be emulated, but their hosts are not ranks.
    """
    if not isinstance(topo, FabricTopo):
        raise ConfigError(f"{type(topo).__name__} has no plan; use a RailTopo, a RackTopo or an EdgeTopo", key="topo")
    ports: dict[str, list[HostPort]] = {name: [] for name in topo.switches()}
    links = []
    for _, _, link in topo.links(withInfo=True):
        if topo.isSwitch(link["node1"]):
            (a, a_port), (b, b_port) = ((link[f"node{end}"], link[f"port{end}"]) for end in (1, 2))
            links.append(SwitchLink(a, a_port, b, b_port, rate_mbps=link["bw"], **_trouble(link)))
        else:
            ports[link["node2"]].append(_host_port(topo, link))
    switches = [_switch(topo, name, plugged) for name, plugged in ports.items()]
    return FabricPlan(
        fabric=topo.fabric,
        servers=topo.servers,
        gpus_per_server=topo.gpus,
        ports_per_gpu=topo.ports_per_gpu,
        mtu=topo.mtu,
        switches=tuple(sorted(switches, key=lambda switch: switch.dpid)),
        links=tuple(links),
        rack=topo.rack,
        edge=topo.edge,
        spare_servers=topo.spare_servers,
        overhead=topo.overhead,
        burst=topo.burst,
    )


def pinned(topo: Topo) -> dict[str, str]:
    """The machine of each node of ``topo`` that has Mininet's option ``server`` of its cluster edition."""
    return {node: str(info["server"]) for node in topo.nodes() if "server" in (info := topo.nodeInfo(node))}


def _host_port(topo: FabricTopo, link: dict[str, Any]) -> HostPort:
    return HostPort(
        number=link["port2"],
        host=link["node1"],
        rank=topo.nodeInfo(link["node1"])["rank"],
        lane=link["lane"],
        interface=link["intfName1"],
        mac=link["addr1"],
        ip=link["params1"]["ip"].split("/")[0],
        rate_mbps=link["bw"],
        **_trouble(link),
    )


def _trouble(link: dict[str, Any]) -> dict[str, float]:
    return {"delay_s": seconds("delay", link.get("delay")), "loss_percent": float(link.get("loss") or 0.0)}


def _switch(topo: FabricTopo, name: str, ports: list[HostPort]) -> SwitchPlan:
    info = topo.nodeInfo(name)
    return SwitchPlan(
        name=name,
        dpid=int(info["dpid"], 16),
        kind=info["kind"],
        network=info["network"],
        ports=tuple(sorted(ports, key=lambda port: port.number)),
        mesh=topo.mesh if info["kind"] == "ocs" and info["network"] == "rail" else None,
        controlled=info.get("controlled", True),
    )
