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
"""Colour of each part of a recovery, by its name in ``FailoverRow.breakdown``."""
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
    figure = new_figure(10.0, 1.6 + 0.95 * len(rows))
    axes = figure.add_subplot()
    shown = [(place, row, key) for place, row in enumerate(rows) for key in ("breakdown", "predicted_breakdown")]
    longest = max(sum(seconds for _, seconds in row[key]) for _, row, key in shown)
    for place, row, key in shown:
        y, alpha = (place - 0.19, 1.0) if key == "breakdown" else (place + 0.19, 0.55)
        reached = 0.0
        for name, seconds in row[key]:
            look: Any = {"color": PART_COLOURS[name], "alpha": alpha, "edgecolor": "white", "linewidth": 0.4}
            axes.barh(y, seconds, 0.34, left=reached, zorder=2, **look)
            reached += seconds
        if row[key]:
            _beside(axes, reached, y, _total(row, key, reached), longest)
    for place, row in enumerate(rows):
        for at in filter(None, (row["paper_circuits_s"], row["paper_outage_s"])):
            axes.plot(at, place, marker="D", markersize=7, color="white", markeredgecolor=BLACK, zorder=5)
    labels = [f"{row['fabric']}\n{row['system']}" for row in rows]
    _style(axes, labels, longest * 1.25, "From the chip's death to the first step done again")
    used = {name for _, row, key in shown for name, _ in row[key]}
    handles: list[Patch | Line2D] = [
        Patch(color=look, label=name) for name, look in PART_COLOURS.items() if name in used
    ]
    if any(row["paper_circuits_s"] for row in rows):
        handles.append(published_mark(f"MORPHLUX ({CIRCUITS.label})"))
    figure.legend(handles=handles, loc="outside upper center", ncols=6, frameon=False, fontsize=8.5)
    return figure


def _style(axes: Axes, labels: Sequence[str], longest: float, title: str) -> None:
    """Set the axes of bars on successive lines, which ``labels`` name from above."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.42, -0.58)
    axes.set_xlim(0, longest)
    axes.grid(axis="x", color=LIGHT, linewidth=0.7)
    axes.set_axisbelow(True)
    style_axes(axes, title, "s after the fault", "")
    axes.tick_params(axis="y", length=0)


def _total(row: Mapping[str, Any], key: str, total: float) -> str:
    if key == "predicted_breakdown":
        return f"{total:.2f} s model"
    if row["state"] != "recovered":
        return str(row["state"])
    return f"{total:.2f} s" + ("" if row["faithful"] else " (not faithful)")


def published_mark(label: str) -> Line2D:
    """The legend entry of a published point: a diamond."""
    return Line2D([], [], marker="D", markersize=6, color="white", markeredgecolor=BLACK, linestyle="", label=label)


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
    figure = new_figure(10.0, 1.5 + 0.42 * len(names))
    axes = figure.add_subplot()
    longest = max(sum(parts.values()), *ends.values())
    reached = 0.0
    for place, name in enumerate(names):
        if name in parts:
            seconds = parts[name]
            axes.barh(place - 0.17, seconds, 0.32, left=reached, color=PART_COLOURS[name], zorder=3)
            reached += seconds
            said = f"{reached:.2f} s  (+{seconds:.3g} s{', given' if name in given else ''})"
            _beside(axes, reached, place - 0.17, said, longest, bold=True)
        if name in ends:
            white: Any = {"facecolor": "white", "edgecolor": TEXT, "hatch": "////", "linewidth": 0.8}
            axes.barh(place + 0.2, ends[name] - starts[name], 0.26, left=starts[name], **white)
            said = f"{TIMELINE.label}: {ends[name]:g} s, {_ENDS_WITH[name]}"
            _beside(axes, ends[name], place + 0.2, said, longest)
    _style(axes, names, longest * 1.45, f"Recovery, {row['fabric']}: kill of chip {row['rank']}")
    return figure


def _beside(axes: Axes, x: float, y: float, text: str, longest: float, *, bold: bool = False) -> None:
    weight = "bold" if bold else "normal"
    axes.text(x + 0.008 * longest, y, text, va="center", fontsize=8.5, color=TEXT, fontweight=weight, zorder=4)
