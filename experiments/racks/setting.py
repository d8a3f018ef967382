"""What runs on a rack: a fabric with the policy of its controller, the jobs of its tenants, and the kills of chips."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Annotated, Any

from pydantic import Field, model_validator

from controllers.engine.jobs import Detection
from controllers.policies.catalog import load_policy
from experiments.job_point import Fabric
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
from workloads.training.step import training_job

_NUMBER = r"\d{1,6}(?:\.\d{1,6})?"
_WRITTEN = re.compile(rf"(?P<rank>\d{{1,6}})@(?:(?P<step>{_NUMBER})|\+(?P<after>{_NUMBER}))")


@dataclass(frozen=True)
class Kill:
    """The kill of chip ``rank`` after ``step`` steps of its job (4.5: in the middle of the step after the fourth).

    ``after_s`` instead of ``step`` is the time after the kill before it in real seconds, for a second failure during
    the recovery. For a spare, which is in no job, the steps of the first job count.
    """

    rank: int
    step: float | None = None
    after_s: float | None = None

    def __str__(self) -> str:
        return f"{self.rank}@{self.step:g}" if self.step is not None else f"{self.rank}@+{self.after_s:g}"


def parse_kills(text: str) -> tuple[Kill, ...]:
    """Parse kills such as ``1@4.5,16@+0.5``; ``ConfigError`` names a kill of any other form."""
    kills: list[Kill] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        found = _WRITTEN.fullmatch(word)
        if found is None:
            raise ConfigError(
                f"must be RANK@STEP such as 1@4.5, or RANK@+SECONDS after the kill before it, not {word[:40]}",
                key="kill",
            )
        if found["after"] is not None and not kills:
            raise ConfigError(
                f"{word} is relative to the kill before it, and there is none; begin with RANK@STEP", key="kill"
            )
        step, after = (None if number is None else float(number) for number in (found["step"], found["after"]))
        kills.append(Kill(int(found["rank"]), step, after))
    return tuple(kills)


def check_kills(kills: Iterable[Kill], ranks: int, steps: int, known: Sequence[int]) -> None:
    """Raise ``ConfigError`` for kills that cannot happen.

    These are kills of ranks that do not exist, that are not in ``known`` (members and spares) or are dead already, and
    kills after the last of ``steps``.
    """
    dead: set[int] = set()
    for kill in kills:
        if kill.rank >= ranks:
            raise ConfigError(f"{kill} names rank {kill.rank}; this fabric has ranks 0 to {ranks - 1}", key="kill")
        if kill.rank not in known:
            raise ConfigError(
                f"{kill} names rank {kill.rank}, which is neither a member of a job nor a spare; use one of "
                f"{', '.join(map(str, sorted(known)))}",
                key="kill",
            )
        if kill.rank in dead:
            raise ConfigError(f"{kill} names rank {kill.rank}, which is already dead; name another", key="kill")
        dead.add(kill.rank)
        if kill.step is not None and kill.step >= steps:
            raise ConfigError(f"{kill} is after the last step of the job, which has {steps} steps", key="kill")


def random_kill(seed: int, members: Sequence[int], steps: int) -> Kill:
    """A kill of a random member at a random moment of the job; the same for the same seed."""
    dice = Random(f"kill-{seed}")
    return Kill(dice.choice(list(members)), round(dice.uniform(0.05, steps - 0.2), 3))


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


@dataclass(frozen=True)
class Setting:
    """One fabric of an experiment: topology, slices of the tenants, and the policy of its controller.

    ``options`` are those of the topology ``kind``, without the rates of ports; ``port_gbps`` and ``delay_s`` (of a
    reconfiguration) are real. ``keys`` gives the experiment's key of each option whose name differs, for errors.
    """

    name: str
    system: str
    policy: str
    mode: AgentMode
    delay_s: float
    options: Mapping[str, Any]
    scale: Scale
    port_gbps: float = PORT_GBPS
    front_end_gbps: float = PORT_GBPS
    kind: type[RackTopo] = RackTopo
    keys: Mapping[str, str] = field(default_factory=dict)

    def topology(self) -> RackTopo:
        """The Mininet topology; ``ConfigError`` names the experiment's key of an impossible shape."""
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

    @cached_property
    def plan(self) -> FabricPlan:
        """The plan of the fabric, without bringing it up."""
        return describe(self.topology())

    @property
    def fabric(self) -> Fabric:
        return Fabric(self.name, self.name, self.topology)

    def ring_paths(self, members: Sequence[int]) -> list[Hop]:
        """The circuits that the policy gives a ring of ``members``; empty on packet switches."""
        policy, group = load_policy(self.policy, self.plan), Group("ring", "dp", tuple(members))
        return list(policy.paths(group, policy.start([group])))

    def ring_lanes(self, members: Sequence[int]) -> int:
        """Number of lanes that keeps every link of the ring busy in both directions: two for each circuit of a hop.

        In a ring of two all circuits between the pair belong to one hop, and in the other direction to the next hop.
        """
        if self.mode == "electrical":
            return 2
        hop = sum({rank, peer} == set(members[:2]) for rank, _, peer, _ in self.ring_paths(members))
        return max(1, hop if len(members) == 2 else 2 * hop)


@dataclass(frozen=True)
class JobSpec:
    """A job on a fabric: ``members`` in ring order; ``lanes`` is the number of lanes of its all-reduce.

    ``stages`` are given durations of start-up stages in real seconds, ``predicted_step_s`` is the predicted time of a
    step in wall-clock seconds.
    """

    name: str
    members: tuple[int, ...]
    tenant: TenantSection
    setting: Setting
    steps: int
    lanes: int
    detection: Detection
    stages: tuple[tuple[str, float], ...] = ()
    predicted_step_s: float = 1.0

    def program(self, members: Sequence[int] = ()) -> Program:
        """The program of a step; ``members`` if they are not those of the start."""
        tenant, members = self.tenant, members or self.members
        gradient_bytes, ranks = round(tenant.gradient_bytes), self.setting.plan.ranks
        return training_job(members, gradient_bytes, tenant.compute_s, self.lanes, ranks, group=self.name)


def specs_of(
    setting: Setting,
    tenants: Sequence[TenantSection | None],
    *,
    steps: int,
    detection: Detection,
    stages: Mapping[str, float] | None = None,
) -> list[JobSpec]:
    """Specifications of the jobs on one fabric: the job that loses a chip, which does ``steps``, and its neighbours."""
    assert setting.plan.rack is not None
    return [
        JobSpec(
            name=rented.name,
            members=rented.ranks,
            tenant=tenant,
            setting=setting,
            steps=ENDLESS if number else steps,
            lanes=setting.ring_lanes(rented.ranks),
            detection=detection,
            stages=tuple((stages or {}).items()),
        )
        for number, (rented, tenant) in enumerate(zip(setting.plan.rack.tenants, tenants, strict=False))
        if tenant is not None
    ]
