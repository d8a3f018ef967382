"""Figures of runs with a fault: throughput over time, and step times before and after.

The first takes the throughput of each job (``experiments.racks.throughput``), the second rows of a summary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.racks.row import NEIGHBOUR, PHOTONIC, SLOWDOWN
from experiments.racks.throughput import FabricRun
from measure.figures.style import BLACK, BLUE, GREEN, LIGHT, ORANGE, PURPLE, TEXT, VERMILION, new_figure, style_axes

Rows = Sequence[Mapping[str, Any]]
_JOB, _NEIGHBOUR = BLUE, ORANGE
_MARKS: Mapping[str, tuple[str, str, Any]] = {
    "fault": ("chip killed", VERMILION, "-"),
    "detect": ("detected", BLACK, (0, (1, 1))),
    "rewire": ("circuits or routes up", PURPLE, (0, (4, 2))),
    "first step": ("first step done", GREEN, (0, (6, 2, 1, 2))),
}
"""Vertical lines in the throughput figure, by the part of the recovery that ends there: legend, colour, line style."""


def throughput_over_time(runs: Sequence[FabricRun]) -> Figure | None:
    """Figure of throughput over time with a panel for each fabric, on the same axes; None without runs."""
    if not runs:
        return None
    figure = new_figure(10.0, 1.5 + 1.75 * len(runs))
    panels = figure.subplots(len(runs), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    first, last = _time_range(runs)
    highest = max(0.001, *(rate for run in runs for series in run.series for rate in series.gbps))
    for panel, run in zip(panels, runs, strict=True):
        for series, colour in zip(run.series, (_JOB, _NEIGHBOUR), strict=False):
            panel.stairs(series.gbps, series.edges_s, color=colour, linewidth=1.4, zorder=3)
        _mark(panel, run)
        panel.set_ylim(0, 1.12 * highest)
        panel.set_xlim(first, last)
        panel.grid(color=LIGHT, linewidth=0.7)
        panel.set_axisbelow(True)
        lost = "" if run.recovery.state == "recovered" else f": {run.recovery.state}"
        style_axes(panel, f"{run.fabric} ({run.system}){lost}", "", "Gb/s")
    panels[-1].set_xlabel("time after the fault (s)", color=TEXT)
    handles = [Line2D([], [], color=_JOB, label="job, payload of all ranks")]
    if any(len(run.series) > 1 for run in runs):
        handles.append(Line2D([], [], color=_NEIGHBOUR, label="second tenant"))
    handles += [Line2D([], [], color=colour, linestyle=dash, label=name) for name, colour, dash in _MARKS.values()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=8.5)
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
    for name, (_, colour, dash) in _MARKS.items():
        if name in reached:
            panel.axvline(reached[name], color=colour, linestyle=dash, linewidth=1.3, zorder=4)
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
    figure = new_figure(2.6 + 1.9 * len(fabrics), 4.9)
    axes = figure.add_subplot()
    base = next((r["step_time_after_s"] for r in rows if r["fabric"] == PHOTONIC and r["event"] != NEIGHBOUR), None)
    tallest = 0.0
    for place, fabric in enumerate(fabrics):
        mine = [row for row in rows if row["fabric"] == fabric]
        tallest = max(tallest, _fabric_bars(axes, mine, place))
        if base and any(row["derived_after_to_photonic_low"] for row in mine):
            low, high = (base * ratio for ratio in SLOWDOWN.bounds)
            axes.fill_between((place - 0.44, place + 0.02), low, high, color=GREEN, alpha=0.22, linewidth=0, zorder=1)
            tallest = max(tallest, high)
    axes.set_xticks(range(len(fabrics)), fabrics)
    axes.set_ylim(0, tallest * 1.12)
    axes.grid(axis="y", color=LIGHT, linewidth=0.7)
    axes.set_axisbelow(True)
    style_axes(axes, "Step time before and after the fault", "", "s")
    _step_legend(figure, rows, banded=bool(base))
    return figure


def _fabric_bars(axes: Axes, rows: Rows, place: int) -> float:
    """Draw the bars of one fabric, two of the job and two of the neighbour; returns the height of the tallest."""
    tallest = 0.0
    for row in rows:
        colour, left = (_NEIGHBOUR, place + 0.15) if row["event"] == NEIGHBOUR else (_JOB, place - 0.34)
        for x, when, face in ((left, "before", "white"), (left + 0.2, "after", colour)):
            value, model = row[f"step_time_{when}_s"] or 0.0, row[f"predicted_step_time_{when}_s"] or 0.0
            top = max(value, model)
            if value:
                axes.bar(x, value, 0.17, color=face, edgecolor=colour, linewidth=1.4, zorder=2)
                look: Any = {"ha": "center", "va": "bottom", "fontsize": 8, "color": TEXT, "zorder": 6}
                axes.text(x, top, f"{value:.2f}", **look)
            if model:
                axes.plot((x - 0.095, x + 0.095), (model, model), color=BLACK, linewidth=1.6, zorder=4)
            tallest = max(tallest, top)
    return tallest


def _step_legend(figure: Figure, rows: Rows, *, banded: bool) -> None:
    handles: list[Patch | Line2D] = [Patch(facecolor="white", edgecolor=_JOB, label="job before")]
    handles.append(Patch(color=_JOB, label="job after"))
    if any(row["event"] == NEIGHBOUR for row in rows):
        handles.append(Patch(facecolor="white", edgecolor=_NEIGHBOUR, label="second tenant before"))
        handles.append(Patch(color=_NEIGHBOUR, label="after"))
    handles.append(Line2D([], [], color=BLACK, linewidth=1.6, label="model"))
    if banded and any(row["derived_after_to_photonic_low"] for row in rows):
        words = f"{SLOWDOWN.label}: {SLOWDOWN.shown()} x photonic"
        handles.append(Patch(facecolor=GREEN, alpha=0.22, label=words))
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False, fontsize=8.5)
