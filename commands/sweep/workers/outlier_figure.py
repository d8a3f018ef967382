"""The figure of the machines of a sweep: the numbers of each against the median over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.figure import Figure

from measure.figures.looks import BLACK, GREY, SPARE
from measure.figures.style import COLUMN, PAGE, SMALL, new_figure, style_axes

_FIT_IN_A_COLUMN = 6
_SPREAD = 0.5


def outlier_figure(found: Mapping[str, Sequence[float]], what: str) -> Figure:
    """A mark for each repeat and a line at the median of each machine; ``found`` as ``outliers.ratios`` gives it."""
    figure = new_figure(COLUMN if len(found) <= _FIT_IN_A_COLUMN else PAGE, 2.2)
    axes = figure.add_subplot()
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    for place, values in enumerate(found.values()):
        percent = [100 * (value - 1) for value in values]
        step = _SPREAD / max(1, len(percent) - 1)
        left = place - _SPREAD / 2 if len(percent) > 1 else place
        marks = [left + number * step for number in range(len(percent))]
        axes.plot(marks, percent, linestyle="", marker="o", markersize=3, color=SPARE[0].colour)
        middle = median(percent)
        axes.plot([place - 0.35, place + 0.35], [middle, middle], color=BLACK, linewidth=1.4)
    axes.set_xticks(range(len(found)), [*found], rotation=20 if len(found) > 3 else 0, fontsize=SMALL)
    style_axes(axes, f"{what} by machine", "", "off the median of machines (%)", grid="y")
    return figure
