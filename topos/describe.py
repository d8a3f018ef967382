"""Derives the plan of a fabric from its Mininet topology."""

from __future__ import annotations

from typing import Any

from mininet.topo import Topo

from railyard.errors import ConfigError
from topos.fabric import FabricTopo
from topos.plan import FabricPlan, HostPort, SwitchLink, SwitchPlan


def plan(topo: Topo) -> FabricPlan:
    """The plan of the fabric that ``topo`` describes; the same topology always gives the same plan.

    Raises ``ConfigError`` for a topology that is not a ``FabricTopo`` (``RailTopo``, ``RackTopo``): other topologies
    can be emulated, but their hosts are not ranks.
    """
    if not isinstance(topo, FabricTopo):
        raise ConfigError(f"{type(topo).__name__} has no plan; use a RailTopo or a RackTopo", key="topo")
    ports: dict[str, list[HostPort]] = {name: [] for name in topo.switches()}
    links = []
    for _, _, link in topo.links(withInfo=True):
        if topo.isSwitch(link["node1"]):
            links.append(_switch_link(link))
        else:
            ports[link["node2"]].append(_host_port(topo, link))
    return FabricPlan(
        fabric=topo.fabric,
        servers=topo.servers,
        gpus_per_server=topo.gpus,
        ports_per_gpu=topo.ports_per_gpu,
        mtu=topo.mtu,
        switches=tuple(_switch(topo, name, ports[name]) for name in sorted(ports, key=lambda n: _dpid(topo, n))),
        links=tuple(links),
        rack=topo.rack,
    )


def _switch_link(link: dict[str, Any]) -> SwitchLink:
    return SwitchLink(link["node1"], link["port1"], link["node2"], link["port2"], link["bw"])


def _host_port(topo: FabricTopo, link: dict[str, Any]) -> HostPort:
    host = link["node1"]
    return HostPort(
        number=link["port2"],
        host=host,
        rank=topo.nodeInfo(host)["rank"],
        lane=link["lane"],
        interface=link["intfName1"],
        mac=link["addr1"],
        ip=link["params1"]["ip"].split("/")[0],
        rate_mbps=link["bw"],
    )


def _dpid(topo: FabricTopo, name: str) -> int:
    return int(topo.nodeInfo(name)["dpid"], 16)


def _switch(topo: FabricTopo, name: str, ports: list[HostPort]) -> SwitchPlan:
    info = topo.nodeInfo(name)
    return SwitchPlan(
        name=name,
        dpid=_dpid(topo, name),
        kind=info["kind"],
        network=info["network"],
        ports=tuple(sorted(ports, key=lambda port: port.number)),
        mesh=topo.mesh if info["kind"] == "ocs" and info["network"] == "rail" else None,
    )
