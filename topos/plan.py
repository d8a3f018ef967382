"""The fabric as data: what every room needs to know of it, without Mininet, root or a kernel.

A plan is read off a topology (``topos.rails``), written to JSON for the controller and the agents, and
never changes during a run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

SwitchKind = Literal["ocs", "electrical"]
Network = Literal["rail", "scale-up", "front-end"]


@dataclass(frozen=True)
class HostPort:
    """One port of a host and the switch port it is plugged into.

    ``rank`` is the host's rank, ``lane`` the number of the port among the host's ports on the same
    network (0, 1, ...), ``number`` the OpenFlow port on the switch.
    """

    number: int
    host: str
    rank: int
    lane: int
    interface: str
    mac: str
    ip: str
    rate_mbps: float


@dataclass(frozen=True)
class SwitchPlan:
    """One switch: its name, OpenFlow datapath id, kind, network and ports."""

    name: str
    dpid: int
    kind: SwitchKind
    network: Network
    ports: tuple[HostPort, ...]

    def port(self, rank: int, lane: int) -> HostPort:
        """The port that lane ``lane`` of ``rank`` is plugged into; ``KeyError`` if it is not on this switch."""
        for port in self.ports:
            if port.rank == rank and port.lane == lane:
                return port
        raise KeyError((rank, lane))


@dataclass(frozen=True)
class FabricPlan:
    """The whole fabric."""

    fabric: str
    servers: int
    gpus_per_server: int
    ports_per_gpu: int
    mtu: int
    switches: tuple[SwitchPlan, ...]

    @property
    def ranks(self) -> int:
        """Number of GPUs, each one host."""
        return self.servers * self.gpus_per_server

    def rail_of(self, rank: int) -> SwitchPlan:
        """The rail switch of ``rank`` (rail r joins local rank r of every server)."""
        local = rank % self.gpus_per_server
        return [s for s in self.switches if s.network == "rail"][local]

    def network(self, network: Network) -> tuple[SwitchPlan, ...]:
        """All switches of one network, in order."""
        return tuple(s for s in self.switches if s.network == network)

    def host_ports(self, rank: int) -> tuple[tuple[SwitchPlan, HostPort], ...]:
        """Every port of one host, with its switch."""
        return tuple((s, p) for s in self.switches for p in s.ports if p.rank == rank)

    def to_json(self) -> dict[str, Any]:
        """Plain data for ``json.dump``."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> FabricPlan:
        """The plan that ``to_json`` wrote."""
        switches = tuple(
            SwitchPlan(**{**s, "ports": tuple(HostPort(**p) for p in s["ports"])}) for s in data["switches"]
        )
        return FabricPlan(**{**data, "switches": switches})
