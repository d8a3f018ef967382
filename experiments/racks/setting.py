"""What runs on a rack: a fabric with the policy of its controller, and the jobs of its tenants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
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
from workloads.inference import inference_job, poisson
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
    tensor_parallel: int = Field(
        default=1,
        ge=1,
        le=64,
        description="chips of a tensor-parallel ring (at the same time as the data-parallel one; 1: none)",
    )


class JobSection(TenantSection):
    """The job that loses a chip; its restart needs a checkpoint."""

    checkpoint_every: Annotated[int, Option("--checkpoint-every", "K")] = Field(
        default=3, ge=1, description="steps between two checkpoints"
    )
    tensor_parallel: Annotated[int, Option("--tensor-parallel", "N")] = Field(
        default=1, ge=1, le=64, description=TenantSection.model_fields["tensor_parallel"].description
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


class InferenceSection(Section):
    """An inference job in place of the one that trains, in real units.

    The defaults are a prompt of 1536 tokens for Llama-3.2-1B in 16 bits on four chips: two all-reduces of 1536 x 2048
    values in each of 16 layers, and 2 FLOP a parameter and token at 24 TFLOP/s a chip (an input of ours).
    """

    request_rate: Annotated[float, Option("--request-rate", "PER_S")] = Field(
        default=3.0, ge=0.1, le=1000, description="requests a second; with it job A answers requests and trains nothing"
    )
    patience_s: Annotated[float, Option("--patience", "S")] = Field(
        default=0.5, gt=0, le=3600, description="longest time that a client waits for an answer, in seconds"
    )
    preloaded: Annotated[bool, Option("--preloaded")] = Field(
        default=False, description="weights in the memory of every spare, so that none are copied"
    )
    compute_s: float = Field(default=0.04, gt=0, le=3600, description="compute of a request, in seconds")
    activation_bytes: float = Field(default=2.01e8, ge=1, le=1e15, description="all-reduces of a request, in bytes")
    weight_bytes: float = Field(
        default=GRADIENT_BYTES / 2, ge=1, le=1e15, description="weights, of which every chip has its share, in bytes"
    )


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
        tenants: Sequence[TenantSection | InferenceSection | None],
        *,
        steps: int,
        detection: Detection,
        stages: Mapping[str, float] | None = None,
        seed: int = 1,
    ) -> list[JobPoint]:
        """The jobs of the fabric's tenants: the job that loses a chip, which does ``steps``, and its neighbours.

        Requests of an inference job come at times drawn with ``seed``.
        """
        assert self.plan.rack is not None
        given, found = tuple((stages or {}).items()), list[JobPoint]()
        for rented, tenant in zip(self.plan.rack.tenants, tenants, strict=False):
            if isinstance(tenant, InferenceSection):
                found.append(self.serving(rented.name, rented.ranks, tenant, steps, detection, given, seed))
            elif tenant is not None:
                found.append(self.job(rented.name, rented.ranks, tenant, ENDLESS if found else steps, detection, given))
        return found

    def job(
        self,
        name: str,
        members: tuple[int, ...],
        tenant: TenantSection,
        steps: int,
        detection: Detection = NO_DETECTION,
        stages: tuple[tuple[str, float], ...] = (),
        kind: CollectiveKind = "all_reduce",
    ) -> JobPoint:
        """A training job on ``members`` in ring order; its collectives keep every link of their rings busy."""
        groups, first, size = training_groups(name, members, tenant.tensor_parallel), members, tenant.tensor_parallel
        of_group, moved, seconds = self.lanes(groups), round(tenant.gradient_bytes), tenant.compute_s
        lanes = {group.dimension: of_group[group.name] for group in groups}
        options: dict[str, Any] = {"tensor_parallel": size, "tensor_lanes": lanes.get("tp", 1), "kind": kind}

        def program(members: Sequence[int]) -> Program:
            step = training_job(members, moved, seconds, lanes["dp"], self.plan.ranks, group=name, **options)
            return tenant.with_late(step, name, members, first) if isinstance(tenant, JobSection) else step

        training = Training(program, detection, tenant.checkpoint_every, tenant.state_bytes, stages)
        return self._point(name, members, steps, training)

    def serving(
        self,
        name: str,
        members: tuple[int, ...],
        tenant: InferenceSection,
        requests: int,
        detection: Detection,
        stages: tuple[tuple[str, float], ...],
        seed: int,
    ) -> JobPoint:
        """An inference job on ``members`` in ring order; its client is the host of the last chip that nobody has."""
        rack, lanes = self.plan.rack, self.lanes([Group(name, "tp", members)])[name]
        assert rack is not None
        taken = {*rack.spares, *(rank for rented in rack.tenants for rank in rented.ranks)}
        free = [rank for rank in range(prod(rack.torus)) if rank not in taken]
        if not free:
            raise ConfigError("needs the host of a free chip for its client; rent or reserve fewer", key="inference")
        arrivals = poisson(tenant.request_rate, requests, tenant.patience_s, seed)
        size, seconds, ranks = round(tenant.activation_bytes), tenant.compute_s, self.plan.ranks

        def program(members: Sequence[int]) -> Program:
            return inference_job(members[:-1], members[-1], arrivals, size, seconds, lanes, ranks, group=name)

        share = tenant.weight_bytes / len(members)
        training = Training(program, detection, 0, share, stages, arrivals, tenant.preloaded)
        return self._point(name, (*members, free[-1]), requests, training)

    def _point(self, name: str, members: tuple[int, ...], steps: int, training: Training) -> JobPoint:
        program, how = training.program(members), (self.mode, self.policy, steps, steps, self.delay_s)
        return JobPoint(name, self.fabric, program, *how, members=members, training=training)
