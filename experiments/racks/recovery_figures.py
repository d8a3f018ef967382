"""Figures of recoveries: their parts, measured above predicted, and the timeline of one beside a published one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.racks.row import CIRCUITS
from experiments.racks.setting import TIMELINE
from measure.figures.looks import BLACK, PARTS, TEXT, WHITE, Look
from measure.figures.panels import caption
from measure.figures.style import PAGE, SMALL, legend, new_figure, open_mark, style_axes
from measure.results.estimates import estimate_of

Rows = Sequence[Mapping[str, Any]]
PUBLISHED = Look("", BLACK, "D")
_ENDS_WITH = {
    "rewire": "circuits up, job launched",
    "library": "collective library synchronised",
    "data": "data tokenised",
    "load": "model loaded",
    "first step": "first iteration",
}
"""What is done at the end of each part of MORPHLUX's timeline."""


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
    handles: list[Patch | Line2D] = [Patch(**_bar(name), label=name) for name in PARTS if name in used]
    if any(row["paper_circuits_s"] for row in rows):
        handles.append(published_mark(f"MORPHLUX ({CIRCUITS.label})"))
    totals = [each for row in rows if (each := estimate_of(row, "outage_s")) is not None]
    legend(figure, handles, 6, caption(totals, model=False, markers="upper bars") + "; lower, pale bars: model")
    return figure


def _bar(part: str) -> dict[str, Any]:
    look = PARTS[part]
    return {"facecolor": look.colour, "edgecolor": WHITE, "linewidth": 0.4, "hatch": look.hatch or None}


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
    """The legend entry of a published value: an open diamond."""
    return Line2D([], [], label=label, **open_mark(PUBLISHED))


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
