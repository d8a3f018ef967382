"""Trials: repetitions of one collective on one fabric, optionally with a late rank.

A step of a trial is a barrier over the front-end network, a compute operation (which makes a rank late), and the
collective. Rates, sizes and times are those of the real system.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from controllers.circuits.rotation import Cycle
from controllers.mesh.ports import choose_ports
from experiments.job_point import Fabric, JobPoint
from measure.metrics.collective import CollectiveTimes, collective_times, joined
from railyard.errors import ConfigError
from railyard.scale import ROCE_MTU_BYTES, Scale, goodput_bytes_per_s
from railyard.timeline import Event
from topos.describe import plan as describe
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.agent.config import AgentMode
from workloads.check import check
from workloads.collectives.catalog import schedule
from workloads.collectives.circuits import circuit_uses, follow_circuits
from workloads.program import Collective, Compute, Dimension, Group, Operation, Program
from workloads.schedule import Schedule
from workloads.stragglers.injection import Injection, inject

FabricKind = Literal["electrical", "ocs"]
CircuitKind = Literal["on-demand", "provisioned"]
"""Circuits that a round asks for when it begins, or that are set up while the round before it is sent."""
OCS_PORTS = 2
"""Ports of a rank on an OCS: one sends and the other receives, unless a round pairs the ranks."""
MODE_OF_FABRIC: dict[FabricKind, AgentMode] = {"electrical": "native", "ocs": "on-demand"}
FOLLOW = "follow"
POLICY_OF_FABRIC: dict[FabricKind, str] = {"electrical": "static", "ocs": FOLLOW}
WORLD, SYNC = "world", "sync"
SYNC_BYTES = 4
"""Bytes of the barrier on the emulated wire."""
SHORTEST_COMPUTE_S = 0.005
"""Wall-clock seconds between barrier and collective, in which all ranks leave the barrier."""
FRONT_END_MBPS = 1000.0


@dataclass(frozen=True)
class TrialFabric:
    """The fabric of a trial; ``port_gbps`` is the rate of a rail port, ``scale_up_gbps`` of a GPU inside its server."""

    kind: FabricKind = "electrical"
    ranks: int = 8
    gpus_per_server: int = 1
    ports: int = 1
    port_gbps: float = 0.05
    scale_up_gbps: float = 0.1
    mtu: int = ROCE_MTU_BYTES
    overhead: int = 0
    slow: str = ""
    """Ranks with slower links, in the notation of ``topos.rails`` (``3:0.5``: rank 3 at half the rate)."""
    circuits: int = OCS_PORTS
    """Number of ports of a rank on an OCS."""
    mesh: str = ""
    """Size of the photonic mesh that serves as OCS, in the notation of ``topos.rails`` (``5x5``); empty for none."""
    gate_latency_us: float = 0.0
    most_gates: int | None = None
    """The latency of a gate of the mesh on the emulated wire, and the most gates that a path may cross."""
    link_delay_ms: float = 0.0
    """The delay of each link of the rails when they come up."""

    @property
    def ports_per_rank(self) -> int:
        return self.circuits if self.kind == "ocs" else self.ports

    def options(self, scale: Scale) -> dict[str, Any]:
        """Keyword arguments of ``topos.rails.RailTopo``; ``ConfigError`` if the ranks do not fill whole servers."""
        if self.ranks % self.gpus_per_server:
            raise ConfigError(
                f"{self.ranks} ranks do not fill servers of {self.gpus_per_server} GPUs; use a multiple", key="ranks"
            )
        options: dict[str, Any] = {
            "servers": self.ranks // self.gpus_per_server,
            "gpus": self.gpus_per_server,
            "ports": self.ports_per_rank,
            "rate_mbps": scale.emulated_mbps(self.port_gbps),
            "fabric": self.kind,
            "mtu": self.mtu,
            "overhead": self.overhead,
            "front_end": True,
            "front_end_mbps": FRONT_END_MBPS,
        }
        if self.gpus_per_server > 1:
            options |= {"scale_up": True, "scale_up_mbps": scale.emulated_mbps(self.scale_up_gbps)}
        if self.mesh and self.kind == "ocs":
            options |= {"mesh": self.mesh, "choose_ports": choose_ports, "most_gates": self.most_gates}
            options |= {"gate_latency_us": self.gate_latency_us, "delay_ms": self.link_delay_ms}
        return options | ({"slow": self.slow} if self.slow else {})

    def bytes_per_s(self, gbps: float | None = None) -> float:
        """Payload in bytes per second, in full packets, of a rail port or of a link of ``gbps``."""
        return goodput_bytes_per_s(self.port_gbps if gbps is None else gbps, self.mtu, self.overhead)

    def topology(self, scale: Scale) -> RailTopo:
        return RailTopo(**self.options(scale))

    def plan(self, scale: Scale) -> FabricPlan:
        return _plan(self, scale)


@lru_cache(maxsize=8)
def _plan(fabric: TrialFabric, scale: Scale) -> FabricPlan:
    """The plan of a fabric, made once for all trials on it."""
    return describe(fabric.topology(scale))


class TrialPart(NamedTuple):
    """One collective of a step of a trial."""

    group: Group
    name: str
    schedule: Schedule


@dataclass(frozen=True)
class Trial:
    """One collective on one fabric, which gives one row of a table.

    ``then`` are the schedules of further collectives of ``bytes`` that follow it in a step (buckets). With several
    ``groups`` (tensor parallel) each runs it, and then the ranks of one place in all groups a ring all-reduce (data
    parallel); the late rank is in the first group.

    ``late_rank`` is the rank that ``injection`` makes late; the schedule may expect another one (a wrong prediction).
    ``compute_s`` is the compute time of every rank before the collective. ``study`` groups trials that are compared,
    ``tags`` are further columns of the row. ``steps`` is the number of measured steps (0: that of the plan).

    ``policy`` controls the circuits (empty: the default of the fabric), in the slots of ``cycle`` if there is one;
    ``dimension`` is that of the group, for policies that treat dimensions differently. ``ideal_s`` is the time of the
    collective at line rate if its circuits change during it (0: computed from its bytes).
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
    tags: tuple[tuple[str, Any], ...] = ()
    policy: str = ""
    cycle: Cycle | None = None
    dimension: Dimension = "world"
    ideal_s: float = 0.0
    then: tuple[Schedule, ...] = ()
    groups: int = 1

    @property
    def name(self) -> str:
        """The name of the trial in titles and file names; it leaves delays out."""
        what = f"{self.schedule.algorithm}-{self.schedule.kind.replace('_', '-')}"
        ahead = "-provisioned" if self.schedule.provisioned else ""
        return f"{what}-{self.schedule.n}-{self.bytes}-{self.fabric.kind}{ahead}"

    @property
    def circuits(self) -> str:
        """How circuits meet the rounds: static, in-slots or a ``CircuitKind``; empty on packet switches."""
        if self.cycle is not None:
            return "in-slots"
        if self.fabric.kind == "electrical":
            return ""
        if self.schedule.provisioned:
            return "provisioned"
        return "on-demand" if self.policy_name == FOLLOW and _changes(self.schedule) else "static"

    def with_circuits(self, kinds: Collection[CircuitKind]) -> Iterator[Trial]:
        """The trial with circuits of each of ``kinds``, a rank always having the same bandwidth; once if none changes.

        Provisioned circuits take turns on two ports of half the rate; on demand all of it follows one round.
        """
        follows = self.circuits == "on-demand"
        if not follows or "on-demand" in kinds:
            yield self
        if follows and "provisioned" in kinds:
            plan = replace(self.schedule, provisioned=True, lockstep=True)
            yield replace(self, schedule=plan, fabric=replace(self.fabric, port_gbps=self.fabric.port_gbps / 2))

    @property
    def operation(self) -> str:
        return self.schedule.kind.replace("_", "-")

    @property
    def parts(self) -> list[TrialPart]:
        """The collectives of a step; each rank runs its own in this order."""
        n, count = self.schedule.n, self.groups
        side_by_side = [
            Group(WORLD if count == 1 else f"tp{g}", self.dimension, tuple(range(g * n, g * n + n)))
            for g in range(count)
        ]
        names = (self.operation, *(f"{self.operation}-{number}" for number, _ in enumerate(self.then, 2)))
        plans = zip(names, (self.schedule, *self.then), strict=True)
        parts = [TrialPart(group, name, plan) for name, plan in plans for group in side_by_side]
        if count > 1:
            across = replace(schedule("all_reduce", count), algorithm="ring-across")
            places = (Group(f"dp{place}", "dp", tuple(range(place, n * count, n))) for place in range(n))
            parts += [TrialPart(group, "dp-all-reduce", across) for group in places]
        return parts

    def times(self, events: Sequence[Event], warmup_steps: int, groups: Collection[str] = ()) -> CollectiveTimes:
        """Times of the collectives of each step as one, or of those of some ``groups`` alone."""
        parts = (part for part in self.parts if not groups or part.group.name in groups)
        return joined([collective_times(events, p.schedule, p.group.name, warmup_steps, p.name) for p in parts])

    @property
    def background_share(self) -> float:
        """Share of the late rank's port rate that other traffic takes."""
        return self.injection.background_share if self.injection is not None else 0.0

    @property
    def slow_rank(self) -> int | None:
        """The rank that the injection makes late; not the expected one if the prediction is wrong on purpose."""
        if self.injection is None or self.late_rank is None:
            return self.late_rank
        return self.injection.late_rank(self.schedule.n, self.late_rank)

    @property
    def varies(self) -> bool:
        """Whether steps vary on purpose, so that their mean counts and not their median."""
        return self.injection is not None and self.injection.varies

    @property
    def predicted_fabric(self) -> TrialFabric:
        """The fabric of the model, in which background traffic is a slower port."""
        if not self.background_share:
            return self.fabric
        return replace(self.fabric, slow=f"{self.slow_rank}:{1 - self.background_share:g}")

    def work(self, iterations: int, *, known: bool = False) -> int:
        """The cost of checking the trial, in transfers: those of the schedule, and one for ten late or early steps.

        Circuits follow each transfer, and slots are computed from them, with matchings of all ranks for a demand.
        ``known``: the schedule was checked before.
        """
        transfers = len(self.schedule.transfers) * (4 if self.cycle is not None else 1)
        if self.cycle is not None and self.cycle.demand:
            transfers += self.schedule.n**4 // 8
        steps = (self.steps or iterations) * self.schedule.n // 10 if self.injection is not None else 0
        return steps + (0 if known and self.fabric.kind == "electrical" else transfers)

    @property
    def mode(self) -> AgentMode:
        return MODE_OF_FABRIC[self.fabric.kind]

    @property
    def policy_name(self) -> str:
        return self.policy or POLICY_OF_FABRIC[self.fabric.kind]

    def job_point(self, scale: Scale, steps: int, seed: int) -> JobPoint:
        """The point to measure, of ``steps`` steps with the warm-up, unless the trial has its own number."""
        steps = self.steps + 1 if self.steps else steps
        return JobPoint(
            name=self.name,
            fabric=Fabric(f"{self.fabric.kind}-{self.fabric.ranks}", self.fabric, lambda: self.fabric.topology(scale)),
            program=self.program(scale, steps, seed),
            mode=self.mode,
            policy=self.policy_name,
            steps=steps,
            model_steps=steps,
            reconfiguration_delay_s=self.reconfiguration_delay_s,
            cycle=self.cycle and self.cycle.scaled(scale.time, scale.rate * scale.time),
            follows=self.fabric.kind == "ocs",
            operations_s={(WORLD, self.operation): scale.emulated_s(self.ideal_s)} if self.ideal_s else {},
            predicted_on=self.predicted_fabric.plan(scale),
            background=(self.slow_rank, self.background_share)
            if self.slow_rank is not None and self.background_share
            else None,
            each_step=True,
        )

    def program(self, scale: Scale, steps: int, seed: int) -> Program:
        """The program of a step, for ``steps`` steps; ``ConfigError`` if it cannot run on the fabric."""
        plan, n, parts = self.schedule, self.schedule.n * self.groups, self.parts
        if n > self.fabric.ranks:
            raise ConfigError(
                f"{plan.algorithm} is made for {n} ranks and the fabric has {self.fabric.ranks}; use --ranks {n}",
                key="ranks",
            )
        if plan.pieces and plan.lockstep:
            raise ConfigError(
                f"{plan.algorithm} does not run in lock-step, nor with a cost of a round; use stragglar",
                key="algorithms",
            )
        sync = Group(SYNC, "world", tuple(range(n)), domain="front-end")
        groups = {group.name: group for group in (*(part.group for part in parts), sync)}
        compute_s = max(self.compute_s, scale.real_s(SHORTEST_COMPUTE_S))
        before: tuple[Operation, ...] = (
            Collective(0, "barrier", "all_reduce", SYNC, max(1, round(scale.real_bytes(SYNC_BYTES)))),
            Compute(1, "compute", compute_s, deps=(0,)),
        )

        def operations(rank: int) -> tuple[Operation, ...]:
            own = enumerate((part for part in parts if rank in part.group.members), 2)
            return *before, *(
                Collective(at, name, plan.kind, group.name, self.bytes, (at - 1,), plan.algorithm)
                for at, (group, name, plan) in own
            )

        by_rank = tuple(operations(rank) if rank < n else () for rank in range(self.fabric.ranks))
        program = Program(self.name, by_rank, groups, {part.schedule.algorithm: part.schedule for part in parts})
        if self.injection is not None and self.late_rank is not None:
            program = inject(program, self.injection, self.late_rank, steps, seed)
        if self.fabric.kind == "ocs" and self.policy_name == FOLLOW:
            program = follow_circuits(program)
        check(program)
        return program


def _changes(schedule: Schedule) -> bool:
    """Whether a port has circuits to more than one other port during ``schedule``."""
    uses = circuit_uses(schedule)
    return len({end for use in uses for end in use.ends}) < 2 * len(uses)
