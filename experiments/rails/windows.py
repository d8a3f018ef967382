"""Windows between two phases of a job by the dimensions of the phases, pooled over ranks, steps and repeats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from experiments.rails.settings import MODES
from measure.metrics.point import within
from measure.metrics.steps import Steps
from measure.metrics.windows import Transition, read_phases, windows_between
from measure.results.row import Row
from railyard.scale import Scale
from railyard.timeline import Event


@dataclass(frozen=True)
class PooledWindows:
    """Windows in real seconds by transition, of ``repeats`` measurements of one mode."""

    mode: str
    repeats: int
    seconds: Mapping[Transition, Sequence[float]]


def pooled_windows(
    rows: Sequence[Row], events: Sequence[Event], scale: Scale, left_out: Collection[int] = ()
) -> PooledWindows | None:
    """The windows of the first mode that has any, at its shortest delay; None without events of windows.

    The first modes have no reconfigurations, so that their windows are those of the job alone. ``left_out`` are the
    numbers of points that do not count (``measure.results.manifest.left_out``).
    """
    points = [e for e in events if e.source == "run" and e.kind == "point" and e.end is not None]
    points = [e for e in points if e["point"] not in left_out]
    for mode in MODES:
        measured = [row for row in rows if row["mode"] == mode and row.get("step_time_s") is not None]
        row = min(measured, key=lambda row: float(row["reconfiguration_delay_ms"]), default=None)
        if row is None:
            continue
        found = _of_row(row, points, events, scale)
        if found is not None:
            return found
    return None


def _of_row(row: Row, points: Sequence[Event], events: Sequence[Event], scale: Scale) -> PooledWindows | None:
    seconds: dict[Transition, list[float]] = defaultdict(list)
    repeats = 0
    for e in points:
        if e.end is not None and _is_of(e, row, scale):
            inside = within(events, e.t, e.end)
            measured = Steps.read(inside).complete[row["warmup_steps"] :]
            found = windows_between(read_phases(inside), measured)
            repeats += bool(found)
            for transition, window in found:
                seconds[transition].append(scale.real_s(window))
    return PooledWindows(row["mode"], repeats, seconds) if seconds else None


def _is_of(point: Event, row: Row, scale: Scale) -> bool:
    delay_ms = scale.real_s(point["delay_s"]) * 1e3
    return bool(point["mode"] == row["mode"] and abs(delay_ms - row["reconfiguration_delay_ms"]) < 1e-3)
