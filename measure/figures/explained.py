"""Figure of the difference between measured and predicted steps: a bar for each point, stacked by kind of cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from measure.figures.looks import BLACK, COSTS, WHITE
from measure.figures.style import PAGE, entry, legend, new_figure, style_axes
from measure.metrics.step_path import KINDS, Kind


@dataclass(frozen=True)
class Bar:
    """One point: measured less predicted seconds of each kind of cost, beside the predicted step."""

    title: str
    predicted_s: float
    differences: Mapping[Kind, float]


def explained_figure(bars: Sequence[Bar]) -> Figure:
    """Bars in percent of the predicted step: longer than predicted to the right, shorter to the left; a mark for both.

    Kinds that make less than 0.01 percent of difference at every point are left out.
    """
    figure = new_figure(PAGE, 0.8 + 0.3 * len(bars))
    axes = figure.add_subplot()
    shares = [{kind: 100 * s / bar.predicted_s for kind, s in bar.differences.items()} for bar in bars]
    kinds = [kind for kind in KINDS if any(abs(share.get(kind, 0.0)) >= 0.01 for share in shares)]
    for place, share in enumerate(shares):
        ends = {True: 0.0, False: 0.0}
        for kind in kinds:
            width = share.get(kind, 0.0)
            axes.barh(
                place,
                width,
                left=ends[width > 0],
                height=0.62,
                facecolor=COSTS[kind].colour,
                edgecolor=WHITE,
                linewidth=0,
                hatch=COSTS[kind].hatch,
            )
            ends[width > 0] += width
        axes.plot(sum(share.values()), place, marker="D", color=WHITE, markeredgecolor=BLACK, markersize=4.5)
    axes.axvline(0, color=BLACK, linewidth=0.8)
    axes.set_yticks(range(len(bars)), [bar.title for bar in bars])
    axes.invert_yaxis()
    x = "measured less predicted, % of the predicted step"
    style_axes(axes, "Where measured and predicted step differ", x, "", grid="x")
    handles = [
        Patch(
            facecolor=COSTS[kind].colour, edgecolor=WHITE, linewidth=0, hatch=COSTS[kind].hatch, label=COSTS[kind].name
        )
        for kind in kinds
    ]
    legend(figure, [*handles, entry("all", BLACK, marker="D", linestyle="", markerfacecolor=WHITE)], columns=4)
    return figure
