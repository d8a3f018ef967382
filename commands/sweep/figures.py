"""The figure of a sweep: the main number of its rows against the first swept number, a line for each other value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes

from commands.sweep.merge import Columns, mains, numeric, places
from commands.sweep.spec import in_words
from experiments.report import Drawn
from measure.figures import panels
from measure.figures.curves import Curve, curves, series_of
from measure.figures.looks import ALGORITHMS, MODES, POLICIES, SPARE
from measure.figures.style import style_axes, time_unit
from measure.results.row import Row

MOST_LINES = len(SPARE)
"""Lines of a figure: as many as have looks of their own."""
_MOST_FIGURES = 3
_MOST_TICKS = 12
_WIDE = 50
"""Ratio of the largest to the smallest swept number from which on the axis is logarithmic."""


def sweep_figures(rows: Sequence[Row], names: Columns) -> Iterator[Drawn]:
    """A figure for each main number, three at most; none without a swept number (``why_no_figure``)."""
    x = _axis(rows, names)
    if x is None:
        return
    others = [column for column in (*names.swept.values(), *places(rows, names)) if column != x]
    counts = {column: len({repr(row.get(column)) for row in rows}) for column in others}
    many = [column for column, count in counts.items() if count > MOST_LINES]
    others = [column for column, count in counts.items() if 1 < count <= MOST_LINES]

    def line(row: Row) -> str:
        return ", ".join(_word(column, row) for column in others) or "all points"

    lines = list(dict.fromkeys(map(line, rows)))
    shown = [row for row in rows if line(row) in lines[:MOST_LINES]]
    said = [f"Points also differ in {', '.join(many)}."] if many else []
    said += [f"The first {MOST_LINES} of {len(lines)} lines; table.csv has all."] if len(lines) > MOST_LINES else []
    looks = {name: look for name, look in {**ALGORITHMS, **POLICIES, **MODES}.items() if name in lines}
    for y in mains(rows, names)[:_MOST_FIGURES]:

        def paint(axes: Axes, rows: Sequence[Row], y: str = y) -> Iterator[Curve]:
            longest = max((row.get(key) or 0 for row in rows for key in (y, f"predicted_{y}")), default=0)
            factor, unit = time_unit(longest) if y.endswith("_s") else (1.0, "")
            drawn = curves(series_of(rows, line, looks), x, y, f"predicted_{y}", factor)
            return _paint(axes, drawn, x, y.removesuffix("_s").replace("_", " "), unit)

        yield Drawn(y, panels.figure_of([shown], paint), shown, " ".join(said))


def why_no_figure(rows: Sequence[Row], names: Columns) -> str | None:
    """The sentence about a sweep without figures; None if it has one, or no rows."""
    if not rows or (_axis(rows, names) is not None and mains(rows, names)):
        return None
    if not mains(rows, names):
        return "No figure: rows of this experiment have no main number."
    return "No figure: none of the swept keys is one number a point, and has two values or more."


def _axis(rows: Sequence[Row], names: Columns) -> str | None:
    return next((column for column in names.swept.values() if numeric(rows, column)), None)


def _paint(axes: Axes, drawn: dict[str, Curve], x: str, y: str, unit: str) -> Iterator[Curve]:
    points = [point for curve in drawn.values() for point in curve.points]
    if any(value > 0 for _, value in points):
        panels.draw_near(axes, drawn, unit)
    else:
        panels.draw(axes, drawn)
    ticks = sorted({place for place, _ in points})
    if ticks and ticks[0] > 0 and ticks[-1] >= _WIDE * ticks[0]:
        axes.set_xscale("log")
    if len(ticks) <= _MOST_TICKS:
        panels.name_ticks(axes.xaxis, ticks)
    style_axes(axes, f"{y} by {x}", x, f"{y} ({unit})" if unit else y, grid="both")
    yield from drawn.values()


def _word(column: str, row: Row) -> str:
    """A value as a word in a legend: text alone, a number with its column."""
    value = row.get(column)
    return value if isinstance(value, str) else f"{column} {in_words(value)}"
