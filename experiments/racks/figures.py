"""Figures of runs with a fault: throughput over time, step times before and after, and the parts of recoveries.

The first takes the throughput of each job (``experiments.racks.throughput``), the others rows of a summary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.racks.row import CIRCUITS, NEIGHBOUR, PHOTONIC, SLOWDOWN
from experiments.racks.setting import TIMELINE
from experiments.racks.throughput import FabricRun
from measure.figures.curves import Rows
from measure.figures.looks import BLACK, FABRICS, LIGHT, PARTS, TENANTS, TEXT, WHITE, Look
from measure.figures.plot import Panel, Plot, caption, figure_of
from measure.figures.style import (
    MEDIUM,
    PAGE,
    SMALL,
    bar_look,
    entry,
    legend,
    new_figure,
    open_mark,
    style_axes,
)
from measure.results.estimates import estimate_of, values_of
from measure.results.row import Row

PUBLISHED = Look("", BLACK, "D")
_ENDS_WITH = {
    "rewire": "circuits up, job launched",
    "library": "collective library synchronised",
    "data": "data tokenised",
    "load": "model loaded",
    "first step": "first iteration",
}
"""What is done at the end of each part of MORPHLUX's timeline."""
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
    base = next((r["step_time_after_s"] for r in rows if r["fabric"] == PHOTONIC and r["event"] != NEIGHBOUR), None)
    derived = [row["fabric"] for row in rows if row["derived_after_to_photonic_low"]] if base else []
    pale: dict[str, Any] = {"facecolor": FABRICS[PHOTONIC].colour, "alpha": 0.15, "linewidth": 0}
    band = Patch(**pale, label=f"{SLOWDOWN.label}: {SLOWDOWN.shown()} x photonic")

    def finish(panel: Panel) -> None:
        for place, fabric in enumerate(panel.places):
            if fabric in derived:
                low, high = ((base or 0.0) * ratio for ratio in SLOWDOWN.bounds)
                panel.axes.fill_between((place - 0.44, place + 0.02), low, high, zorder=1, **pale)
        panel.axes.set_ylim(0, 1.08 * panel.axes.get_ylim()[1])

    plot = Plot(
        "fabric",
        "step_time_s",
        ("", "step time (s)"),
        "Step time before and after the fault",
        "predicted_step_time_s",
        series=lambda row: (row["of"], row["when"]),
        looks={
            (of, when): replace(look, name=f"{look.name} {when}", marker=marker)
            for of, look in TENANTS.items()
            for when, marker in _WHEN.items()
        },
        categories=(),
        apart=0.22,
        written=".2f",
        grid="y",
        extra=finish,
        entries=[band] if derived else [],
        columns=4,
    )
    return figure_of(plot, [_step(row, when) for row in rows for when in _WHEN])


def _step(row: Row, when: str) -> Row:
    return {
        "fabric": row["fabric"],
        "of": "neighbour" if row["event"] == NEIGHBOUR else "job",
        "when": when,
        "step_time_s": row[f"step_time_{when}_s"],
        "samples": {"step_time_s": values_of(row, f"step_time_{when}_s")},
        "predicted_step_time_s": row[f"predicted_step_time_{when}_s"] or None,
        "faithful": row["faithful"] is not False,
    }


# ---- recoveries ----------------------------------------------------------------------------------------------------


def recovery_breakdown(rows: Rows) -> Figure | None:
    """Figure of each recovery in its parts, measured above predicted, on every fabric; None without a fault.

    Diamonds mark the times that MORPHLUX gives.
    """
    if not rows:
        return None
    figure = new_figure(PAGE, 0.6 + 0.5 * len(rows))
    axes = figure.add_subplot()
    shown = [(place, row, key) for place, row in enumerate(rows) for key in ("breakdown", "predicted_breakdown")]
    longest = max(sum(seconds for _, seconds in row[key]) for _, row, key in shown)
    for place, row, key in shown:
        y, alpha = (place - 0.19, 1.0) if key == "breakdown" else (place + 0.19, 0.55)
        reached = 0.0
        for name, seconds in row[key]:
            axes.barh(y, seconds, 0.34, left=reached, zorder=2, alpha=alpha, **_bar(name))
            reached += seconds
        if row[key]:
            _beside(axes, _right(axes, row, y, reached) if key == "breakdown" else reached, y,
                    _total(row, key, reached), longest)  # fmt: skip
    for place, row in enumerate(rows):
        for at in filter(None, (row["paper_circuits_s"], row["paper_outage_s"])):
            axes.plot(at, place, zorder=5, **open_mark(PUBLISHED, markerfacecolor=WHITE))
    labels = [f"{row['fabric']}\n{row['system']}" for row in rows]
    _style(axes, labels, longest * 1.25, "From the chip's death to the first step done again")
    used = {name for _, row, key in shown for name, _ in row[key]}
    handles: list[Artist] = [Patch(**_bar(name), label=name) for name in PARTS if name in used]
    if any(row["paper_circuits_s"] for row in rows):
        handles.append(published_mark(f"MORPHLUX ({CIRCUITS.label})"))
    totals = [each for row in rows if (each := estimate_of(row, "outage_s")) is not None]
    legend(figure, handles, 6, caption(totals, model=False, markers="upper bars") + "; lower, pale bars: model")
    return figure


def _bar(part: str) -> dict[str, Any]:
    return bar_look(PARTS[part], linewidth=0.4)


def _right(axes: Axes, row: Mapping[str, Any], y: float, reached: float) -> float:
    """Draw the interval of the outage; returns its right end, or that of the bar."""
    outage = estimate_of(row, "outage_s")
    if outage is None or outage.low is None or outage.high is None:
        return reached
    axes.plot([outage.low, outage.high], [y, y], color=TEXT, marker="|", markersize=5, linewidth=0.9, zorder=4)
    return max(reached, outage.high)


def _style(axes: Axes, labels: Sequence[str], longest: float, title: str) -> None:
    """Set the axes of bars on successive lines, which ``labels`` name from above."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.42, -0.58)
    axes.set_xlim(0, longest)
    style_axes(axes, title, "time after the fault (s)", "", grid="x")
    axes.tick_params(axis="y", length=0)


def _total(row: Mapping[str, Any], key: str, total: float) -> str:
    if key == "predicted_breakdown":
        return f"{total:.2f} s model"
    if row["state"] != "recovered":
        return str(row["state"])
    return f"{total:.2f} s" + ("" if row["faithful"] else " (not faithful)")


def published_mark(label: str) -> Line2D:
    return entry(label, **open_mark(PUBLISHED))


def recovery_timeline(row: Mapping[str, Any]) -> Figure | None:
    """Figure of one recovery: its parts as bars on successive lines, with MORPHLUX's part below each bar.

    None for a row without a recovery.
    """
    parts = dict(row["breakdown"])
    if not parts:
        return None
    ends = TIMELINE.values
    starts = dict(zip(ends, (0.0, *ends.values()), strict=False))
    tail = [name for name in parts if name in ("start", "first step")]
    head = [name for name in parts if name not in tail]
    names = [*head, *(name for name in ends if name not in parts), *tail]
    given = {stage["name"] for stage in row["stages"] if stage["given"]}
    figure = new_figure(PAGE, 0.5 + 0.27 * len(names))
    axes = figure.add_subplot()
    longest = max(sum(parts.values()), *ends.values())
    reached = 0.0
    for place, name in enumerate(names):
        if name in parts:
            seconds = parts[name]
            axes.barh(place - 0.17, seconds, 0.32, left=reached, zorder=3, **_bar(name))
            reached += seconds
            said = f"{reached:.2f} s  (+{seconds:.3g} s{', given' if name in given else ''})"
            _beside(axes, reached, place - 0.17, said, longest, bold=True)
        if name in ends:
            white: Any = {"facecolor": WHITE, "edgecolor": TEXT, "linewidth": 0.7}
            axes.barh(place + 0.2, ends[name] - starts[name], 0.26, left=starts[name], **white)
            said = f"{TIMELINE.label}: {ends[name]:g} s, {_ENDS_WITH[name]}"
            _beside(axes, ends[name], place + 0.2, said, longest)
    _style(axes, names, longest * 1.45, f"Recovery, {row['fabric']}: kill of chip {row['rank']}")
    return figure


def _beside(axes: Axes, x: float, y: float, text: str, longest: float, *, bold: bool = False) -> None:
    weight = "bold" if bold else "normal"
    axes.text(x + 0.008 * longest, y, text, va="center", fontsize=SMALL, color=TEXT, fontweight=weight, zorder=4)
