"""Figures of a sweep: main numbers of its rows against the first swept number, and its machines against each other.

A figure of main numbers has a line for each other value that was swept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from matplotlib.figure import Figure

from commands.sweep.merge import Columns, mains, numeric, places
from commands.sweep.spec import in_words
from experiments.report import Drawn
from measure.figures.looks import ALGORITHMS, BLACK, GREY, MODES, POLICIES, SPARE
from measure.figures.plot import Panel, Plot, figure_of, name_ticks
from measure.figures.style import COLUMN, PAGE, SMALL, new_figure, style_axes
from measure.results.row import Row

MOST_LINES = len(SPARE)
"""Lines of a figure: as many as have looks of their own."""
_MOST_FIGURES = 3
_MOST_TICKS = 12
_FIT_IN_A_COLUMN = 6
"""Most machines of a figure that is as wide as a column."""
_SPREAD = 0.5
"""Space between the first and the last repeat of a machine, of 1 between machines."""
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
        name, timed = y.removesuffix("_s").replace("_", " "), y.endswith("_s")
        plot = Plot(
            x,
            y,
            (x, f"{name} ({{unit}})" if timed else name),
            f"{name} by {x}",
            f"predicted_{y}",
            series=line,
            looks=looks,
            timed="y" if timed else "",
            y_scale="near",
            extra=_scale,
        )
        yield Drawn(y, figure_of(plot, shown), shown, " ".join(said))


def why_no_figure(rows: Sequence[Row], names: Columns) -> str | None:
    """The sentence about a sweep without figures; None if it has one, or no rows."""
    if rows and not mains(rows, names):
        return "No figure: rows of this experiment have no main number."
    if rows and _axis(rows, names) is None:
        return "No figure: none of the swept keys is one number a point, and has two values or more."
    return None


def _axis(rows: Sequence[Row], names: Columns) -> str | None:
    return next((column for column in names.swept.values() if numeric(rows, column)), None)


def _scale(panel: Panel) -> None:
    ticks = sorted({place for curve in panel.drawn.values() for place, _ in curve.points})
    if ticks and ticks[0] > 0 and ticks[-1] >= _WIDE * ticks[0]:
        panel.axes.set_xscale("log")
    if len(ticks) <= _MOST_TICKS:
        name_ticks(panel.axes.xaxis, ticks)


def _word(column: str, row: Row) -> str:
    """A value as a word in a legend: text alone, a number with its column."""
    value = row.get(column)
    return value if isinstance(value, str) else f"{column} {in_words(value)}"


def outlier_figure(machines: Mapping[str, Sequence[float]], what: str) -> Figure:
    """A mark for each repeat and a line at the median of each machine; ``machines`` as ``outliers.ratios`` gives it."""
    figure = new_figure(COLUMN if len(machines) <= _FIT_IN_A_COLUMN else PAGE, 2.2)
    axes = figure.add_subplot()
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    for place, values in enumerate(machines.values()):
        percent = [100 * (value - 1) for value in values]
        step = _SPREAD / max(1, len(percent) - 1)
        left = place - _SPREAD / 2 if len(percent) > 1 else place
        marks = [left + number * step for number in range(len(percent))]
        axes.plot(marks, percent, linestyle="", marker="o", markersize=3, color=SPARE[0].colour)
        middle = median(percent)
        axes.plot([place - 0.35, place + 0.35], [middle, middle], color=BLACK, linewidth=1.4)
    axes.set_xticks(range(len(machines)), [*machines], rotation=20 if len(machines) > 3 else 0, fontsize=SMALL)
    style_axes(axes, f"{what} by machine", "", "off the median of machines (%)", grid="y")
    return figure
