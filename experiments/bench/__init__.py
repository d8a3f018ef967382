"""Benchmarks of Railyard on this machine: each value beside its limit and, if there is one, a stock tool's value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from railyard.errors import MachineError


class NotMeasured(MachineError):
    """A benchmark could not measure; the message says in one sentence what it could not measure, and why."""


@dataclass(frozen=True)
class Measurement:
    """One value of a benchmark, in ``unit``.

    ``baseline`` is the stock tool's value in the same run, ``ratio`` how many times better ``value`` is, ``limit`` the
    bound of ``value`` (or of ``ratio``, as the name says), and ``ok`` whether the bound was kept; None where there is
    none. If nothing could be measured, ``value`` is None, ``why_not`` gives the reason, and ``ok`` is False.
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
    """The row of a value that could not be measured, for the reason ``why``."""
    return Measurement(name, None, "", ok=False, why_not=str(why))


def finite(found: Iterable[Measurement]) -> list[Measurement]:
    """``found``, with each measurement that is infinite or not a number replaced by a row that says so."""
    rows = []
    for one in found:
        bad = [n for n in (one.value, one.baseline, one.ratio) if n is not None and not math.isfinite(n)]
        rows.append(not_measured(one.name, f"the measurement gave {bad[0]:g}, which is no number") if bad else one)
    return rows
