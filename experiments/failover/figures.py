"""Figures of the failover experiment: throughput over time, parts of the recovery, step times before and after.

Each figure takes rows of a summary (``experiments.racks.row``), the first also the throughput of each job over time.
``experiments.racks.redraw`` reads both from a results folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.racks.job_throughput import JobThroughput
from experiments.racks.row import PAPER_SLOWDOWN, PHOTONIC
from measure.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LIGHT,
    ORANGE,
    PURPLE,
    SKY,
    TEXT,
    VERMILION,
    YELLOW,
    new_figure,
    style_axes,
)

Rows = Sequence[Mapping[str, Any]]
PART_COLOURS = {
    "detect": VERMILION,
    "decide": BLACK,
    "rewire": PURPLE,
    "launch": GREY,
    "checkpoint": BLUE,
    "load": SKY,
    "library": ORANGE,
    "data": YELLOW,
    "start": "#8C8C8C",
    "first step": GREEN,
}
"""Colour of each part of a recovery, by its name in ``Recovery.breakdown``."""
_OTHER = "#A6761D"
_JOB, _NEIGHBOUR = BLUE, ORANGE
_MARKS: Mapping[str, tuple[str, str, Any]] = {
    "fault": ("chip killed", VERMILION, "-"),
    "detect": ("detected", BLACK, (0, (1, 1))),
    "rewire": ("circuits or routes up", PURPLE, (0, (4, 2))),
    "first step": ("first step done", GREEN, (0, (6, 2, 1, 2))),
}
"""Vertical lines in the throughput figure, by the part of the recovery that ends there: legend, colour, line style."""


@dataclass(frozen=True)
class FabricRun:
    """One fault on one fabric: throughput of job and neighbour, and ``marks``: ends of parts of the recovery.

    All times are in seconds after the fault.
    """

    fabric: str
    system: str
    job: JobThroughput
    neighbour: JobThroughput | None
    marks: tuple[tuple[str, float], ...]
    state: str = "recovered"


def throughput_over_time(runs: Sequence[FabricRun]) -> Figure | None:
    """Figure of throughput over time with a panel for each fabric, on the same axes; None without runs."""
    if not runs:
        return None
    figure = new_figure(10.0, 1.5 + 1.75 * len(runs))
    panels = figure.subplots(len(runs), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    first, last = _time_range(runs)
    for panel, run in zip(panels, runs, strict=True):
        for series, colour in ((run.neighbour, _NEIGHBOUR), (run.job, _JOB)):
            if series is not None:
                panel.stairs(series.gbps, series.edges_s, color=colour, linewidth=1.4, zorder=3)
        _mark(panel, run)
        panel.set_ylim(0, 1.12 * max(0.001, *(rate for one in runs for rate in _rates(one))))
        panel.set_xlim(first, last)
        panel.grid(color=LIGHT, linewidth=0.7)
        panel.set_axisbelow(True)
        lost = "" if run.state == "recovered" else f": {run.state}"
        style_axes(panel, f"{run.fabric} ({run.system}){lost}", "", "Gb/s")
    panels[-1].set_xlabel("time after the fault (s)", color=TEXT)
    handles = [Line2D([], [], color=_JOB, label="job, payload of all ranks")]
    if any(run.neighbour for run in runs):
        handles.append(Line2D([], [], color=_NEIGHBOUR, label="second tenant"))
    handles += [Line2D([], [], color=colour, linestyle=dash, label=name) for name, colour, dash in _MARKS.values()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=8.5)
    return figure


def _rates(run: FabricRun) -> list[float]:
    return [rate for series in (run.job, run.neighbour) if series for rate in series.gbps] or [0.0]


def _time_range(runs: Sequence[FabricRun]) -> tuple[float, float]:
    """Limits of the time axis: from the first byte of any job until the end of the last job that lost a chip."""
    series = [s for run in runs for s in (run.job, run.neighbour) if s is not None]
    first = min((s.edges_s[0] for s in series), default=-1.0)
    jobs = [edge for run in runs for edge, rate in zip(run.job.edges_s[1:], run.job.gbps, strict=True) if rate > 0]
    last = max((*jobs, *(t for run in runs for _, t in run.marks), 0.1))
    return first, last + 0.02 * (last - first)


def _mark(panel: Axes, run: FabricRun) -> None:
    reached = {"fault": 0.0, **dict(run.marks)}
    for name, (_, colour, dash) in _MARKS.items():
        if name in reached:
            panel.axvline(reached[name], color=colour, linestyle=dash, linewidth=1.3, zorder=4)
    if "first step" in reached:
        panel.axvspan(0.0, reached["first step"], color=LIGHT, alpha=0.6, linewidth=0, zorder=0)


def recovery_breakdown(rows: Rows) -> Figure | None:
    """Figure of each recovery in its parts, measured above predicted, on every fabric; None without a fault.

    Diamonds mark the times that the papers give.
    """
    rows = [row for row in rows if row.get("breakdown") or row.get("predicted_breakdown")]
    if not rows:
        return None
    figure = new_figure(10.0, 1.6 + 0.95 * len(rows))
    axes = figure.add_subplot()
    used: list[str] = []
    longest = max(sum(s for _, s in row.get(key) or ()) for row in rows for key in ("breakdown", "predicted_breakdown"))
    for place, row in enumerate(rows):
        for key, y, alpha in (("breakdown", place - 0.19, 1.0), ("predicted_breakdown", place + 0.19, 0.55)):
            parts = row.get(key) or ()
            total = _stack(axes, parts, y, alpha)
            used += [name for name, _ in parts]
            if parts:
                axes.text(total + 0.008 * longest, y, _total(row, key, total), va="center", fontsize=8.5, color=TEXT)
        _paper_points(axes, row, place)
    axes.set_yticks(range(len(rows)), [f"{row['fabric']}\n{row['system']}" for row in rows])
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.set_xlim(0, longest * 1.22)
    axes.grid(axis="x", color=LIGHT, linewidth=0.7)
    axes.set_axisbelow(True)
    style_axes(axes, "From the chip's death to the first step done again", "s after the fault", "")
    axes.tick_params(axis="y", length=0)
    _part_legend(figure, used, rows)
    return figure


def _stack(axes: Axes, parts: Sequence[tuple[str, float]], y: float, alpha: float, height: float = 0.34) -> float:
    """Draw the parts one after another as a bar; returns where the bar ends."""
    reached = 0.0
    for name, seconds in parts:
        look: Any = {"color": PART_COLOURS.get(name, _OTHER), "alpha": alpha, "edgecolor": "white", "linewidth": 0.4}
        axes.barh(y, seconds, height, left=reached, zorder=2, **look)
        reached += seconds
    return reached


def _total(row: Mapping[str, Any], key: str, total: float) -> str:
    if key == "predicted_breakdown":
        return f"{total:.2f} s model"
    if row.get("state", "recovered") != "recovered":
        return str(row["state"])
    return f"{total:.2f} s" + ("" if row.get("faithful", True) else " (not faithful)")


def _paper_points(axes: Axes, row: Mapping[str, Any], place: int) -> None:
    for key in ("paper_circuits_s", "paper_outage_s"):
        if row.get(key):
            axes.plot(row[key], place, marker="D", markersize=7, color="white", markeredgecolor=BLACK, zorder=5)


def paper_mark(label: str) -> Line2D:
    """The legend entry of a point from a paper: a diamond."""
    return Line2D([], [], marker="D", markersize=6, color="white", markeredgecolor=BLACK, linestyle="", label=label)


def _part_legend(figure: Figure, used: Sequence[str], rows: Rows) -> None:
    names = [name for name in PART_COLOURS if name in used] + sorted(set(used) - set(PART_COLOURS))
    handles: list[Patch | Line2D] = [Patch(facecolor=PART_COLOURS.get(name, _OTHER), label=name) for name in names]
    if any(row.get("paper_circuits_s") for row in rows):
        handles.append(paper_mark("paper (MORPHLUX)"))
    figure.legend(handles=handles, loc="outside upper center", ncols=6, frameon=False, fontsize=8.5)


def step_times(rows: Rows) -> Figure | None:
    """Figure of step times of job and neighbour before and after the fault on each fabric; None without step times.

    The band over electrical fabrics is the range of the papers: 1.6 to 2 times the step on the photonic fabric.
    """
    rows = [row for row in rows if row.get("step_time_before_s")]
    fabrics = list(dict.fromkeys(row["fabric"] for row in rows))
    if not rows:
        return None
    figure = new_figure(2.6 + 1.9 * len(fabrics), 4.9)
    axes = figure.add_subplot()
    base = next((r["step_time_after_s"] for r in rows if r["fabric"] == PHOTONIC and r["event"] != "neighbour"), None)
    tallest = 0.0
    for place, fabric in enumerate(fabrics):
        mine = [row for row in rows if row["fabric"] == fabric]
        tallest = max(tallest, _fabric_bars(axes, mine, place))
        if base and any(row.get("paper_after_to_photonic") for row in mine):
            low, high = (base * ratio for ratio in PAPER_SLOWDOWN)
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
        neighbour = row["event"] == "neighbour"
        colour, left = (_NEIGHBOUR, place + 0.05) if neighbour else (_JOB, place - 0.44)
        for number, when in enumerate(("before", "after")):
            value, model = row.get(f"step_time_{when}_s"), row.get(f"predicted_step_time_{when}_s")
            x = left + 0.1 + 0.2 * number
            if value:
                face = "white" if number == 0 else colour
                axes.bar(x, value, 0.17, color=face, edgecolor=colour, linewidth=1.4, zorder=2)
                axes.text(
                    x,
                    max(value, model or 0.0),
                    f"{value:.2f}",
                    ha="center",
                    va="bottom",
                    fontsize=8,
                    color=TEXT,
                    zorder=6,
                )
            if model:
                axes.plot((x - 0.095, x + 0.095), (model, model), color=BLACK, linewidth=1.6, zorder=4)
            tallest = max(tallest, value or 0.0, model or 0.0)
    return tallest


def _step_legend(figure: Figure, rows: Rows, *, banded: bool) -> None:
    handles: list[Patch | Line2D] = [
        Patch(facecolor="white", edgecolor=_JOB, label="job before"),
        Patch(facecolor=_JOB, edgecolor=_JOB, label="job after"),
    ]
    if any(row["event"] == "neighbour" for row in rows):
        handles.append(Patch(facecolor="white", edgecolor=_NEIGHBOUR, label="second tenant before"))
        handles.append(Patch(facecolor=_NEIGHBOUR, edgecolor=_NEIGHBOUR, label="after"))
    handles.append(Line2D([], [], color=BLACK, linewidth=1.6, label="model"))
    if banded and any(row.get("paper_after_to_photonic") for row in rows):
        low, high = PAPER_SLOWDOWN
        handles.append(Patch(facecolor=GREEN, alpha=0.22, label=f"paper: {low:g} to {high:g} x photonic"))
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False, fontsize=8.5)
