"""Benchmarks: what this machine carries, each number beside its limit and, where there is one, the stock tool's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from railyard.errors import MachineError


class NotMeasured(MachineError):
    """A bench could not measure. The message is one sentence: what it could not measure, and why."""


@dataclass(frozen=True)
class Measurement:
    """One measured number.

    ``baseline`` is what the stock tool reached in the same run, ``ratio`` how many times better ``value`` is,
    ``limit`` what ``value`` (or ``ratio``, as the name says) must reach, ``ok`` whether it did; None where there
    is none. Where nothing could be measured ``value`` is None, ``why_not`` says why, and ``ok`` is False.
    """

    name: str
    value: float | None
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    limit: float | None = None
    ok: bool | None = None
    why_not: str = ""


def not_measured(name: str, why: object) -> Measurement:
    """The row of something that could not be measured."""
    return Measurement(name, None, "", ok=False, why_not=str(why))


def finite(found: Iterable[Measurement]) -> list[Measurement]:
    """``found``, with a row that says so in place of each number that is none (infinite, or not a number)."""
    rows = []
    for one in found:
        bad = [n for n in (one.value, one.baseline, one.ratio) if n is not None and not math.isfinite(n)]
        rows.append(not_measured(one.name, f"the measurement gave {bad[0]:g}, which is no number") if bad else one)
    return rows
