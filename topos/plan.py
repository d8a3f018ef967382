"""The plan of a fabric: hosts, switches, ports and links as data, without Mininet, root or a kernel.

A plan is derived from a topology (``topos.describe``), passed to the controller as JSON and to the agents as it is, and
never changes during a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

SwitchKind = Literal["ocs", "electrical"]
Network = Literal["rail", "scale-up", "front-end"]


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

    ``ports[i]`` is the mesh port behind the i-th port of the switch. ``cell_latency_us`` is the latency of one cell in
    emulated microseconds: the latency in the real system times the time scale.
    """

    width: int
    height: int
    ports: tuple[int, ...]
    cell_latency_us: float = 0.0


@dataclass(frozen=True)
class SwitchPlan:
    """One switch: its name, OpenFlow datapath id, kind, network and ports.

    ``mesh`` is the photonic mesh inside an optical switch; None where the switch can hold any matching.
    """

    name: str
    dpid: int
    kind: SwitchKind
    network: Network
    ports: tuple[HostPort, ...]
    mesh: MeshPlan | None = None

    def port(self, rank: int, lane: int) -> HostPort:
        """The port that lane ``lane`` of ``rank`` is connected to; ``KeyError`` if it is on another switch."""
        for port in self.ports:
            if port.rank == rank and port.lane == lane:
                return port
        raise KeyError((rank, lane))


@dataclass(frozen=True)
class SwitchLink:
    """A link between two electrical switches: OpenFlow port ``a_port`` of ``a`` to ``b_port`` of ``b``, full duplex.

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

    ``links`` and ``rack`` describe a rack (``topos.racks``) and are empty on rails. The network "rail" carries the
    scale-out traffic, on rails and in racks alike.
    """

    fabric: str
    servers: int
    gpus_per_server: int
    ports_per_gpu: int
    mtu: int
    switches: tuple[SwitchPlan, ...]
    links: tuple[SwitchLink, ...] = ()
    rack: RackPlan | None = None

    @property
    def ranks(self) -> int:
        """Number of GPUs, each one host."""
        return self.servers * self.gpus_per_server

    @property
    def delayed(self) -> bool:
        """Whether a link has a propagation delay."""
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
        """The ports of ``rank`` on the network "rail", by lane."""
        return tuple(port for switch, port in self.host_ports(rank) if switch.network == "rail")

    def host_ports(self, rank: int) -> tuple[tuple[SwitchPlan, HostPort], ...]:
        """Every port of the host of ``rank``, with its switch."""
        return tuple((s, p) for s in self.switches for p in s.ports if p.rank == rank)
