"""Settings of the rail experiment, in units of the real system.

An experiment comes from a YAML file (``load_experiment``) or from the options of a script (``make_experiment``); both
have the same keys. All input is checked here, and bad input raises ``ConfigError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from experiments.settings import ScaleSection, Section, Settings, read_yaml, validated
from railyard.scale import ROCE_MTU_BYTES

Mode = Literal["native", "electrical", "one-shot", "on-demand", "provisioned", "rotor", "demand"]
MODES: tuple[Mode, ...] = ("native", "electrical", "one-shot", "on-demand", "provisioned", "rotor", "demand")
"""All modes. ``rotor`` and ``demand`` are on-demand for rings and chains, with slots for experts' all-to-alls."""
SLOT_MODES: tuple[Mode, ...] = ("rotor", "demand")
SWEPT: tuple[Mode, ...] = ("on-demand", "provisioned", *SLOT_MODES)
"""The modes in which jobs wait for circuits; they are measured at each delay."""
FABRIC_OF_MODE: dict[Mode, str] = {
    "electrical": "electrical",
    "one-shot": "one-shot",
    "on-demand": "ocs",
    "provisioned": "ocs",
    "rotor": "ocs",
    "demand": "ocs",
}
"""The fabric of each mode except ``native``."""


class FabricSection(Section):
    """The rails of an experiment. ``rate_gbps`` is the real rate of one port; None takes that of the workload.

    ``kind`` chooses the switches of mode ``native``: packet switches, or optical switches whose circuits a remote
    controller sets. Every other mode has its own kind of switches.
    """

    kind: Literal["electrical", "ocs"] = "electrical"
    rate_gbps: float | None = Field(default=None, gt=0, le=3200)
    ports_per_gpu: int = Field(default=2, ge=2, le=2, description="ports per GPU; a ring needs two")
    mtu: int = Field(default=ROCE_MTU_BYTES, ge=1500, le=9000)


class TraceSection(Section):
    """Options for reading a file of another tool (``workloads.formats``); None takes the value of the file.

    ``compute_unit`` is the unit of compute times (``ns``, ``us``, ``cycles:1.5`` for cycles at 1.5 GHz), ``size`` the
    buffer of a schedule in bytes, ``model_parallel`` the number of ranks of a model-parallel group.
    """

    compute_unit: str | None = None
    ranks: int | None = Field(default=None, ge=1, le=100_000)
    size: int | None = Field(default=None, ge=1)
    model_parallel: int | None = Field(default=None, ge=1)
    gpus_per_server: int | None = Field(default=None, ge=1)


class Experiment(Settings):
    """A rail experiment: a workload, swept over modes and reconfiguration delays.

    ``policy`` replaces Opus in modes on-demand and provisioned (``module:Class`` or ``file.py:Class``). ``slot_ms`` is
    the up time of circuits in a slot of modes rotor and demand. With 0 a slot ends when all ranks have sent their part;
    in mode demand any other value means slots as long as the demand takes. Ranks stop sending ``guard_ms`` before the
    end of a slot of fixed length.
    """

    experiment: Literal["rail-reconfiguration"] = "rail-reconfiguration"
    workload: str = "llama3-8b-16"
    modes: tuple[Mode, ...] = ("electrical", "one-shot", "on-demand", "provisioned")
    delays_ms: tuple[float, ...] = (0.0, 50.0, 200.0)
    link_recovery_ms: float = Field(default=0.0, ge=0, le=600_000)
    steps: int = Field(default=3, ge=1, le=10_000)
    overlap: bool = False
    tp_on_packets: bool = False
    trace: TraceSection = TraceSection()
    fabric: FabricSection = FabricSection()
    scale: ScaleSection = ScaleSection()
    policy: str | None = None
    slot_ms: float = Field(default=0.0, ge=0, le=600_000)
    guard_ms: float = Field(default=2.0, ge=0, le=10_000)

    @field_validator("modes", "delays_ms")
    @classmethod
    def _not_empty(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if not value:
            raise ValueError("must name at least one")
        return tuple(dict.fromkeys(value))

    @field_validator("delays_ms")
    @classmethod
    def _delays(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        for delay in value:
            if not 0 <= delay <= 600_000:
                raise ValueError(f"each delay must be between 0 and 600000 ms, not {delay:g}")
        return tuple(sorted(value))

    @model_validator(mode="after")
    def _policy_has_a_use(self) -> Experiment:
        if self.policy and not {"on-demand", "provisioned"} & set(self.modes):
            raise ValueError("policy needs mode on-demand or provisioned; other modes have fixed policies")
        if self.controller == "remote" and set(self.modes) != {"native"}:
            raise ValueError("controller remote needs modes [native]: your own controller sets all circuits and routes")
        if self.fabric.kind == "ocs" and self.controller != "remote":
            raise ValueError("fabric.kind ocs needs controller remote; for Railyard's controller use mode on-demand")
        return self

    def fabric_of(self, mode: Mode) -> str:
        """The fabric that ``mode`` runs on: ``ocs``, ``electrical`` or ``one-shot``."""
        return self.fabric.kind if mode == "native" else FABRIC_OF_MODE[mode]

    def points(self) -> tuple[tuple[Mode, float], ...]:
        """(mode, delay in ms) of every point to measure; modes outside ``SWEPT`` come first, with delay 0 only."""
        ordered = [m for m in MODES if m in self.modes]
        return tuple((mode, delay) for mode in ordered for delay in (self.delays_ms if mode in SWEPT else (0.0,)))


def make_experiment(values: Mapping[str, Any], source: str | None = None) -> Experiment:
    """The experiment that ``values`` describe; ``ConfigError`` names the first wrong key and what would work."""
    return validated(Experiment, values, source)


def load_experiment(path: Path) -> Experiment:
    """The experiment of a YAML file; a workload file that it names may be in the same folder."""
    data = read_yaml(path, "workload, modes, delays_ms")
    beside = path.parent / str(data.get("workload", ""))
    if data.get("workload") and beside.is_file():
        data["workload"] = str(beside)
    return make_experiment(data, str(path))
