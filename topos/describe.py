"""Reading the plan off a topology."""

from __future__ import annotations

from typing import Any

from railyard.errors import ConfigError
from topos.plan import FabricPlan, HostPort, SwitchPlan
from topos.rails import RailTopo


def plan(topo: RailTopo) -> FabricPlan:
    """The fabric that ``topo`` wires, as data; the same topology always gives the same plan.

    Raises ``ConfigError`` for a topology that is not a ``RailTopo``: other topologies run, but their hosts
    are no ranks.
    """
    if not isinstance(topo, RailTopo):
        raise ConfigError(f"{type(topo).__name__} has no plan; a plan is read off a RailTopo", key="topo")
    ports: dict[str, list[HostPort]] = {name: [] for name in topo.switches()}
    for host, switch, link in topo.links(withInfo=True):
        ports[switch].append(_host_port(topo, host, link))
    return FabricPlan(
        fabric=topo.fabric,
        servers=topo.servers,
        gpus_per_server=topo.gpus,
        ports_per_gpu=topo.ports_per_gpu,
        mtu=topo.mtu,
        switches=tuple(_switch(topo, name, ports[name]) for name in sorted(ports, key=lambda n: _dpid(topo, n))),
    )


def _host_port(topo: RailTopo, host: str, link: dict[str, Any]) -> HostPort:
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


def _dpid(topo: RailTopo, name: str) -> int:
    return int(topo.nodeInfo(name)["dpid"], 16)


def _switch(topo: RailTopo, name: str, ports: list[HostPort]) -> SwitchPlan:
    info = topo.nodeInfo(name)
    return SwitchPlan(
        name=name,
        dpid=_dpid(topo, name),
        kind=info["kind"],
        network=info["network"],
        ports=tuple(sorted(ports, key=lambda port: port.number)),
    )
