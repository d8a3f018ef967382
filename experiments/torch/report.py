"""Report of a PyTorch script: the tables and figures of a rail experiment, and each step with its loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from experiments.racks.report import fault_rows, recovery_findings, recovery_tables
from experiments.rails.report import REPORT as RAILS
from experiments.report import FAITHFUL, Cell, Column, Drawn, Recorded, Report, Table, off_percent, to_nothing
from measure.results.row import Row
from railyard.digits import significant

_MOST_STEPS = 12
_STEPS = (
    Column("mode", "mode", left=True),
    Column("delay\nms", "reconfiguration_delay_ms", "g"),
    Column("step", "step", "d"),
    Column("loss", "loss", ".6g"),
    Column("took\ns", "step_time_s", significant),
    Column("model\ns", "predicted_step_time_s", significant),
    Column("off\n%", lambda row: off_percent(row["step_time_s"], row["predicted_step_time_s"]), "+.1f"),
    FAITHFUL,
)


def step_rows(row: Row) -> list[Row]:
    """A row for each step that was measured, by the number that the script gives it."""
    losses = {int(step): loss for step, loss in row["losses"].items()}
    first = row["first_step"]
    return [
        {**row, "step": first + place, "loss": losses.get(first + place), "step_time_s": took}
        for place, took in enumerate(row["step_times_s"])
    ]


def _of_points(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if "losses" in row]


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    points = _of_points(rows)
    yield from RAILS.tables(points)
    if fault_rows(rows):
        yield from recovery_tables(rows)
    for row in points:
        steps = step_rows(row)
        shown = steps if len(steps) <= _MOST_STEPS else [*steps[: _MOST_STEPS // 2], *steps[-_MOST_STEPS // 2 :]]
        if shown:
            left = f", {len(steps) - len(shown)} between not shown" if len(shown) < len(steps) else ""
            yield Table(f"Steps over the rails, {RAILS.point(row)}{left}", _STEPS, shown)


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[Cell]:
    points = _of_points(rows)
    yield from RAILS.findings(points, settings)
    yield from recovery_findings(rows)
    last = {row["loss"] for row in points if row["loss"] is not None}
    if len(points) > 1 and last:
        spread = max(last) - min(last)
        yield f"Losses of the last step: from {min(last):.6g} to {max(last):.6g} over all points, {spread:.2g} apart."


def _title(rows: Sequence[Row]) -> str:
    return f"{rows[0]['workload']}: loss and step time"


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from measure.figures.plot import Plot, figure_of

    rows = _of_points(recorded.rows)
    yield from RAILS.figures(replace(recorded, rows=rows))
    by_step = partial(Plot, "step", series=RAILS.point, ticks="{:g}".format, height=1.8)
    took = by_step("step_time_s", ("step of the script", "step time (s)"), model="predicted_step_time_s")
    loss = by_step(
        "loss", ("step of the script", "loss"), _title, joined=True, below=took, caption="lines below: model"
    )
    steps = [step for row in rows for step in step_rows(row)]
    known = [step for step in steps if step["loss"] is not None]
    yield Drawn("losses", figure_of(loss if known else took, known or steps), rows)


def _point(row: Row) -> str:
    return RAILS.point(row) if "losses" in row else str(row["event"])


REPORT = Report(tables=_tables, point=_point, findings=_findings, figures=_figures, calibrated=to_nothing)
