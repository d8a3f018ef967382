"""Distributions of the lateness of a straggler: fixed, log-normal, or replayed from a measurement.

A gap is the time in seconds between the arrivals of the straggler and of the last rank before it. Gaps of 4 A100s that
train Llama-3.2-3B: median 7, mean 9.5, p90 19, max 22 ms beside an all-reduce of 118 ms (StragglAR, arXiv 2505.23523,
and the log published with it); a log-normal distribution with sigma 0.78 has these median, mean and p90.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, repeat
from pathlib import Path

from railyard.errors import ConfigError
from railyard.reading import read_text

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_MOST_FILE_BYTES = 1 << 20
_DURATION = re.compile(r"([0-9.]+(?:e-?[0-9]+)?)\s*(s|ms|us)?", re.ASCII | re.IGNORECASE)


def seconds(text: str, key: str) -> float:
    """Parse ``0.3``, ``300ms`` or ``7us`` to seconds; raises ``ConfigError`` naming ``key``."""
    match = _DURATION.fullmatch(text.strip())
    try:
        value = float(match[1]) * UNITS[(match[2] or "s").lower()] if match else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise ConfigError(f"must be a time of 0 or more such as 0.3, 300ms or 7us, not {text!r}", key=key)
    return value


@dataclass(frozen=True)
class Fixed:
    """The same gap in every step."""

    seconds: float

    def draw(self, source: random.Random) -> Iterator[float]:
        return repeat(self.seconds)


@dataclass(frozen=True)
class LogNormal:
    """Gaps exp(N(ln ``median_s``, ``sigma``)), limited to ``most_s``."""

    median_s: float
    sigma: float
    most_s: float = math.inf

    def draw(self, source: random.Random) -> Iterator[float]:
        while True:
            gap = self.median_s * math.exp(self.sigma * source.gauss(0.0, 1.0))
            yield min(gap, self.most_s)


@dataclass(frozen=True)
class Replay:
    """A list of gaps that is repeated when there are more steps."""

    gaps_s: tuple[float, ...]

    def draw(self, source: random.Random) -> Iterator[float]:
        return cycle(self.gaps_s)

    @staticmethod
    def read(path: Path, unit: str | None = None, factor: float = 1.0) -> Replay:
        """Read the gaps of a file, times ``factor``.

        JSON: a list under ``gaps_s``, ``gaps_ms`` or ``gaps_us``, whose name gives the unit. Any other file: one number
        per line (``#`` begins a comment) in ``unit``. Raises ``ConfigError`` with file and place.
        """
        if unit is not None and unit not in UNITS:
            raise ConfigError(f"must be one of {', '.join(UNITS)}, not {unit}", key="unit")
        text = read_text(path, _MOST_FILE_BYTES, "a file of JSON, or of text with one number per line,")
        gaps = _from_json(text, unit, path) if text.lstrip().startswith("{") else _from_lines(text, unit, path)
        if not gaps:
            raise ConfigError("must hold at least one gap", source=str(path))
        return Replay(tuple(gap * factor for gap in gaps))


def _from_json(text: str, unit: str | None, path: Path) -> list[float]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"is not JSON: {error.msg}", source=f"{path}:{error.lineno}") from None
    except (ValueError, RecursionError):  # too many digits or too deep nesting
        raise ConfigError("is not readable JSON", source=str(path)) from None
    keys = [f"gaps_{name}" for name in UNITS if f"gaps_{name}" in data]
    if len(keys) != 1 or not isinstance(data[keys[0]], list):
        raise ConfigError("must have one list, gaps_s, gaps_ms or gaps_us", source=str(path))
    own = keys[0].removeprefix("gaps_")
    if unit not in (None, own):
        raise ConfigError(f"{keys[0]} is in {own}, which the option contradicts with {unit}", key="unit")
    return [_gap(value, own, f"{path}: {keys[0]}[{place}]") for place, value in enumerate(data[keys[0]])]


def _from_lines(text: str, unit: str | None, path: Path) -> list[float]:
    lines = [(number, line.split("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1)]
    found = [(number, line) for number, line in lines if line]
    if found and unit is None:
        raise ConfigError(f"a file without a unit needs one, for example replay:{path.name},unit=ms", source=str(path))
    return [_gap(line, unit or "s", f"{path}:{number}") for number, line in found]


def _gap(value: object, unit: str, place: str) -> float:
    """One gap in seconds; raises ``ConfigError`` with its place where it is invalid."""
    try:
        gap = -1.0 if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        gap = -1.0
    if not 0 <= gap < math.inf:
        raise ConfigError(f"a gap is a number of {unit}, 0 or more, not {value!r:.40}", source=place)
    return gap * UNITS[unit]
