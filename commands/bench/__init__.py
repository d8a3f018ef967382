"""Benchmarks of Railyard on this machine: each value beside its limit and, if there is one, a stock tool's value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from measure.results.row import ResultRow
from railyard.errors import MachineError

Datapath = Literal["auto", "bpf", "ovs"]


class NotMeasured(MachineError):
    """A benchmark could not measure; the message says in one sentence what it could not measure, and why."""


@dataclass
class Measurement(ResultRow):
    """One value of a benchmark; if nothing could be measured, ``value`` is None and ``ok`` False."""

    name: Annotated[str, "what was measured"]
    value: Annotated[float | None, "the value"]
    unit: Annotated[str, "unit of the value"]
    baseline: Annotated[float | None, "the stock tool's value in the same run"] = None
    ratio: Annotated[float | None, "how many times better the value is than the baseline"] = None
    limit: Annotated[float | None, "bound of the value, or of the ratio, as the name says"] = None
    ok: Annotated[bool | None, "whether the bound was kept"] = None
    why_not: Annotated[str, "why nothing was measured"] = ""
    datapath: Annotated[str, "datapath that was measured: bpf or ovs"] = ""


@dataclass
class QuickRun(Measurement):
    """One run of benchmark ``quick``: ``value`` of its points, of which there are ``limit``, are faithful."""

    run: Annotated[int | None, "number of the run, from 1"] = None
    seconds: Annotated[float | None, "duration of the command"] = None
    off: Annotated[float | None, "largest difference of a step to the model, as a share"] = None
    others: Annotated[float | None, "largest share of all processors that other programs used during a point"] = None
    verdict: Annotated[str, "verdict of the first point that is not faithful"] = ""


@dataclass
class ModelRow(Measurement):
    """One row of benchmark ``model``: ``value`` is measured over predicted less 1, ``limit`` the largest of that."""

    measured_s: Annotated[float | None, "measured median, in seconds of the real system"] = None
    predicted_s: Annotated[float | None, "prediction, made before the run"] = None
    n: Annotated[int | None, "measurements of the row"] = None
    faithful: Annotated[bool | None, "whether the measurement was faithful"] = None


def at_most(name: str, value: float, unit: str, limit: float | None) -> Measurement:
    """A measurement whose ``limit`` is the largest value that is good; None where there is none."""
    return Measurement(name, value, unit, limit=limit, ok=None if limit is None else value <= limit)


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
