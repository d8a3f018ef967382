"""Panels of figures that compare measurements (markers) with the model (lines): axes, legend, lines, labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from measure.figures.curves import Curve, Points, Rows, near_and_far
from measure.figures.style import BLACK, DASHED, ON_WHITE, TEXT, entry, legend, new_figure, note

_IN_A_ROW = 3
_LABEL_STEP = 0.062
"""Least distance between two labels, as a share of the axis."""
_MOST_LETTERS = 56
"""Letters, and spaces between names, that fit below a panel."""
LABEL: dict[str, Any] = {"fontsize": 9, "fontweight": "bold"}
"""Font of the name of a curve in a panel."""


def figure_of(
    groups: Sequence[Rows], paint: Callable[..., Iterable[Curve]], *entries: Line2D, below: bool = False
) -> Figure | None:
    """A figure with a panel for each group of rows, three in a row, and one legend; None without groups.

    ``paint(axes, rows)`` draws a panel and returns its curves. With ``below`` there are at most three panels, each with
    a lower one on the same x axis, drawn by ``paint(axes, lower, rows)``. ``entries`` are more entries of the legend.
    """
    groups = groups[:_IN_A_ROW] if below else groups
    if not groups:
        return None
    columns = min(len(groups), _IN_A_ROW)
    lines = -(-len(groups) // columns)
    figure = new_figure(8.4 if len(groups) == 1 else 1.2 + 5.2 * columns, 6.6 if below else 0.7 + 4.4 * lines)
    if below:
        axes = figure.subplots(2, columns, squeeze=False, sharex="col", height_ratios=(3, 2)).T.tolist()
    else:
        axes = [[figure.add_subplot(lines, columns, place + 1)] for place in range(len(groups))]
    drawn = [curve for mine, rows in zip(axes, groups, strict=True) for curve in paint(*mine, rows)]
    legend(figure, key(drawn, *entries))
    return figure


def key(drawn: Sequence[Curve], *entries: Line2D) -> list[Line2D]:
    """The entries of a legend for the lines and markers of ``drawn``, with ``entries`` between them."""
    handles = [entry("measured", marker="o", linestyle="")] if any(curve.measured for curve in drawn) else []
    if any(curve.model for curve in drawn):
        handles.append(entry("model"))
    handles += entries
    if any(curve.unfaithful for curve in drawn):
        handles.append(entry("point not faithful", BLACK, marker="x", markersize=9, linestyle=""))
    return handles


def name_ticks(axis: Axis, places: Iterable[float | None], name: Callable[[Any], str] = "{:g}".format) -> None:
    """Set a tick with its name at each place; at each second or third one if the names would crowd."""
    ordered = sorted({place for place in places if place is not None})
    step = -(-sum(len(name(place)) + 2 for place in ordered) // _MOST_LETTERS)
    axis.set_ticks(ordered[::step], [name(place) for place in ordered[::step]])
    axis.set_minor_locator(NullLocator())


def logarithmic(axes: Axes) -> None:
    """Make both axes logarithmic, with ticks of y at 1, 2 and 5 times the powers of 10, written as numbers."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def draw(axes: Axes, drawn: Mapping[Any, Curve]) -> None:
    """Draw the model as lines and measurements as markers; points that are not faithful are hollow and crossed out."""
    for curve in drawn.values():
        look = curve.look
        if curve.model:
            line(axes, curve.model, color=look.colour, linestyle=look.dashes, linewidth=1.5, zorder=2)
        for point in curve.measured:
            bad = point in curve.unfaithful
            face = "white" if bad else look.colour
            axes.plot(*point, look.marker, color=look.colour, markersize=look.size, markerfacecolor=face, zorder=4)
            if bad:
                axes.plot(*point, "x", color=BLACK, markersize=11, zorder=5)


def draw_near(axes: Axes, drawn: Mapping[Any, Curve], unit: str) -> None:
    """Draw curves from 0 on, with their names at their ends; curves far above the others are only named."""
    near, far = near_and_far(drawn)
    draw(axes, near)
    axes.set_ylim(0, (1.2 if far else 1.06) * max(y for curve in near.values() for _, y in curve.points))
    label_ends(axes, near)
    label_far(axes, far, unit)


def line(axes: Axes, points: Points, **look: Any) -> None:
    """Draw points as a line, or as markers."""
    axes.plot(*zip(*points, strict=True), **look)


def cumulative(axes: Axes, values: Iterable[float], right: float, **look: Any) -> None:
    """Draw the cumulative distribution of values as steps from 0 to 1, continued at 1 as far as ``right``."""
    ordered = sorted(values)
    shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
    axes.step([ordered[0], *ordered, right], [0.0, *shares, 1.0], where="post", linewidth=1.8, **look)


def label_far(axes: Axes, far: Mapping[Any, Curve], unit: str) -> None:
    """Label the curves that lie above the panel, with their lowest value."""
    for place, curve in enumerate(far.values()):
        text = f"↑ {curve.look.name}, {min(y for _, y in curve.measured or curve.model):.3g} {unit}"
        look: dict[str, Any] = {"color": curve.look.colour, "va": "top", "ha": "right", "bbox": ON_WHITE, "zorder": 6}
        axes.text(0.99, 0.98 - 0.07 * place, text, transform=axes.transAxes, **LABEL, **look)


def label_ends(axes: Axes, drawn: Mapping[Any, Curve]) -> None:
    """Write the name of each curve right of its last point, without overlaps; axis limits must be set before."""
    axes.autoscale_view()
    ends = []
    for curve in drawn.values():
        if curve.points:
            height = axes.transAxes.inverted().transform(axes.transData.transform(max(curve.points)))[1]
            ends.append((float(height), curve.look))
    for height, (_, look) in zip(_apart([end for end, _ in ends]), ends, strict=True):
        axes.text(1.02, height, look.name, transform=axes.transAxes, color=look.colour, va="center", **LABEL)


def _apart(heights: Sequence[float]) -> list[float]:
    """Move heights at least ``_LABEL_STEP`` apart in the same order: first up from below, then down from 1."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    placed = list(heights)
    for below, above in pairwise(order):
        placed[above] = max(placed[above], placed[below] + _LABEL_STEP)
    for place in order[-1:]:
        placed[place] = min(placed[place], 1.0)
    for above, below in pairwise(reversed(order)):
        placed[below] = min(placed[below], placed[above] - _LABEL_STEP)
    return placed


def mark_vertical(axes: Axes, x: float, text: str, side: str = "right", dashes: Any = DASHED) -> None:
    """Draw a dashed vertical line at a value, with its name above the panel: on a ``side`` of the line, or "center"."""
    axes.axvline(x, color=TEXT, linewidth=0.9, linestyle=dashes, zorder=1)
    shift, align = {"left": (-2, "right"), "right": (2, "left")}.get(side, (0, "center"))
    note(axes, text, (x, 1.0), (shift, 3), xycoords=("data", "axes fraction"), fontsize=8, ha=align, va="bottom")
