"""Settings of the rail experiment, in units of the real system, and its modes: what switches and policies are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import Field, field_validator, model_validator

from experiments.settings import Delay, Delays, GuardMs, Mtu, Option, Overhead, SpreadSettings, validated
from railyard.app_channel import default_socket
from railyard.errors import ConfigError
from railyard.scale import ROCE_MTU_BYTES
from railyard.size import parse_size
from railyard.validation import Section
from workloads.stragglers.injection import parse_late_rank

Mode = Literal["native", "electrical", "one-shot", "on-demand", "provisioned", "deciding", "rotor", "demand"]


@dataclass(frozen=True)
class ModeSpec:
    """One mode: ``fabric`` is that of its switches (empty: ``fabric.kind``), ``policy`` the default one.

    ``swept``: jobs wait for circuits, so the mode is measured at each delay, and not at 0 alone. ``slots``: experts'
    all-to-alls move in slots, all else on demand.
    """

    fabric: str
    policy: str
    swept: bool = False
    slots: bool = False


MODES: Mapping[Mode, ModeSpec] = {
    "native": ModeSpec("", "static"),
    "electrical": ModeSpec("electrical", "electrical"),
    "one-shot": ModeSpec("one-shot", "one-shot"),
    "on-demand": ModeSpec("ocs", "opus", swept=True),
    "provisioned": ModeSpec("ocs", "opus", swept=True),
    "deciding": ModeSpec("four-lane", "deciding", swept=True),
    "rotor": ModeSpec("ocs", "rotor", swept=True, slots=True),
    "demand": ModeSpec("ocs", "demand", swept=True, slots=True),
}
"""All modes, in the order of tables and figures."""
assert tuple(MODES) == get_args(Mode)
OWN_POLICY: tuple[Mode, ...] = ("on-demand", "provisioned")
"""The modes whose policy may be another than the default one."""


class RailPoint(NamedTuple):
    """A point to measure: mode, reconfiguration delay, and a late rank as ``--late`` names it (empty: none)."""

    mode: Mode
    delay_ms: float
    late: str = ""

    def __str__(self) -> str:
        return f"{self.mode}, {self.delay_ms:g} ms{self.late and f', late {self.late}'}"


class RailsSection(Section):
    """The rails of an experiment."""

    kind: Annotated[Literal["electrical", "ocs"], Option("--fabric")] = Field(
        default="electrical", description="switches of mode native; ocs needs --controller remote"
    )
    rate_gbps: Annotated[float | None, Option("--port-gbps", "GBPS")] = Field(
        default=None, gt=0, le=3200, description="rate of a port, in Gb/s"
    )
    ports_per_gpu: int = Field(default=2, ge=2, le=2, description="ports of a GPU; a ring needs two")
    mtu: Mtu = ROCE_MTU_BYTES
    overhead: Overhead = 0


class TraceSection(Section):
    """Options for reading a file of another tool (``workloads.formats``); None takes the value of the file."""

    compute_unit: Annotated[str | None, Option("--compute-unit", "ns|us|cycles:GHZ")] = Field(
        default=None, description="unit of the compute times in a trace"
    )
    ranks: Annotated[int | None, Option("--ranks", "N")] = Field(
        default=None, ge=1, le=100_000, description="number of ranks (default that of the trace)"
    )
    size: Annotated[int | None, Option("--size", "1M")] = Field(
        default=None, ge=1, description="buffer size of a schedule file"
    )
    model_parallel: Annotated[int | None, Option("--model-parallel", "N")] = Field(
        default=None, ge=1, description="ranks per model-parallel group of a trace"
    )
    gpus_per_server: Annotated[int | None, Option("--gpus-per-server", "N")] = Field(
        default=None, ge=1, description="GPUs per server, joined by a scale-up switch"
    )

    @field_validator("size", mode="before")
    @classmethod
    def _size(cls, value: Any) -> Any:
        return parse_size(value) if isinstance(value, str) else value


class RailSettings(SpreadSettings):
    """A rail experiment: a workload, swept over modes and reconfiguration delays."""

    workload: Annotated[str, Option(metavar="NAME|FILE")] = Field(
        default="llama3-8b-16",
        description="workload of the catalog, a YAML file, or a trace (MSCCL XML, Chakra, SimAI, ASTRA-sim text, pcap)",
    )
    modes: tuple[Mode, ...] = Field(
        default=("electrical", "one-shot", "on-demand", "provisioned"), min_length=1, description="modes to measure"
    )
    delays_ms: Delays = Field(default=(0.0, 50.0, 200.0), min_length=1, description="reconfiguration delays, in ms")
    link_recovery_ms: Delay = Field(default=0.0, description="link recovery after a reconfiguration, in ms")
    slot_ms: Delay = Field(
        default=0.0,
        description="up time of a slot in modes rotor and demand, in ms; 0: until all ranks have sent, and in mode "
        "demand any other value: as long as the demand takes",
    )
    guard_ms: GuardMs = 2.0
    steps: int = Field(
        default=1,
        ge=1,
        le=10_000,
        description="steps of the job (of several the first is not counted: its TCP connections are cold)",
    )
    profile_steps: int = Field(
        default=0,
        ge=0,
        le=100,
        description="first steps, on demand, in which mode provisioned learns the order of the phases; no other number "
        "counts them",
    )
    stale_step: int = Field(
        default=0, ge=0, le=10_000, description="step, from 0, in which mode provisioned has a stale profile (0: none)"
    )
    overlap: bool | None = Field(
        default=None, description="communication during compute, as FSDP prefetches (default as the workload says: yes)"
    )
    tp_on_packets: bool = Field(default=False, description="tensor parallelism as packets instead of compute time")
    policy: Annotated[str | None, Option(metavar="NAME|FILE.py:Class")] = Field(
        default=None,
        description="policy of the circuits (default opus, in modes on-demand and provisioned; docs/policies.md)",
    )
    late: Annotated[str | None, Option(metavar="RANK:SECONDS|RANK:CAUSE")] = Field(
        default=None,
        description="a late rank, with and without which every point is measured; causes are those of straggler "
        "--inject help",
    )
    controller_dies_step: Annotated[float | None, Option("--controller-dies", "STEP")] = Field(
        default=None,
        ge=1,
        description="kill the controller after so many steps (2.5: in the middle of the step after the second) and "
        "start another, under the job",
    )
    trace: TraceSection = TraceSection()
    fabric: RailsSection = RailsSection()

    @field_validator("delays_ms")
    @classmethod
    def _ascending(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sorted(value))

    @field_validator("late")
    @classmethod
    def _late(cls, value: str | None) -> str | None:
        if value is not None:
            parse_late_rank(value)
        return value

    @model_validator(mode="after")
    def _policy_has_a_use(self) -> RailSettings:
        if self.profile_steps and not self.profile_steps < self.steps:
            raise ConfigError(
                f"must be more than profile_steps {self.profile_steps}, so that a step is left to measure", key="steps"
            )
        for key in ("profile_steps", "stale_step"):
            if getattr(self, key) and "provisioned" not in self.modes:
                raise ConfigError("needs mode provisioned, which asks for circuits in advance", key=key)
        first = max(1, self.profile_steps)
        if self.stale_step and not first <= self.stale_step < self.steps > first + 1:
            reason = f"must be {first} or more and less than steps, which must be {first + 2} or more"
            raise ConfigError(reason, key="stale_step")
        if self.policy and not set(OWN_POLICY) & set(self.modes):
            raise ConfigError("needs mode on-demand or provisioned; other modes have fixed policies", key="policy")
        slots = [mode for mode in self.modes if MODES[mode].slots]
        if self.controller == "remote" and slots:
            raise ConfigError(
                f"mode {slots[0]} changes circuits slot by slot, for which your own controller is not asked; take "
                "on-demand, or leave controller remote out",
                key="modes",
            )
        if self.fabric.kind == "ocs" and self.controller != "remote":
            raise ConfigError(
                "ocs needs controller remote; for Railyard's controller use mode on-demand", key="fabric.kind"
            )
        return self

    @model_validator(mode="after")
    def _controller_dies_in_a_step(self) -> RailSettings:
        if self.controller_dies_step is None:
            return self
        if self.controller == "remote":
            raise ConfigError(
                "kills Railyard's controller, and controller is remote; leave it out", key="controller_dies_step"
            )
        without = [mode for mode in self.modes if mode == "native" or MODES[mode].slots]
        if without:
            raise ConfigError(
                f"mode {without[0]} cannot go on with another controller; use one of electrical, one-shot, on-demand, "
                "provisioned",
                key="controller_dies_step",
            )
        if not self.controller_dies_step < self.steps or self.steps < 3:
            raise ConfigError(
                f"{self.controller_dies_step:g} needs a step that it falls into and others to compare that with, after "
                f"the first one; give at least {max(3, int(self.controller_dies_step) + 1)} --steps",
                key="controller_dies_step",
            )
        return self

    @property
    def app_path(self) -> Path | None:
        """Where a controller of the user's own is asked for circuits: in all modes but native, whose jobs ask none."""
        if self.app_socket is None and self.controller == "remote" and set(self.modes) != {"native"}:
            return Path(default_socket(int(self.remote.rpartition(":")[2])))
        return super().app_path

    def fabric_of(self, mode: Mode) -> str:
        """The fabric that ``mode`` runs on: ``ocs``, ``electrical``, ``one-shot`` or ``four-lane``."""
        return MODES[mode].fabric or self.fabric.kind

    def points(self) -> tuple[RailPoint, ...]:
        """Every point to measure, in the order of ``MODES``; delay 0 alone if not swept, first without a late rank."""
        return tuple(
            RailPoint(mode, delay, late)
            for mode, spec in MODES.items()
            if mode in self.modes
            for delay in (self.delays_ms if spec.swept else (0.0,))
            for late in ("", self.late)
            if late is not None
        )


def make_settings(values: Mapping[str, Any]) -> RailSettings:
    """The rail experiment that ``values`` describe; ``ConfigError`` names the first wrong key and what would work."""
    return validated(RailSettings, values)
