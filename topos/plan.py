"""The plan of a fabric: hosts, switches, ports and links as data, without Mininet, root or a kernel.

A plan is derived from a topology (``topos.describe``), passed to the controller as JSON and to the agents as it is, and
never changes during a run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from railyard.scale import goodput_share
from topos.edge_plan import EdgePlan

SwitchKind = Literal["ocs", "electrical"]
Network = Literal["rail", "scale-up", "front-end", "access", "control"]
"""``rail`` is the network whose circuits or routes a controller changes; on an edge network it is the trunk alone.
``access`` are the switches of the regions, ``control`` is the switch between the root and the control plane."""


@dataclass(frozen=True)
class HostPort:
    """One port of a host and the switch port that it is connected to.

    ``rank`` is the host's rank, ``lane`` the number of the port among the host's ports on the same
    network (0, 1, ...), ``number`` the OpenFlow port on the switch. ``delay_s`` is the propagation delay of the link,
    one way, and ``loss_percent`` the share of the packets that it loses.
    """

    number: int
    host: str
    rank: int
    lane: int
    interface: str
    mac: str
    ip: str
    rate_mbps: float
    delay_s: float = 0.0
    loss_percent: float = 0.0


@dataclass(frozen=True)
class MeshPlan:
    """The programmable photonic mesh of ``width`` x ``height`` hexagons inside an optical switch (``topos.mesh``).

    ``ports[i]`` is the mesh port behind the i-th port of the switch. ``gate_latency_us`` is the latency of one gate in
    emulated microseconds: the latency in the real system times the time scale. ``most_gates`` is the most gates that a
    path may cross before its light is lost; None for any number.
    """

    width: int
    height: int
    ports: tuple[int, ...]
    gate_latency_us: float = 0.0
    most_gates: int | None = None


@dataclass(frozen=True)
class SwitchPlan:
    """One switch: its name, OpenFlow datapath id, kind, network and ports.

    ``mesh`` is the photonic mesh inside an optical switch; None where the switch can hold any matching. A switch that
    is not ``controlled`` learns addresses and forwards by itself, without a controller.
    """

    name: str
    dpid: int
    kind: SwitchKind
    network: Network
    ports: tuple[HostPort, ...]
    mesh: MeshPlan | None = None
    controlled: bool = True

    def port(self, rank: int, lane: int) -> HostPort:
        """The port that lane ``lane`` of ``rank`` is connected to; ``KeyError`` if it is on another switch."""
        for port in self.ports:
            if port.rank == rank and port.lane == lane:
                return port
        raise KeyError((rank, lane))


@dataclass(frozen=True)
class SwitchLink:
    """A link between two switches: OpenFlow port ``a_port`` of ``a`` to ``b_port`` of ``b``, full duplex.

    ``delay_s`` is its propagation delay, one way, and ``loss_percent`` the share of the packets that it loses.
    """

    a: str
    a_port: int
    b: str
    b_port: int
    rate_mbps: float
    delay_s: float = 0.0
    loss_percent: float = 0.0


@dataclass(frozen=True)
class Tenant:
    """A tenant of a rack: a name and the chips of its slice, in ring order."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class RackPlan:
    """The geometry of racks of accelerators (``topos.torus``): extents in chips, always three.

    ``racks`` tori follow one another in the order of ranks. ``spares`` are the chips kept free to replace failed ones,
    in order of preference.
    """

    torus: tuple[int, int, int]
    server: tuple[int, int, int]
    racks: int
    spares: tuple[int, ...]
    tenants: tuple[Tenant, ...] = ()

    def tenant(self, name: str) -> Tenant:
        """The tenant ``name``; ``KeyError`` if there is none."""
        return {tenant.name: tenant for tenant in self.tenants}[name]


@dataclass(frozen=True)
class FabricPlan:
    """The plan of a whole fabric.

    ``links`` are those between switches, of which rails have none. ``rack`` describes a rack (``topos.racks``) and
    ``edge`` an edge network (``topos.edge``). The network "rail" carries the scale-out traffic, on rails and in racks
    alike. The last ``spare_servers`` of rails are kept free to replace failed ones. Rates count
    ``overhead`` bytes for each packet beside its headers, and hosts' token buckets hold at least ``burst`` bytes.
    """

    fabric: str
    servers: int
    gpus_per_server: int
    ports_per_gpu: int
    mtu: int
    switches: tuple[SwitchPlan, ...]
    links: tuple[SwitchLink, ...] = ()
    rack: RackPlan | None = None
    edge: EdgePlan | None = None
    spare_servers: int = 0
    overhead: int = 0
    burst: int = 0

    @property
    def ranks(self) -> int:
        return self.servers * self.gpus_per_server

    @property
    def spares(self) -> tuple[int, ...]:
        """The ranks that are kept free to replace failed ones, in order of preference."""
        if self.rack is not None:
            return self.rack.spares
        return tuple(range((self.servers - self.spare_servers) * self.gpus_per_server, self.ranks))

    def on_server(self, server: int) -> range:
        """The ranks of a server, by local rank."""
        return range(server * self.gpus_per_server, (server + 1) * self.gpus_per_server)

    @property
    def goodput_share(self) -> float:
        """TCP payload per byte that links count, in full packets (``railyard.scale.goodput_share``)."""
        return goodput_share(self.mtu, self.overhead)

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        names = {port.rank: port.host for switch in self.switches for port in switch.ports}
        return tuple(names[rank] for rank in range(self.ranks))

    @property
    def controlled(self) -> FabricPlan:
        """The plan as a controller gets it: the switches that it controls, which may be none.

        A port of an edge network's trunk that leads to a region has the region's leaf server as its host.
        """
        if all(switch.controlled for switch in self.switches):
            return self
        switches = tuple(self._with_leaves(switch) for switch in self.switches if switch.controlled)
        return replace(self, switches=switches, links=())

    def _with_leaves(self, switch: SwitchPlan) -> SwitchPlan:
        if self.edge is None or switch.network != "rail":
            return switch
        leaves = [self.host_ports(self.edge.leaf_rank(number))[0][1] for number in range(len(self.edge.regions))]
        numbers = [region.trunk_port for region in self.edge.regions]
        mbps = self.edge.trunk_mbps
        ports = [replace(leaf, number=number, rate_mbps=mbps) for leaf, number in zip(leaves, numbers, strict=True)]
        return replace(switch, ports=(*switch.ports, *ports))

    @property
    def delayed(self) -> bool:
        return any(link.delay_s for link in self._every_link)

    @property
    def lossy(self) -> bool:
        """Whether a link loses packets on purpose."""
        return any(link.loss_percent for link in self._every_link)

    @property
    def _every_link(self) -> tuple[HostPort | SwitchLink, ...]:
        return (*(port for switch in self.switches for port in switch.ports), *self.links)

    def rail_of(self, rank: int) -> SwitchPlan:
        """The switch that carries the scale-out traffic of ``rank``; on rails, the rail of its local rank."""
        return self._rails[self.rail_index(rank)]

    def rail_index(self, rank: int) -> int:
        """Index of ``rail_of(rank)`` in ``network("rail")``; ``KeyError`` for a rank that the fabric does not have."""
        return self._rail_of_rank[rank]

    @cached_property
    def _rails(self) -> tuple[SwitchPlan, ...]:
        return self.network("rail")

    @cached_property
    def _rail_of_rank(self) -> dict[int, int]:
        return {port.rank: index for index, rail in enumerate(self._rails) for port in rail.ports}

    def network(self, network: Network) -> tuple[SwitchPlan, ...]:
        """All switches of one network, in the order of their datapath ids."""
        return tuple(s for s in self.switches if s.network == network)

    def rail_ports(self, rank: int) -> tuple[HostPort, ...]:
        return tuple(port for switch, port in self.host_ports(rank) if switch.network == "rail")

    def host_ports(self, rank: int) -> tuple[tuple[SwitchPlan, HostPort], ...]:
        return tuple((s, p) for s in self.switches for p in s.ports if p.rank == rank)
