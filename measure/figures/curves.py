"""Figures that compare measurements (markers) with the model (lines): curves, labels at their ends, panels."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from measure.figures.style import BLACK, LIGHT, TEXT, new_figure, style_axes

Rows = Sequence[Mapping[str, Any]]
Value = Callable[[Mapping[str, Any]], float | None]
Points = Sequence[tuple[float, float]]
_FAR = 1.25
_LABEL_STEP = 0.062
"""Least distance between two labels, as a share of the axis."""
_MOST_PANELS = 9


@dataclass(frozen=True)
class Look:
    """The style of one curve, and its name in figures."""

    name: str
    colour: str
    marker: str
    dashes: Any = "-"
    size: float = 6.5


@dataclass(frozen=True)
class Curve:
    """One curve: measured points, those of them that are not faithful, and points of the model, ascending by x."""

    look: Look
    measured: Points
    unfaithful: Points
    model: Points

    @property
    def points(self) -> Points:
        """Measured points and points of the model, for the ranges of axes."""
        return (*self.measured, *self.model)


def curve(look: Look, rows: Rows, x: Value, y: Value, model: Value) -> Curve:
    """The curve of ``rows``, with the median of rows with the same x."""
    measured = _medians(rows, x, y)
    bad = {x(row) for row in rows if not row.get("faithful", True)}
    return Curve(look, measured, [point for point in measured if point[0] in bad], _medians(rows, x, model))


def _medians(rows: Iterable[Mapping[str, Any]], x: Value, y: Value) -> Points:
    points: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        place, value = x(row), y(row)
        if place is not None and value is not None:
            points[place].append(value)
    return sorted((place, statistics.median(values)) for place, values in points.items())


def draw(axes: Axes, drawn: Mapping[str, Curve]) -> None:
    """Draw the model as lines and measurements as markers; points that are not faithful are hollow and crossed out."""
    for curve in drawn.values():
        look = curve.look
        if curve.model:
            axes.plot(
                *zip(*curve.model, strict=True), color=look.colour, linestyle=look.dashes, linewidth=1.5, zorder=2
            )
        for point in curve.measured:
            bad = point in curve.unfaithful
            (dot,) = axes.plot(*point, color=look.colour, marker=look.marker, markersize=look.size, zorder=4)
            if bad:
                dot.set_markerfacecolor("white")
                axes.plot(*point, color=BLACK, marker="x", markersize=11, zorder=5)
    axes.grid(color=LIGHT, linewidth=0.7)
    axes.set_axisbelow(True)


def near_and_far(drawn: Mapping[str, Curve]) -> tuple[dict[str, Curve], dict[str, Curve]]:
    """Split curves into those to draw and those so far above the others that they would squeeze them together."""
    near = {name: curve for name, curve in drawn.items() if curve.points}
    far: dict[str, Curve] = {}
    while len(near) > 2:
        name = max(near, key=lambda one: min(y for _, y in near[one].points))
        rest = max(y for other, curve in near.items() if other != name for _, y in curve.points)
        if min(y for _, y in near[name].points) <= _FAR * rest:
            break
        far[name] = near.pop(name)
    return near, far


def label_far(axes: Axes, far: Mapping[str, Curve], unit: str) -> None:
    """Label the curves that lie above the panel, with their lowest value."""
    for place, curve in enumerate(far.values()):
        text = f"↑ {curve.look.name}, {min(y for _, y in curve.measured or curve.model):.3g} {unit}"
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        _name(axes, 0.99, 0.98 - 0.07 * place, text, curve.look, va="top", ha="right", bbox=behind, zorder=6)


def _name(axes: Axes, x: float, y: float, text: str, look: Look, **options: Any) -> None:
    """Write ``text`` in the colour of a curve at a place given in shares of the panel."""
    axes.text(x, y, text, transform=axes.transAxes, color=look.colour, fontsize=9, fontweight="bold", **options)


def label_ends(axes: Axes, drawn: Mapping[str, Curve]) -> None:
    """Write the name of each curve right of its last point, without overlaps; axis limits must be set before."""
    ends = []
    for curve in drawn.values():
        points = sorted(curve.points)
        if points:
            height = axes.transAxes.inverted().transform(axes.transData.transform(points[-1]))[1]
            ends.append((float(height), curve.look))
    for height, look in zip(_apart([end for end, _ in ends]), [look for _, look in ends], strict=True):
        _name(axes, 1.02, height, look.name, look, va="center")


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


def mark_vertical(axes: Axes, x: float, text: str, *, left: bool = False) -> None:
    """Draw a dashed vertical line at a predicted value, with its name above the panel."""
    axes.axvline(x, color=TEXT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    place: dict[str, Any] = {
        "xycoords": ("data", "axes fraction"),
        "xytext": (-2 if left else 2, 3),
        "textcoords": "offset points",
    }
    axes.annotate(text, (x, 1.0), fontsize=8, color=TEXT, ha="right" if left else "left", va="bottom", **place)


def panel_title(axes: Axes, title: str, x: str, y: str) -> None:
    """Set title and axis names, with space below the title for the names of vertical lines."""
    style_axes(axes, title, x, y)
    axes.set_title(title, loc="left", pad=17, fontsize=10.5, color=TEXT, fontweight="bold")


def key(figure: Figure, drawn: Iterable[Mapping[str, Curve]], *extra: Line2D) -> None:
    """Add one legend of lines and markers for all panels."""
    every = [curve for panel in drawn for curve in panel.values()]
    handles = []
    if any(curve.measured for curve in every):
        handles.append(Line2D([], [], color=TEXT, marker="o", markersize=6, linestyle="", label="measured"))
    if any(curve.model for curve in every):
        handles.append(Line2D([], [], color=TEXT, linewidth=1.5, label="model"))
    handles += extra
    if any(curve.unfaithful for curve in every):
        handles.append(Line2D([], [], color=BLACK, marker="x", markersize=9, linestyle="", label="point not faithful"))
    figure.legend(handles=handles, loc="outside upper left", frameon=False, fontsize=9, ncols=min(4, len(handles)))


def value(name: str, factor: float = 1.0) -> Value:
    """A function that reads column ``name`` of a row, times ``factor``."""
    return scaled(lambda row: row.get(name), factor)


def scaled(plain: Value, factor: float) -> Value:
    """A function that multiplies the value that ``plain`` reads from a row by ``factor``."""

    def times(row: Mapping[str, Any]) -> float | None:
        found = plain(row)
        return None if found is None else found * factor

    return times


def panel_rows(rows: Rows, x: Value, same: Sequence[str], least: int = 2) -> list[Rows]:
    """Group rows by the columns ``same``, one panel per group with at least ``least`` values of x; 9 panels at most."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if x(row) is not None:
            groups[tuple(row[name] for name in same)].append(row)
    wide = [groups[group] for group in sorted(groups) if len({x(row) for row in groups[group]}) >= least]
    return list(wide[:_MOST_PANELS])


def grid(panels: int) -> tuple[Figure, list[Axes]]:
    """A figure with axes for ``panels`` panels, three in a row."""
    columns = min(panels, 3)
    lines = -(-panels // columns)
    figure = new_figure(1.4 + 4.9 * columns if panels > 1 else 8.0, 0.7 + 4.4 * lines)
    return figure, [figure.add_subplot(lines, columns, place + 1) for place in range(panels)]
