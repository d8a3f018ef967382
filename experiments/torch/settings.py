"""Settings of a PyTorch script on rails: those of the rail experiment, with a script in place of a workload."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from experiments.racks.setting import DetectionSection
from experiments.rails.settings import RailSettings, RailsSection, TraceSection
from experiments.settings import Option, UnscaledSection
from railyard.errors import ConfigError
from railyard.size import parse_size
from workloads.stragglers.injection import parse_late_rank

ScriptMode = Literal["electrical", "one-shot", "on-demand", "provisioned", "deciding"]
DEFAULT_RANKS = 4
_COMPUTE = re.compile(r"real|recorded|scaled:\d{1,6}(\.\d{1,6})?|given:.+")


class TorchSettings(RailSettings):
    """A PyTorch script, one rank a host; bytes are never scaled, as they are those of real tensors."""

    workload: ClassVar[str] = ""  # type: ignore[misc]
    steps: ClassVar[int] = 3  # type: ignore[misc]
    profile_steps: ClassVar[int] = 0  # type: ignore[misc]
    stale_step: ClassVar[int] = 0  # type: ignore[misc]
    slot_ms: ClassVar[float] = 0.0  # type: ignore[misc]
    guard_ms: ClassVar[float] = 0.0  # type: ignore[misc]
    overlap: ClassVar[bool | None] = None  # type: ignore[misc]
    tp_on_packets: ClassVar[bool] = False  # type: ignore[misc]
    controller_dies_step: ClassVar[float | None] = None  # type: ignore[misc]
    verify: ClassVar[bool] = False  # type: ignore[misc]
    trace: ClassVar[TraceSection] = TraceSection()  # type: ignore[misc]

    script: Annotated[str, Option(metavar="FILE.py")] = Field(default="", description="PyTorch script, as for torchrun")
    script_arguments: Annotated[str, Option(metavar="TEXT")] = Field(
        default="", description="arguments of the script, as in a shell; {point} in them is the number of the point"
    )
    ranks: int | None = Field(
        default=None, ge=2, le=256, description=f"number of ranks (default that of the record, or {DEFAULT_RANKS})"
    )
    gpus_per_server: int = Field(default=1, ge=1, le=16, description="GPUs per server, joined by a scale-up switch")
    record: Annotated[str | None, Option(metavar="FILE.yaml")] = Field(
        default=None,
        description="record of a step that was made before (default: three steps of real processes on loopback)",
    )
    compute: Annotated[str, Option(metavar="real|recorded|scaled:X|given:FILE")] = Field(
        default="real",
        description="compute time: that of the processor, the recorded one, X times the real one, or that of another "
        "record",
    )
    most_steps: Annotated[int, Option("--steps", "N")] = Field(
        default=0, ge=0, le=1_000_000, description="steps of the job (0: until the script ends)"
    )
    setup_steps: int = Field(
        default=2, ge=1, le=1000, description="first steps, whose calls go over the front-end network"
    )
    front_end_below: Annotated[int, Option(metavar="64K")] = Field(
        default=65536, ge=1, description="size below which a call goes over the front-end network"
    )
    front_end_gbps: float = Field(default=1.0, gt=0, le=40, description="rate of a management port, in Gb/s")
    timeout_s: float = Field(
        default=600.0, gt=0, le=86_400, description="time in which no rank goes on, after which the script is ended"
    )
    spare_servers: int = Field(default=0, ge=0, le=64, description="servers that replace failed ones")
    kill: Annotated[str, Option(metavar="PLACE@STEP,...")] = Field(
        default="",
        description="chips to kill, after a number of steps or, as RANK@+SECONDS, after the kill before; a port is "
        "rail0:3@5.5; the script resumes from its own checkpoint",
    )
    detection: DetectionSection = DetectionSection()
    strict: bool = Field(default=False, description="what is not as on GPUs refused, where else it is said")
    modes: tuple[ScriptMode, ...] = Field(
        default=("electrical", "on-demand", "provisioned"), min_length=1, description="modes to measure"
    )
    scale: UnscaledSection = UnscaledSection()
    fabric: RailsSection = RailsSection(rate_gbps=0.1)

    @field_validator("front_end_below", mode="before")
    @classmethod
    def _size(cls, value: Any) -> Any:
        return parse_size(value) if isinstance(value, str) else value

    @field_validator("script_arguments")
    @classmethod
    def _words(cls, value: str) -> str:
        try:
            shlex.split(value)
        except ValueError as error:
            raise ValueError(f"must be words as in a shell ({error})") from None
        return value

    @field_validator("compute")
    @classmethod
    def _compute(cls, value: str) -> str:
        if not _COMPUTE.fullmatch(value):
            raise ValueError(f"must be real, recorded, scaled:X or given:FILE, not {value[:40]}")
        return value

    @model_validator(mode="after")
    def _possible_script(self) -> TorchSettings:
        if self.ranks is not None and self.ranks % self.gpus_per_server:
            raise ConfigError(f"do not fill servers of {self.gpus_per_server} ranks; give a multiple", key="ranks")
        rate = self.scale.rate
        if rate == "auto" or abs(rate * self.scale.time - 1) > 1e-9:
            raise ConfigError("times scale.time must be 1: the bytes of real tensors are not scaled", key="scale.rate")
        if self.kill and not self.spare_servers:
            raise ConfigError("needs a server that takes over; give spare_servers 1 or more", key="kill")
        if self.late and self.kill:
            raise ConfigError("is measured without a kill; leave one of them out", key="late")
        if self.late and (self.compute == "real" or parse_late_rank(self.late).injection.varies):
            raise ConfigError("needs computes that are known: compute recorded, and RANK:SECONDS", key="late")
        for key, reason in (("controller", "remote"), ("cluster", self.cluster), ("pcap", self.pcap)):
            if getattr(self, key) == reason and reason:
                raise ConfigError("is not for a PyTorch script; leave it out", key=key)
        return self

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(shlex.split(self.script_arguments))
