"""Shared by the readers: their result, the units of times, and the largest message.

Files do not state the unit of their compute times, and their writers do not agree: ASTRA-sim documents cycles of its
simulated clock; AICB measures kernels and appears to write nanoseconds; Chakra has one column that is microseconds by
name and attributes that are not. So the user names the unit; it is never assumed.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

from railyard.errors import ConfigError
from workloads.program import Program

MOST_MESSAGE_BYTES = 1 << 50
"""Largest size of one message or collective that a file may have."""


@dataclass(frozen=True)
class Reading:
    """A file read as a program; ``format`` names its format, ``notes`` are sentences about its interpretation."""

    format: str
    program: Program
    notes: tuple[str, ...] = ()


UNITS = "ns, us, ms, s, cycles:GHZ (cycles:1 for a clock of 1 GHz), or ignore to leave compute out"
OPERATIONS_UNIT = "tflops:RATE (operations, done at RATE TFLOP/s)"
_PER_SECOND = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0, "ignore": math.inf}
_PER_RATE = {"cycles": 1e9, "tflops": 1e12}
LONGEST_S = 1e9
"""A compute that lasts longer than this (31 years) was read with the wrong unit."""


@dataclass(frozen=True)
class ComputeUnit:
    """Unit with ``per_second`` units in a second; with ``operations`` the unit is one arithmetic operation."""

    name: str
    per_second: float
    operations: bool = False

    def of(self, value: float, source: str) -> float:
        """Convert ``value`` to seconds; raises ``ConfigError`` for an invalid time."""
        seconds = value / self.per_second
        if not 0 <= seconds <= LONGEST_S:
            raise ConfigError(
                f"a compute time of {value:g} {self.name} is not a time between 0 and {LONGEST_S:g} s", source=source
            )
        return seconds


def read_unit(text: str | None) -> ComputeUnit | None:
    """The unit that ``text`` names (None for None); ``ConfigError`` lists the known units."""
    if text is None:
        return None
    name, colon, rate = text.strip().lower().partition(":")
    if not colon and name in _PER_SECOND:
        return ComputeUnit(name, _PER_SECOND[name])
    if name in _PER_RATE:
        with suppress(ValueError):
            if 0 < float(rate) < math.inf:
                return ComputeUnit(text.strip(), float(rate) * _PER_RATE[name], operations=name == "tflops")
    raise ConfigError(f"{text!r} is not a unit; the units are {UNITS}, {OPERATIONS_UNIT}", key="compute_unit")
