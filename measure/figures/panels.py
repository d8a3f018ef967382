"""Panels of figures that compare measurements (markers) with the model (lines): axes, legend, lines, labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from matplotlib.transforms import ScaledTranslation

from measure.figures.curves import Curve, Points, Rows, near_and_far
from measure.figures.looks import BLACK, DASHED, TEXT, WHITE, Look
from measure.figures.style import (
    COLUMN,
    MEASURED,
    ON_WHITE,
    PAGE,
    SMALL,
    entry,
    legend,
    new_figure,
    note,
    panel_inches,
)
from measure.metrics.estimate import Estimate

_IN_A_ROW = 3
_APART, _SPREAD = 2.0, 4.0
"""Points (1/72 inch) between measured values of two curves at one place, so that their intervals can be seen, and at
most between those of all curves."""
_LETTERS_PER_INCH = 16
"""Letters of ticks, and spaces between them, that fit below an inch of a panel."""


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
    figure = new_figure(COLUMN if len(groups) == 1 else PAGE, 3.4 if below else 0.2 + 2.1 * lines)
    if below:
        axes = figure.subplots(2, columns, squeeze=False, sharex="col", height_ratios=(3, 2)).T.tolist()
    else:
        axes = [[figure.add_subplot(lines, columns, place + 1)] for place in range(len(groups))]
    drawn = [curve for mine, rows in zip(axes, groups, strict=True) for curve in paint(*mine, rows)]
    key(figure, drawn, *entries)
    return figure


def key(figure: Figure, drawn: Iterable[Curve], *entries: Line2D) -> None:
    """Add the legend of curves: the things that they are of, ``entries``, and what markers and lines are."""
    drawn = list(drawn)
    handles = [thing(look) for look in dict.fromkeys(curve.look for curve in drawn)]
    handles += entries
    if any(curve.unfaithful for curve in drawn):
        handles.append(unfaithful_mark())
    estimates = [each for curve in drawn for each in curve.estimates.values()]
    legend(figure, handles, caption=caption(estimates, model=any(curve.model for curve in drawn)))


def thing(look: Look) -> Line2D:
    """The entry of a legend of a thing that is drawn with markers and lines."""
    return entry(look.name, look.colour, marker=look.marker, linestyle=look.dashes, markersize=look.size)


def unfaithful_mark() -> Line2D:
    """The entry of a legend of points that are not faithful."""
    return entry("not faithful", BLACK, marker="x", markersize=5, linestyle="")


def caption(estimates: Iterable[Estimate], *, model: bool, markers: str = "markers") -> str:
    """What markers and lines are, and of how many repeats: the caption of a legend."""
    numbers = sorted({each.n for each in estimates})
    said = []
    if numbers:
        n = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
        said.append(f"{markers}: measured (n = {n}{', whiskers: 95 % interval' if numbers[-1] > 1 else ''})")
    return "; ".join([*said, *(["lines: model"] if model else [])])


def name_ticks(axis: Axis, places: Iterable[float | None], name: Callable[[Any], str] = "{:g}".format) -> None:
    """Set a tick with its name at each place; at each second or third one if the names would crowd."""
    ordered = sorted({place for place in places if place is not None})
    most = _LETTERS_PER_INCH * panel_inches(axis.axes)
    step = -int(-sum(len(name(place)) + 2 for place in ordered) // most)
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
    measured = [curve for curve in drawn.values() if curve.estimates]
    apart = min(_APART, _SPREAD / max(1, len(measured) - 1))
    for curve in drawn.values():
        look = curve.look
        aside = apart * (measured.index(curve) - (len(measured) - 1) / 2) if curve in measured else 0.0
        if curve.model:
            alone = {"marker": "_", "markersize": 14} if len(curve.model) == 1 else {}
            line(axes, curve.model, color=look.colour, linestyle=look.dashes, linewidth=1.0, zorder=2, **alone)
        bad = dict(curve.unfaithful)
        for place, each in curve.estimates.items():
            mark(axes, place, each, look, faithful=place not in bad, aside=aside)


def mark(
    axes: Axes,
    x: float,
    value: Estimate,
    look: Look,
    *,
    faithful: bool = True,
    across: bool = False,
    aside: float = 0.0,
) -> None:
    """Draw a measured value as a marker with its interval, ``aside`` points (1/72 inch) right of its place.

    ``across``: along the x axis, at ``x`` of the y axis.
    """
    face = look.colour if faithful else WHITE
    given: dict[str, Any] = {"color": look.colour, "markersize": look.size, "markerfacecolor": face, "linestyle": ""}
    place = (value.median, x) if across else (x, value.median)
    drawn = axes.plot(*([one] for one in place), marker=look.marker, zorder=4, **given)
    if value.low is not None and value.high is not None:
        ends: Any = ([value.low, value.high], [x, x]) if across else ([x, x], [value.low, value.high])
        bar = given | {"marker": "|" if across else "_", "markersize": 4.5, "linestyle": "-", "linewidth": 0.8}
        drawn += axes.plot(*ends, zorder=3, **bar)
    if not faithful:
        cross = given | {"marker": "x", "color": BLACK, "markersize": 5}
        drawn += axes.plot(*([one] for one in place), zorder=5, **cross)
    for each in drawn:  # moved when its values are in the limits of the axes, which a moved line would not be
        each.set_transform(axes.transData + ScaledTranslation(aside / 72, 0, axes.figure.dpi_scale_trans))
        each.set_gid(MEASURED)


def draw_near(axes: Axes, drawn: Mapping[Any, Curve], unit: str) -> None:
    """Draw curves from 0 on; curves far above the others are only named."""
    near, far = near_and_far(drawn)
    draw(axes, near)
    highest = max(y for curve in near.values() for _, y in curve.points)
    highest = max([highest, *(e.high for curve in near.values() for e in curve.estimates.values() if e.high)])
    axes.set_ylim(0, (1.2 if far else 1.06) * highest)
    label_far(axes, far, unit)


def line(axes: Axes, points: Points, **look: Any) -> None:
    """Draw points as a line, or as markers."""
    axes.plot(*zip(*points, strict=True), **look)


def cumulative(axes: Axes, values: Iterable[float], right: float, **look: Any) -> None:
    """Draw the cumulative distribution of values as steps from 0 to 1, continued at 1 as far as ``right``."""
    ordered = sorted(values)
    shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
    given: dict[str, Any] = {"linewidth": 1.2} | look
    axes.step([ordered[0], *ordered, right], [0.0, *shares, 1.0], where="post", **given)


def label_far(axes: Axes, far: Mapping[Any, Curve], unit: str) -> None:
    """Label the curves that lie above the panel, with their lowest value."""
    for place, curve in enumerate(far.values()):
        text = f"↑ {curve.look.name}, {min(y for _, y in curve.measured or curve.model):.3g} {unit}"
        look: dict[str, Any] = {"color": curve.look.colour, "va": "top", "ha": "right", "bbox": ON_WHITE, "zorder": 6}
        shift = (-2.0, -2.0 - 1.3 * SMALL * place)
        note(axes, text, (1.0, 1.0), shift, xycoords="axes fraction", fontweight="bold", **look)


def mark_vertical(axes: Axes, x: float, text: str, side: str = "right", dashes: Any = DASHED) -> None:
    """Draw a dashed vertical line at a value, with its name above the panel: on a ``side`` of the line, or "center"."""
    axes.axvline(x, color=TEXT, linewidth=0.7, linestyle=dashes, zorder=1)
    shift, align = {"left": (-2, "right"), "right": (2, "left")}.get(side, (0, "center"))
    note(axes, text, (x, 1.0), (shift, 2), xycoords=("data", "axes fraction"), ha=align, va="bottom")
