"""Settings that all experiments share, with the reading and checking of experiment files (YAML)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from railyard.errors import ConfigError
from railyard.scale import Scale
from railyard.validation import config_error


class Section(BaseModel):
    """Part of an experiment file; unknown keys are refused and values cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ScaleSection(Section):
    """Scale section of an experiment file.

    ``rate`` is emulated / real link rate (a number, ``1/250`` or ``auto``), ``time`` emulated seconds per real second.
    """

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

    def scale(self) -> Scale:
        """The scale of an experiment that states its rate; ``ConfigError`` for ``auto``."""
        if self.rate == "auto":
            raise ConfigError("must be a number here: this experiment states its rates and sizes", key="scale.rate")
        return Scale(self.rate, self.time)


class Settings(Section):
    """The keys that all experiments share: seed, controller and datapath of the fabric.

    ``controller`` ``remote`` leaves the switches to the OpenFlow controller that listens at ``remote``. ``rest`` is the
    address of our controller's REST interface (``127.0.0.1:8080``), or None for no interface. ``ack_timeout_s`` is the
    timeout of a controller's reply in wall-clock seconds.
    """

    seed: int = Field(default=1, ge=0)
    verify: bool = False
    controller: Literal["ryu", "os-ken", "remote"] = "ryu"
    remote: str = Field(default="127.0.0.1:6653", pattern=r"^[^:]+:[0-9]{1,5}$")
    rest: str | None = None
    datapath: Literal["auto", "system", "netdev"] = "auto"
    ack_timeout_s: float = Field(default=30.0, gt=0, le=3600)


_S = TypeVar("_S", bound=Section)


def validated(model: type[_S], values: Mapping[str, Any], source: str | None = None) -> _S:
    """The ``model`` that ``values`` describe; ``ConfigError`` names the first wrong key and what would work."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise config_error(error, model, "an experiment", source=source) from None


def read_yaml(path: Path, hint: str) -> dict[str, Any]:
    """The mapping in a YAML file; ``ConfigError`` names the file and the line.

    ``hint`` names keys that such a file could hold, for the error about a file without a mapping.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror}); name an experiment file", source=str(path)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ConfigError(f"is not YAML: {getattr(error, 'problem', error)}", source=place) from None
    if not isinstance(data, dict):
        raise ConfigError(f"must be a mapping of keys such as {hint}", source=str(path))
    return data


def read_experiment(model: type[Section], path: Path, hint: str) -> dict[str, Any]:
    """Keys and values of an experiment file, checked before options are added: an error then names the file."""
    values = read_yaml(path, hint)
    validated(model, values, str(path))
    return values
