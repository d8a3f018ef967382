"""Figures of runs with a fault: throughput over time, and step times before and after.

The first takes the throughput of each job (``experiments.racks.throughput``), the second rows of a summary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.racks.row import NEIGHBOUR, PHOTONIC, SLOWDOWN
from experiments.racks.throughput import FabricRun
from measure.figures.looks import FABRICS, LIGHT, PARTS, TENANTS, TEXT, Look
from measure.figures.panels import caption, mark, unfaithful_mark
from measure.figures.style import MEDIUM, PAGE, entry, legend, new_figure, note, style_axes
from measure.metrics.estimate import Estimate
from measure.results.estimates import estimate_of

Rows = Sequence[Mapping[str, Any]]
_MARKS = {
    "fault": "chip killed",
    "detect": "detected",
    "rewire": "circuits or routes up",
    "first step": "first step done",
}
"""Vertical lines in the throughput figure: names in the legend, by the part of the recovery that ends there."""
_WHEN = {"before": "<", "after": ">"}
"""Markers of step times before and after the fault."""


def throughput_over_time(runs: Sequence[FabricRun]) -> Figure | None:
    """Figure of throughput over time with a panel for each fabric, on the same axes; None without runs."""
    if not runs:
        return None
    figure = new_figure(PAGE, 0.4 + 0.95 * len(runs))
    panels = figure.subplots(len(runs), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    first, last = _time_range(runs)
    highest = max(0.001, *(rate for run in runs for series in run.series for rate in series.gbps))
    for panel, run in zip(panels, runs, strict=True):
        for series, look in zip(run.series, TENANTS.values(), strict=False):
            panel.stairs(series.gbps, series.edges_s, color=look.colour, linewidth=0.9, zorder=3)
        _mark(panel, run)
        panel.set_ylim(0, 1.12 * highest)
        panel.set_xlim(first, last)
        lost = "" if run.recovery.state == "recovered" else f": {run.recovery.state}"
        style_axes(panel, f"{run.fabric} ({run.system}){lost}", "", "rate (Gb/s)", grid="both")
    panels[-1].set_xlabel("time after the fault (s)", color=TEXT, fontsize=MEDIUM)
    job, neighbour = TENANTS["job"], TENANTS["neighbour"]
    handles = [entry("job, payload of all ranks", job.colour)]
    if any(len(run.series) > 1 for run in runs):
        handles.append(entry(neighbour.name, neighbour.colour))
    handles += [entry(name, PARTS[end].colour, linestyle=PARTS[end].dashes) for end, name in _MARKS.items()]
    legend(figure, handles, 6)
    return figure


def _time_range(runs: Sequence[FabricRun]) -> tuple[float, float]:
    """Limits of the time axis: from the first byte of any job until the end of the last job that lost a chip."""
    first = min(series.edges_s[0] for run in runs for series in run.series)
    jobs = [run.series[0] for run in runs]
    ends = [edge for job in jobs for edge, rate in zip(job.edges_s[1:], job.gbps, strict=True) if rate > 0]
    last = max((*ends, *(t for run in runs for t in run.marks.values()), 0.1))
    return first, last + 0.02 * (last - first)


def _mark(panel: Axes, run: FabricRun) -> None:
    reached = {"fault": 0.0, **run.marks}
    for name in _MARKS:
        if name in reached:
            look = PARTS[name]
            panel.axvline(reached[name], color=look.colour, linestyle=look.dashes, linewidth=0.9, zorder=4)
    if "first step" in reached:
        panel.axvspan(0.0, reached["first step"], color=LIGHT, alpha=0.6, linewidth=0, zorder=0)


def step_times(rows: Rows) -> Figure | None:
    """Figure of step times of job and neighbour before and after the fault on each fabric; None without step times.

    The band over electrical fabrics is a range of ratios to the step on the photonic fabric, derived by us.
    """
    first_of_each = {(row["fabric"], row["tenant"]): row for row in reversed(rows) if row["step_time_before_s"]}
    rows = [row for row in rows if row is first_of_each.get((row["fabric"], row["tenant"]))]
    fabrics = list(dict.fromkeys(row["fabric"] for row in rows))
    if not rows:
        return None
    figure = new_figure(height=2.3)
    axes = figure.add_subplot()
    base = next((r["step_time_after_s"] for r in rows if r["fabric"] == PHOTONIC and r["event"] != NEIGHBOUR), None)
    tallest = 0.0
    for place, fabric in enumerate(fabrics):
        mine = [row for row in rows if row["fabric"] == fabric]
        tallest = max(tallest, _fabric_steps(axes, mine, place))
        if base and any(row["derived_after_to_photonic_low"] for row in mine):
            low, high = (base * ratio for ratio in SLOWDOWN.bounds)
            axes.fill_between(
                (place - 0.44, place + 0.02),
                low,
                high,
                color=FABRICS[PHOTONIC].colour,
                alpha=0.15,
                linewidth=0,
                zorder=1,
            )
            tallest = max(tallest, high)
    axes.set_xticks(range(len(fabrics)), fabrics)
    axes.set_xlim(-0.5, len(fabrics) - 0.5)
    axes.set_ylim(0, tallest * 1.12)
    style_axes(axes, "Step time before and after the fault", "", "step time (s)", grid="y")
    _step_legend(figure, rows, banded=bool(base))
    return figure


def _fabric_steps(axes: Axes, rows: Rows, place: int) -> float:
    """Draw the step times of one fabric, two of the job and two of the neighbour; returns the longest."""
    tallest = 0.0
    for row in rows:
        tenant, left = ("neighbour", place + 0.15) if row["event"] == NEIGHBOUR else ("job", place - 0.32)
        for x, when in ((left, "before"), (left + 0.2, "after")):
            look = _look(tenant, when)
            value, model = _step(row, when), row[f"predicted_step_time_{when}_s"] or 0.0
            if value is not None:
                mark(axes, x, value, look, faithful=row["faithful"] is not False)
                top = value.median if value.high is None else value.high
                note(axes, f"{value.median:.2f}", (x, max(top, model)), (0, 3), ha="center", va="bottom")
                tallest = max(tallest, top)
            if model:
                axes.plot((x - 0.09, x + 0.09), (model, model), color=look.colour, linewidth=1.2, zorder=2)
            tallest = max(tallest, model)
    return tallest


def _look(tenant: str, when: str) -> Look:
    return replace(TENANTS[tenant], name=f"{TENANTS[tenant].name} {when}", marker=_WHEN[when])


def _step(row: Mapping[str, Any], when: str) -> Estimate | None:
    return estimate_of(row, f"step_time_{when}_s")


def _step_legend(figure: Figure, rows: Rows, *, banded: bool) -> None:
    tenants = ["job", *(["neighbour"] if any(row["event"] == NEIGHBOUR for row in rows) else [])]
    shown = [_look(tenant, when) for tenant in tenants for when in _WHEN]
    handles: list[Patch | Line2D] = [entry(each.name, each.colour, marker=each.marker, linestyle="") for each in shown]
    if banded and any(row["derived_after_to_photonic_low"] for row in rows):
        words = f"{SLOWDOWN.label}: {SLOWDOWN.shown()} x photonic"
        handles.append(Patch(facecolor=FABRICS[PHOTONIC].colour, alpha=0.15, label=words))
    if any(row["faithful"] is False for row in rows):
        handles.append(unfaithful_mark())
    values = [value for row in rows for when in _WHEN if (value := _step(row, when)) is not None]
    modelled = any(row[f"predicted_step_time_{when}_s"] for row in rows for when in _WHEN)
    legend(figure, handles, 4, caption(values, model=modelled))
