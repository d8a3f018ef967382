"""The experiment: what a person writes, checked once, in the units of the real system.

This is the only place where bad input can raise, and what it raises is ``ConfigError``. An experiment
comes from a YAML file (``load_experiment``) or from the options of a script (``make_experiment``); both
have the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from railyard.errors import ConfigError
from railyard.scale import ROCE_MTU_BYTES

Mode = Literal["native", "electrical", "one-shot", "on-demand", "provisioned"]
MODES: tuple[Mode, ...] = ("native", "electrical", "one-shot", "on-demand", "provisioned")
FABRIC_OF_MODE: dict[Mode, str] = {
    "electrical": "electrical",
    "one-shot": "one-shot",
    "on-demand": "ocs",
    "provisioned": "ocs",
}
"""The fabric each mode needs: a baseline has no circuits to wait for."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FabricSection(_Section):
    """The rails. ``rate_gbps`` is the real rate of one port; None takes the workload's own.

    ``kind`` chooses the switches of mode ``native`` (every other mode has its own): packet switches, or optical
    ones whose circuits somebody else sets.
    """

    kind: Literal["electrical", "ocs"] = "electrical"
    rate_gbps: float | None = Field(default=None, gt=0, le=3200)
    ports_per_gpu: int = Field(default=2, ge=2, le=2, description="a ring needs two neighbours")
    mtu: int = Field(default=ROCE_MTU_BYTES, ge=1500, le=9000)


class ScaleSection(_Section):
    """``rate`` = emulated / real link rate (a number, ``1/250`` or ``auto``), ``time`` = emulated seconds per real."""

    rate: float | Literal["auto"] = "auto"
    time: float = Field(default=1.0, gt=0, le=1000)

    @field_validator("rate", mode="before")
    @classmethod
    def _fraction(cls, value: Any) -> Any:
        if isinstance(value, str) and value != "auto":
            try:
                return float(Fraction(value))
            except (ValueError, ZeroDivisionError):
                raise ValueError(f"must be 'auto', a number or a fraction such as 1/250, not {value!r}") from None
        return value

    @field_validator("rate")
    @classmethod
    def _range(cls, value: float | str) -> float | str:
        if isinstance(value, float) and not 0 < value <= 1:
            raise ValueError(f"must be above 0 and at most 1, not {value:g}")
        return value


class Experiment(_Section):
    """A rail experiment: a workload, swept over modes and reconfiguration delays.

    ``policy`` replaces Opus in modes on-demand and provisioned (``module:Class`` or ``file.py:Class``).
    ``controller`` ``remote`` leaves the switches to the OpenFlow controller that listens at ``remote``; ``rest`` is
    where ours offers its REST interface (``127.0.0.1:8080``), None offers none. ``ack_timeout_s`` is wall-clock time.
    """

    experiment: Literal["rail-reconfiguration"] = "rail-reconfiguration"
    workload: str = "llama3-8b-16"
    modes: tuple[Mode, ...] = ("electrical", "one-shot", "on-demand", "provisioned")
    delays_ms: tuple[float, ...] = (0.0, 50.0, 200.0)
    link_recovery_ms: float = Field(default=0.0, ge=0, le=600_000)
    steps: int = Field(default=3, ge=1, le=10_000)
    seed: int = Field(default=1, ge=0)
    overlap: bool = False
    tp_on_packets: bool = False
    verify: bool = False
    fabric: FabricSection = FabricSection()
    scale: ScaleSection = ScaleSection()
    policy: str | None = None
    controller: Literal["ryu", "os-ken", "remote"] = "ryu"
    remote: str = Field(default="127.0.0.1:6653", pattern=r"^[^:]+:[0-9]{1,5}$")
    rest: str | None = None
    datapath: Literal["auto", "system", "netdev"] = "auto"
    ack_timeout_s: float = Field(default=30.0, gt=0, le=3600)

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
            raise ValueError("policy needs mode on-demand or provisioned; the baselines bring their own wiring")
        if self.controller == "remote" and set(self.modes) != {"native"}:
            raise ValueError("controller remote needs modes [native]: your own controller wires the fabric by itself")
        if self.fabric.kind == "ocs" and self.controller != "remote":
            raise ValueError("fabric.kind ocs needs controller remote; our optical modes are on-demand and provisioned")
        return self

    def fabric_of(self, mode: Mode) -> str:
        """The fabric that ``mode`` runs on: ``ocs``, ``electrical`` or ``one-shot``."""
        return self.fabric.kind if mode == "native" else FABRIC_OF_MODE[mode]

    def points(self) -> tuple[tuple[Mode, float], ...]:
        """(mode, delay in ms) of every measured point, baselines first; they have no delay to sweep."""
        ordered = [m for m in MODES if m in self.modes]
        return tuple(
            (mode, delay)
            for mode in ordered
            for delay in (self.delays_ms if mode in ("on-demand", "provisioned") else (0.0,))
        )


def make_experiment(values: Mapping[str, Any], source: str | None = None) -> Experiment:
    """The experiment that ``values`` describe; ``ConfigError`` names the first wrong key and what would be right."""
    try:
        return Experiment.model_validate(dict(values))
    except ValidationError as error:
        raise _config_error(error, source) from None


def load_experiment(path: Path) -> Experiment:
    """The experiment of a YAML file; a workload file it names is looked up beside it."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror}); name an experiment file", source=str(path)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ConfigError(f"is not YAML: {getattr(error, 'problem', error)}", source=place) from None
    if not isinstance(data, dict):
        raise ConfigError("must be a mapping of keys such as workload, modes, delays_ms", source=str(path))
    beside = path.parent / str(data.get("workload", ""))
    if data.get("workload") and beside.is_file():
        data["workload"] = str(beside)
    return make_experiment(data, str(path))


def _config_error(error: ValidationError, source: str | None) -> ConfigError:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("float", "literal"))) or None
    if first["type"] == "extra_forbidden":
        known = ", ".join(_known_keys(first["loc"]))
        return ConfigError(f"is not a key of an experiment; the keys here are {known}", key=key, source=source)
    message = first["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if first["type"] != "value_error" and not isinstance(first["input"], dict):
        message += f", not {first['input']!r}"
    return ConfigError(message, key=key, source=source)


def _known_keys(loc: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = Experiment
    for part in loc[:-1]:
        annotation = model.model_fields[str(part)].annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return sorted(model.model_fields)
