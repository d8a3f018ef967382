"""What runs on a rack: a fabric with the policy of its controller, and the jobs of its tenants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

from mininet.topo import Topo
from pydantic import Field, field_validator, model_validator

from controllers.engine.jobs import Detection
from controllers.policies.catalog import load_policy
from experiments.job_point import Fabric, JobPoint, Training
from experiments.settings import Option, SpreadSettings
from measure.published import published
from railyard.errors import ConfigError
from railyard.protocol import Hop
from railyard.scale import MTU_BYTES, Scale
from railyard.validation import Section
from topos.describe import plan as describe
from topos.plan import FabricPlan
from topos.racks import RackTopo
from workloads.agent.config import AgentMode
from workloads.program import Group, Program
from workloads.schedule import CollectiveKind
from workloads.stragglers.injection import Injection, inject, parse_late_rank
from workloads.training.step import expecting, training_groups, training_job

PORT_GBPS = float(published("morphlux-port").value)
GRADIENT_BYTES = published("llama-1b-gradients").value * 1e9 / 8
"""fp32 gradients of a step of Llama-3.2-1B. A checkpoint holds its fp32 parameters, which take as many bytes."""
COMPUTE_S = 0.6
"""Compute of one step at batch 2: about MORPHLUX's electrical step less its gradients (``rack-compute``)."""
TIMELINE = published("morphlux-timeline")
"""Part of a recovery -> seconds after the failure at its end."""
MORPHLUX_STAGES: Mapping[str, float] = {
    after: TIMELINE.between(before, after)
    for before, after in (("rewire", "library"), ("library", "data"), ("data", "load"))
}
"""Start-up stages in real seconds: the differences of MORPHLUX's recovery timeline."""
NO_DETECTION = Detection()
ENDLESS = 10_000
"""Steps of a neighbour: more than it can finish, since it is stopped when the job ends."""


class TenantSection(Section):
    """A training job, in real units."""

    compute_s: float = Field(default=COMPUTE_S, gt=0, le=3600, description="compute of a step, in seconds")
    gradient_bytes: float = Field(default=GRADIENT_BYTES, ge=1, le=1e15, description="gradients of a step, in bytes")
    state_bytes: float = Field(default=GRADIENT_BYTES, ge=1, le=1e15, description="a checkpoint, in bytes")
    checkpoint_every: int = Field(default=3, ge=0, description="steps between two checkpoints; 0: none")


class JobSection(TenantSection):
    """The job that loses a chip; its restart needs a checkpoint."""

    checkpoint_every: Annotated[int, Option("--checkpoint-every", "K")] = Field(
        default=3, ge=1, description="steps between two checkpoints"
    )
    tensor_parallel: Annotated[int, Option("--tensor-parallel", "N")] = Field(
        default=1,
        ge=1,
        le=64,
        description="chips of a tensor-parallel ring, which works at the same time as the data-parallel one (1: none)",
    )
    algorithm: Annotated[Literal["ring", "stragglar"], Option("--algorithm")] = Field(
        default="ring", description="all-reduce of the job; stragglar has a circuit between any two chips"
    )
    late: Annotated[str | None, Option("--late", "RANK:SECONDS")] = Field(
        default=None, description="a chip that is late in every step, which stragglar expects (else the last)"
    )

    @field_validator("late")
    @classmethod
    def _late(cls, value: str | None) -> str | None:
        injection = parse_late_rank(value).injection if value is not None else Injection()
        if injection.varies or injection != Injection(injection.text, injection.gaps):
            raise ValueError(f"must be RANK:SECONDS here, such as 2:0.5, not {value!r:.60}")
        return value

    @model_validator(mode="after")
    def _one_ring(self) -> JobSection:
        if self.algorithm == "stragglar" and self.tensor_parallel > 1:
            raise ConfigError("stragglar reduces over all chips of the job; leave out tensor_parallel", key="algorithm")
        return self

    def with_late(self, program: Program, name: str, members: Sequence[int], first: Sequence[int]) -> Program:
        """``program`` of job ``name`` on ``members``, which were ``first`` at its start, with algorithm and late chip.

        The chip is late as long as it is a member; the position that is expected late stays.
        """
        late = None if self.late is None else parse_late_rank(self.late)
        if late is not None and late.rank not in first:
            names = ", ".join(map(str, first))
            raise ConfigError(f"names chip {late.rank}, and job {name} has chips {names}", key="job.late")
        if self.algorithm == "stragglar":
            program = expecting(program, name, len(first) - 1 if late is None else first.index(late.rank))
        return program if late is None or late.rank not in members else inject(program, late.injection, late.rank, 1, 0)


class DetectionSection(Section):
    """Detection of dead chips by missing heartbeats, and by further signs."""

    heartbeat_ms: Annotated[float, Option("--heartbeat", "MS")] = Field(
        default=250.0, gt=0, le=60_000, description="heartbeat interval of agents, in ms"
    )
    misses: Annotated[int, Option("--misses", "N")] = Field(
        default=3, ge=1, le=100, description="missing heartbeats in a row after which a chip counts as dead"
    )
    detect: Annotated[tuple[Literal["exit", "port"], ...], Option("--detect", "exit,port")] = Field(
        default=(), description="signs that count at once: an ended agent (exit), a dark port (port)"
    )

    def detection(self, scale: Scale) -> Detection:
        """The detection settings of a job for the controller, in wall-clock time."""
        beat_s = scale.emulated_s(self.heartbeat_ms / 1e3)
        return Detection(beat_s, self.misses, exit="exit" in self.detect, port="port" in self.detect)


class RackSettings(SpreadSettings):
    """Settings that all experiments on racks share."""

    mtu: Annotated[int, Option(metavar="BYTES")] = Field(
        default=MTU_BYTES, ge=576, le=9216, description="MTU of the links, in bytes"
    )

    @model_validator(mode="after")
    def _possible_on_racks(self) -> RackSettings:
        if self.controller == "remote":
            raise ConfigError("must be ryu or os-ken: only policies of Railyard replace dead chips", key="controller")
        if self.pcap:
            raise ConfigError("must be off: packets on racks are not captured", key="pcap")
        return self


@dataclass(frozen=True, kw_only=True)
class FabricSetting(ABC):
    """One fabric of an experiment with training jobs that outlive their members, and the policy of its controller.

    ``delay_s`` (of a reconfiguration) and the rate of management ports are real.
    """

    name: str
    system: str
    policy: str
    mode: AgentMode
    delay_s: float
    scale: Scale
    front_end_gbps: float = PORT_GBPS

    @abstractmethod
    def topology(self) -> Topo:
        """The Mininet topology; ``ConfigError`` names the experiment's key of an impossible shape."""

    @cached_property
    def plan(self) -> FabricPlan:
        """The plan of the fabric, without bringing it up."""
        return describe(self.topology())

    @property
    def fabric(self) -> Fabric:
        return Fabric(self.name, self.name, self.topology)


@dataclass(frozen=True, kw_only=True)
class Setting(FabricSetting):
    """Racks: topology, and slices of the tenants.

    ``options`` are those of the topology ``kind``, without the rates of ports; ``port_gbps`` is real. ``keys`` gives
    the experiment's key of each option whose name differs, for errors.
    """

    options: Mapping[str, Any]
    port_gbps: float = PORT_GBPS
    kind: type[RackTopo] = RackTopo
    keys: Mapping[str, str] = field(default_factory=dict)

    def topology(self) -> RackTopo:
        rates = {"port": self.port_gbps, "front_end": self.front_end_gbps}
        keys = {**{f"{name}_mbps": f"{name}_gbps x scale.rate" for name in rates}, **self.keys}
        try:
            mbps = {f"{name}_mbps": self.scale.emulated_mbps(gbps) for name, gbps in rates.items()}
            return self.kind(**self.options, **mbps)
        except ConfigError as error:
            key = keys.get(error.key or "")
            if key is None:
                raise
            raise ConfigError(error.message, key=key) from None

    def paths(self, groups: Sequence[Group]) -> Mapping[str, Sequence[Hop]]:
        """The circuits that the policy gives each of a job's ``groups``, by name; none on packet switches."""
        policy = load_policy(self.policy, self.plan)
        wiring = policy.start(groups)
        return {group.name: policy.paths(group, wiring) for group in groups}

    def lanes(self, groups: Sequence[Group]) -> Mapping[str, int]:
        """Number of lanes that keeps every link of each ring busy in both directions: two for each circuit of a hop.

        By name of the group. On circuits it is the number of ports that a member has for the ring. In a ring of two all
        circuits between the pair belong to one hop, and in the other direction to the next hop.
        """
        if self.mode == "electrical":
            return {group.name: 2 for group in groups}
        lanes, paths = {}, self.paths(groups)
        for group in groups:
            hop = sum({rank, peer} == set(group.members[:2]) for rank, _, peer, _ in paths[group.name])
            lanes[group.name] = max(1, hop if len(group.members) == 2 else 2 * hop)
        return lanes

    def jobs(
        self,
        tenants: Sequence[TenantSection | None],
        *,
        steps: int,
        detection: Detection,
        stages: Mapping[str, float] | None = None,
        tensor_parallel: int = 1,
    ) -> list[JobPoint]:
        """The jobs of the fabric's tenants: the job that loses a chip, which does ``steps``, and its neighbours."""
        assert self.plan.rack is not None
        given, found = tuple((stages or {}).items()), list[JobPoint]()
        for rented, tenant in zip(self.plan.rack.tenants, tenants, strict=False):
            if tenant is not None:
                count, size = (ENDLESS, 1) if found else (steps, tensor_parallel)
                who = rented.name, rented.ranks, tenant
                found.append(self.job(*who, count, detection, given, tensor_parallel=size))
        return found

    def job(
        self,
        name: str,
        members: tuple[int, ...],
        tenant: TenantSection,
        steps: int,
        detection: Detection = NO_DETECTION,
        stages: tuple[tuple[str, float], ...] = (),
        *,
        tensor_parallel: int = 1,
        kind: CollectiveKind = "all_reduce",
    ) -> JobPoint:
        """A training job on ``members`` in ring order; its collectives keep every link of their rings busy."""
        groups = training_groups(name, members, tensor_parallel)
        of_group, ranks, size = self.lanes(groups), self.plan.ranks, round(tenant.gradient_bytes)
        lanes, first = {group.dimension: of_group[group.name] for group in groups}, members

        def program(members: Sequence[int]) -> Program:
            step = training_job(
                members,
                size,
                tenant.compute_s,
                lanes["dp"],
                ranks,
                group=name,
                kind=kind,
                tensor_parallel=tensor_parallel,
                tensor_lanes=lanes.get("tp", 1),
            )
            return tenant.with_late(step, name, members, first) if isinstance(tenant, JobSection) else step

        return JobPoint(
            name,
            self.fabric,
            program(members),
            self.mode,
            self.policy,
            steps,
            steps,
            self.delay_s,
            members=members,
            training=Training(program, detection, tenant.checkpoint_every, tenant.state_bytes, stages),
        )
