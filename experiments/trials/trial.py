"""A case: one collective on one fabric, several times over, perhaps with somebody late. Pure.

A step of a case is a barrier over the front-end, a compute (which makes a rank late), and the collective. Rates, sizes
and times are those of the real system.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from controllers.circuits.rotation import Cycle
from controllers.mesh.ports import choose_ports
from controllers.policies.catalog import load_policy
from controllers.policies.policy import Policy
from railyard.errors import ConfigError
from railyard.scale import ROCE_MTU_BYTES, Scale
from railyard.size import in_words
from topos.describe import plan as describe
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.agent.config import AgentMode
from workloads.check import check
from workloads.collectives.circuits import follow_circuits
from workloads.program import Collective, Compute, Dimension, Group, Operation, Program
from workloads.schedule import Schedule
from workloads.stragglers.gaps import Fixed
from workloads.stragglers.injection import Injection, inject

FabricKind = Literal["electrical", "ocs"]
OCS_PORTS = 2
"""On an OCS a rank sends on one port and receives on the other, unless a round pairs the ranks."""
MODE_OF_FABRIC: dict[FabricKind, AgentMode] = {"electrical": "native", "ocs": "on-demand"}
FOLLOW = "follow"
POLICY_OF_FABRIC: dict[FabricKind, str] = {"electrical": "static", "ocs": FOLLOW}
WORLD, SYNC = "world", "sync"
SYNC_BYTES = 4
SHORTEST_COMPUTE_S = 0.005
"""Between the barrier and the collective, in wall-clock seconds: everybody has left the barrier by then."""
FRONT_END_MBPS = 1000.0


@dataclass(frozen=True)
class TrialFabric:
    """Where a case runs. ``port_gbps`` of one rail port, ``scale_up_gbps`` of one GPU inside its server."""

    kind: FabricKind = "electrical"
    ranks: int = 8
    gpus_per_server: int = 1
    ports: int = 1
    port_gbps: float = 0.05
    scale_up_gbps: float = 0.1
    mtu: int = ROCE_MTU_BYTES
    slow: str = ""
    """Ranks whose links are slower, as ``topos.rails`` takes them (``3:0.5``)."""
    circuits: int = OCS_PORTS
    """Ports of a rank on an OCS."""
    mesh: str = ""
    """The photonic mesh that the OCS is, as ``topos.rails`` takes it (``5x5``)."""

    @property
    def ports_per_rank(self) -> int:
        """Rail ports of a rank."""
        return self.circuits if self.kind == "ocs" else self.ports

    def options(self, scale: Scale) -> dict[str, Any]:
        """Keyword arguments of ``topos.rails.RailTopo``."""
        if self.ranks % self.gpus_per_server:
            raise ConfigError(
                f"{self.ranks} ranks do not fill servers of {self.gpus_per_server} GPUs; a multiple does", key="ranks"
            )
        options: dict[str, Any] = {
            "servers": self.ranks // self.gpus_per_server,
            "gpus": self.gpus_per_server,
            "ports": self.ports_per_rank,
            "rate_mbps": scale.emulated_mbps(self.port_gbps),
            "fabric": self.kind,
            "mtu": self.mtu,
            "front_end": True,
            "front_end_mbps": FRONT_END_MBPS,
        }
        if self.gpus_per_server > 1:
            options |= {"scale_up": True, "scale_up_mbps": scale.emulated_mbps(self.scale_up_gbps)}
        if self.mesh and self.kind == "ocs":
            options |= {"mesh": self.mesh, "choose_ports": choose_ports}
        return options | ({"slow": self.slow} if self.slow else {})

    def topology(self, scale: Scale) -> RailTopo:
        """The topology."""
        return RailTopo(**self.options(scale))

    def plan(self, scale: Scale) -> FabricPlan:
        """The fabric as data, without bringing it up."""
        return describe(self.topology(scale))


@dataclass(frozen=True)
class Trial:
    """One row of a table.

    ``late_rank`` is the rank that ``injection`` makes late; the schedule may count on another one (a wrong
    prediction). ``compute_s`` is what every rank computes before the collective. ``study`` says what the case is
    compared with; ``labels`` are more columns of its row. ``steps`` says how often it is measured (0: as all others).

    ``policy`` hosts its circuits (empty: the one of its fabric) and is told the ``cycle`` in which they take turns;
    ``dimension`` is that of the group, for policies that treat dimensions differently. ``ideal_s``: what the collective
    takes at line rate, where its circuits change meanwhile (0: its bytes say it).
    """

    schedule: Schedule
    bytes: int
    fabric: TrialFabric
    reconfiguration_delay_s: float = 0.0
    compute_s: float = 0.0
    injection: Injection | None = None
    late_rank: int | None = None
    straggler_delay_s: float = 0.0
    study: str = ""
    steps: int = 0
    labels: tuple[tuple[str, Any], ...] = ()
    policy: str = ""
    cycle: Cycle | None = None
    dimension: Dimension = "world"
    ideal_s: float = 0.0

    @property
    def name(self) -> str:
        """In words and file names, without the delays."""
        what = f"{self.schedule.algorithm}-{self.schedule.kind.replace('_', '-')}"
        return f"{what}-{self.schedule.n}-{in_words(self.bytes)}-{self.fabric.kind}"

    @property
    def operation(self) -> str:
        """What its collective is called."""
        return self.schedule.kind.replace("_", "-")

    @property
    def background_share(self) -> float:
        """Share of the late rank's port rate that other traffic takes."""
        return self.injection.background_share if self.injection is not None else 0.0

    @property
    def slow_rank(self) -> int | None:
        """The rank that the injection befalls: not the one expected, if it was expected wrongly."""
        if self.injection is None or self.late_rank is None:
            return self.late_rank
        return self.injection.late_rank(self.schedule.n, self.late_rank)

    @property
    def varies(self) -> bool:
        """Whether its steps are meant to differ, so that their mean counts and not their median."""
        found = self.injection
        return found is not None and (found.persistence < 1 or not isinstance(found.gaps, Fixed | None))

    @property
    def predicted_fabric(self) -> TrialFabric:
        """The fabric as the model sees it: what other traffic takes of a port is not there."""
        if not self.background_share:
            return self.fabric
        return replace(self.fabric, slow=f"{self.slow_rank}:{1 - self.background_share:g}")

    @property
    def mode(self) -> AgentMode:
        """How its agents treat the fabric."""
        return MODE_OF_FABRIC[self.fabric.kind]

    @property
    def policy_name(self) -> str:
        """The policy that its fabric's controller hosts."""
        return self.policy or POLICY_OF_FABRIC[self.fabric.kind]

    def new_policy(self, plan: FabricPlan) -> Policy | None:
        """The policy as the model plays it (None: no control plane)."""
        return None if self.mode == "native" else load_policy(self.policy_name, plan)

    def program(self, scale: Scale, steps: int, seed: int) -> Program:
        """What every rank does in a step; ``ConfigError`` if it cannot run, before a packet is sent."""
        plan, n = self.schedule, self.schedule.n
        if n > self.fabric.ranks:
            raise ConfigError(
                f"{plan.algorithm} is made for {n} ranks and the fabric has {self.fabric.ranks}; ask for --ranks {n}",
                key="ranks",
            )
        members = tuple(range(n))
        groups = {
            WORLD: Group(WORLD, self.dimension, members),
            SYNC: Group(SYNC, "world", members, domain="front-end"),
        }
        compute_s = max(self.compute_s, scale.real_s(SHORTEST_COMPUTE_S))
        operations: tuple[Operation, ...] = (
            Collective(0, "barrier", "all_reduce", SYNC, _real_bytes(SYNC_BYTES, scale)),
            Compute(1, "compute", compute_s, deps=(0,)),
            Collective(2, self.operation, plan.kind, WORLD, self.bytes, (1,), plan.algorithm),
        )
        idle: tuple[Operation, ...] = ()
        by_rank = tuple(operations if rank < n else idle for rank in range(self.fabric.ranks))
        program = Program(self.name, by_rank, groups, {plan.algorithm: plan})
        if self.injection is not None and self.late_rank is not None:
            program = inject(program, self.injection, self.late_rank, steps, seed)
        if self.fabric.kind == "ocs" and self.policy_name == FOLLOW:
            program = follow_circuits(program)
        check(program)
        return program


def _real_bytes(emulated: int, scale: Scale) -> int:
    """Bytes that are ``emulated`` on the emulated wire."""
    return max(1, round(scale.real_bytes(emulated)))
