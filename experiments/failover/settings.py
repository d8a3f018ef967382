"""Settings of the failover experiment: a chip of a job dies on a photonic rack, on electrical ones, or with migration.

The fabrics, after arXiv 2505.23105 (LUMION) and 2508.03674 (MORPHLUX):

- ``photonic``: LUMION. A spare server outside the torus; the dead chip's circuits are moved to one of its chips.
- ``e1``: an electrical torus whose spare is reached over links of other chips, which a second tenant uses.
- ``e2``: an electrical torus whose spare is next to the dead chip, over unused links. The slice uses one of the two
  dimensions of the torus, before and after the fault.
- ``migrate``: E0. The job moves to an idle rack; the OCS between racks needs ten seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from controllers.engine.jobs import Detection
from experiments.racks.kill import Kill, check_kills, parse_kills, random_kill
from experiments.settings import ScaleSection, Section, Settings
from railyard.errors import ConfigError
from railyard.scale import MTU_BYTES, Scale
from topos.describe import plan as describe
from topos.plan import FabricPlan
from topos.racks import RackTopo
from workloads.agent.config import AgentMode
from workloads.agent.incarnation import STAGES

FabricName = Literal["photonic", "e1", "e2", "migrate"]
FABRICS: tuple[FabricName, ...] = ("photonic", "e1", "e2", "migrate")

GRADIENT_BYTES = 39.55e9 / 8
"""fp32 gradients of Llama-3.2-1B (MORPHLUX, arXiv 2508.03674, section on the testbed: 39.55 Gbit a step). A
checkpoint holds its fp32 parameters, which take as many bytes."""
COMPUTE_S = 0.6
"""Compute of one step at batch 2: about the paper's 144.18 s for 32 steps less 39.55 Gbit over one 10 Gb/s port."""
PAPER_STAGES: Mapping[str, float] = {"library": 3.4, "data": 10.0, "load": 2.1}
"""Start-up stages in real seconds, read off MORPHLUX's recovery timeline: 1.1 s circuits up and job launched, 4.5 s
collective library synchronised, 14.5 s data tokenised, 16.6 s model loaded."""
SYSTEM_OF_POLICY: Mapping[str, str] = {"lumion": "LUMION", "morphlux": "MORPHLUX"}
MIGRATION_S = 10.0
"""Rewiring of the OCS between the racks of a TPU pod (MORPHLUX, baselines)."""


_RATE_KEYS = {"port_mbps": "port_gbps x scale.rate", "front_end_mbps": "front_end_gbps x scale.rate"}


@dataclass(frozen=True)
class Setting:
    """One fabric of the experiment: topology, slices of the tenants, and the policy of its controller."""

    name: str
    system: str
    topology: Mapping[str, Any]
    policy: str
    mode: AgentMode
    delay_s: float
    kind: type[RackTopo] = RackTopo
    keys: Mapping[str, str] = field(default_factory=dict)
    """Experiment key of each topology option whose name differs, for errors."""

    @property
    def photonic(self) -> bool:
        """Whether the rings use circuits."""
        return bool(self.topology["fabric"] == "photonic")


class RackScaleSection(ScaleSection):
    """Scale of a rack: 10 Gb/s ports become 12.5 Mb/s, which one datapath thread can poll on the ports of two racks."""

    rate: float | Literal["auto"] = 1 / 800


class TenantSection(Section):
    """A job in real units: compute seconds and gradient bytes per step, bytes and interval (steps) of checkpoints."""

    compute_s: float = Field(default=COMPUTE_S, gt=0, le=3600)
    gradient_bytes: float = Field(default=GRADIENT_BYTES, ge=1, le=1e15)
    state_bytes: float = Field(default=GRADIENT_BYTES, ge=1, le=1e15)
    checkpoint_every: int = Field(default=3, ge=0)


LIGHT_NEIGHBOUR = TenantSection(compute_s=2.0, gradient_bytes=GRADIENT_BYTES / 5, state_bytes=GRADIENT_BYTES / 5)
"""A tenant that mostly computes; one that sends as much as the job would take half of every shared link."""


class DetectionSection(Section):
    """Detection of dead chips by missing heartbeats: ``misses`` in a row, expected every ``heartbeat_ms``.

    ``exit`` and ``port`` also detect a chip at once when its agent ends or its port goes dark.
    """

    heartbeat_ms: float = Field(default=250.0, gt=0, le=60_000)
    misses: int = Field(default=3, ge=1, le=100)
    exit: bool = False
    port: bool = False

    def detection(self, scale: Scale) -> Detection:
        """The detection settings of a job for the controller, in wall-clock time."""
        return Detection(scale.emulated_s(self.heartbeat_ms / 1e3), self.misses, self.exit, self.port)


class FailoverExperiment(Settings):
    """The failover experiment, in real units; ``scale`` converts them for this machine.

    ``policy`` controls the photonic rack: ``lumion``, ``morphlux``, or a class of the user
    (``controllers.policies.catalog``).

    The job and its ``neighbour`` rent ``slice`` and ``neighbour_slice``, a server each. On an electrical torus
    ``reserve`` is the spare server of E1 (the nearest chip replaces the dead one; among equally near chips the first)
    and ``adjacent_reserve`` the spare server of E2, beside the job; there the neighbour's slice is
    ``neighbour_beside_adjacent``.
    """

    experiment: Literal["failover", "server-fabric"] = "failover"
    fabrics: tuple[FabricName, ...] = Field(default=FABRICS, min_length=1)
    policy: str = "lumion"
    torus: str = "4x4"
    server: str = "2x2"
    slice: str = "2x2@0,0"
    neighbour_slice: str = "2x2@2,0"
    reserve: str = "1x1@2,3/1x1@3,3/1x1@2,2/1x1@3,2"
    adjacent_reserve: str = "2x2@2,0"
    neighbour_beside_adjacent: str = "2x2@0,2"
    spare_servers: int = Field(default=1, ge=1, le=8)
    port_gbps: float = Field(default=10.0, gt=0, le=10_000)
    front_end_gbps: float = Field(default=10.0, gt=0, le=10_000)
    mtu: int = Field(default=MTU_BYTES, ge=576, le=9216)
    reconfiguration_delay_ms: float = Field(default=10.0, ge=0, le=60_000)
    migration_delay_ms: float = Field(default=MIGRATION_S * 1e3, ge=0, le=3_600_000)
    job: TenantSection = TenantSection()
    neighbour: TenantSection | None = LIGHT_NEIGHBOUR
    steps: int = Field(default=10, ge=2, le=10_000)
    kill: str = "1@4.5"
    random_kills: int = Field(default=0, ge=0, le=1000)
    detection: DetectionSection = DetectionSection()
    stages: dict[str, Annotated[float, Field(ge=0, le=86_400)]] = Field(default_factory=dict)
    controller_dies_after_ms: float | None = Field(default=None, ge=0, le=3_600_000)
    scale: RackScaleSection = RackScaleSection()

    @field_validator("fabrics", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return [word.strip() for word in value.split(",")] if isinstance(value, str) else value

    @field_validator("stages", mode="before")
    @classmethod
    def _stages(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value not in ("real", "paper"):
                raise ValueError(f"must be real, paper or seconds by stage, not {value!r}")
            return dict(PAPER_STAGES) if value == "paper" else {}
        return value

    @field_validator("slice", "neighbour_slice", "neighbour_beside_adjacent")
    @classmethod
    def _one_tenant(cls, value: str) -> str:
        if "/" in value:
            raise ValueError(f"is the slice of one job (pieces are joined by +), not {value}")
        return value

    @model_validator(mode="after")
    def _check(self) -> FailoverExperiment:
        unknown = [name for name in self.stages if name not in STAGES]
        if unknown:
            raise ValueError(f"stages.{unknown[0]} is not a stage of a restart; those are {', '.join(STAGES)}")
        if self.controller == "remote":
            raise ValueError("controller must be ryu or os-ken: only policies of Railyard replace dead chips")
        if not self.job.checkpoint_every:
            raise ValueError("job.checkpoint_every must be 1 or more: a restart needs a checkpoint")
        if self.random_kills and self.kill and "kill" in self.model_fields_set:
            raise ValueError(f"kill ({self.kill}) and random_kills ({self.random_kills}) exclude each other; give one")
        return self

    def setting(self, name: FabricName) -> Setting:
        """The setting of fabric ``name``."""
        beside, reserve = "neighbour_slice", "reserve"
        if name == "e2":
            beside, reserve = "neighbour_beside_adjacent", "adjacent_reserve"
        rented = ["slice"] if self.neighbour is None else ["slice", beside]
        tenants = "/".join(getattr(self, key) for key in rented)
        keys = {"tenants": " or ".join(rented), "reserve": reserve}
        common = {"torus": self.torus, "server": self.server, "mtu": self.mtu, "tenants": tenants}
        if name == "photonic":
            topology = {**common, "fabric": "photonic", "spare_servers": self.spare_servers}
            system, delay_s = SYSTEM_OF_POLICY.get(self.policy, self.policy), self.reconfiguration_delay_ms / 1e3
            return Setting(name, system, topology, self.policy, "one-shot", delay_s, keys=keys)
        if name == "migrate":
            topology, delay_s = {**common, "fabric": "migrate"}, self.migration_delay_ms / 1e3
            return Setting(name, "E0 migration", topology, "migrate", "electrical", delay_s, keys=keys)
        topology = {**common, "fabric": "electrical-torus", "reserve": getattr(self, reserve)}
        keys["tenants"] += f" or {reserve}"
        return Setting(name, f"{name.upper()} electrical", topology, "torus", "electrical", 0.0, keys=keys)

    def topology(self, setting: Setting, scale: Scale) -> RackTopo:
        """The Mininet topology of a fabric; ``ConfigError`` names the experiment's key of an impossible shape."""
        rates = {
            "port_mbps": scale.emulated_mbps(self.port_gbps),
            "front_end_mbps": scale.emulated_mbps(self.front_end_gbps),
        }
        try:
            return setting.kind(**setting.topology, **rates)
        except ConfigError as error:
            key = {**_RATE_KEYS, **setting.keys}.get(error.key or "")
            if key is None:
                raise
            raise ConfigError(str(error).removeprefix(f"{error.key}: "), key=key) from None

    def plan(self, setting: Setting, scale: Scale) -> FabricPlan:
        """The plan of a fabric at ``scale``."""
        return describe(self.topology(setting, scale))

    def kills(self, plan: FabricPlan) -> tuple[Kill, ...]:
        """The kills of the ``kill`` key, checked against ``plan``; empty if kills are random."""
        assert plan.rack is not None
        kills = () if self.random_kills else parse_kills(self.kill)
        members = [rank for tenant in plan.rack.tenants for rank in tenant.ranks]
        check_kills(kills, plan.ranks, self.steps, [*members, *plan.rack.spares])
        if not kills and not self.random_kills:
            raise ConfigError("names no chip; give RANK@STEP such as 1@4.5", key="kill")
        return kills

    def random_kill(self, plan: FabricPlan, number: int) -> Kill:
        """The random kill of the job in run ``number``; the same for the same seed."""
        assert plan.rack is not None
        return random_kill(self.seed * 1000 + number, plan.rack.tenants[0].ranks, self.steps)
