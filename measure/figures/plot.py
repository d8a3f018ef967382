"""Figures by specification: a ``Plot`` says which columns of rows are drawn, ``figure_of`` draws it.

Measured values are markers with their intervals, the model is lines; a value that is not faithful is hollow and crossed
out. What is neither a curve nor a row of marks is drawn by the ``extra`` of a plot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from matplotlib.transforms import ScaledTranslation

from measure.figures.curves import (
    Column,
    Curve,
    Key,
    Points,
    Rows,
    Series,
    curves,
    near_and_far,
    panel_rows,
    read_column,
    series_of,
)
from measure.figures.looks import BLACK, DASHED, GREY, TEXT, WHITE, Look
from measure.figures.style import (
    COLUMN,
    MEASURED,
    ON_WHITE,
    PAGE,
    SMALL,
    bar_look,
    entry,
    legend,
    new_figure,
    note,
    open_mark,
    panel_inches,
    style_axes,
    time_unit,
)
from measure.metrics.estimate import Estimate
from measure.results.estimates import estimate_of
from measure.results.row import Row

_IN_A_ROW = 3
_APART, _SPREAD = 2.0, 4.0
"""Points (1/72 inch) between measured values of two curves at one place, so that their intervals can be seen, and at
most between those of all curves."""
_LETTERS_PER_INCH = 16
"""Letters of ticks, and spaces between them, that fit below an inch of a panel."""
_WIDE_DELAYS = 20.0
"""Ratio of the longest to the shortest delay from which on their axis is logarithmic."""
RATIO_TARGET, _FAR_RATIO = 1.05, 1.25
"""Of ratios to a formula: what is to be reached, and from where on a curve is only named."""
_BARS = 0.8
"""Width of the bars of a category, of 1 between categories."""
FORMULA: Mapping[str, Any] = {"color": GREY, "linewidth": 3.0, "linestyle": (0, (1.6, 0.5)), "zorder": 1}
"""Look of a formula: broad and below other lines, so that it stays visible under model and measurements."""
Text = str | Callable[[Rows], str]
Entries = Sequence[Artist] | Callable[[Rows], Sequence[Artist]]


@dataclass(frozen=True)
class PlotLine:
    """A further column of the rows as a line without markers: in the colour of its curve, if ``look`` has none."""

    y: Column
    look: Mapping[str, Any]


@dataclass(frozen=True)
class Plot:
    """The columns that a panel shows of its rows, and how rows are split into panels.

    ``x``, ``y`` and ``model`` are columns; ``series`` names the curve of a row, and ``looks`` gives its look. ``same``
    are the columns that are constant in a panel, of which there is one for each group of rows with ``least`` values of
    x. ``{unit}`` in the names of axes is the unit of time that fits y (and x, if ``timed`` is "xy"). ``levels`` says of
    which series a single model value is a horizontal line; series with fewer than ``shortest`` places are left out.

    With ``categories`` (the known ones in their order) x is a category: its series stand beside each other, ``apart``
    from each other, and with ``across`` one below the other along the x axis; ``written`` formats the number beside a
    mark.

    ``y_scale``: from 0 on (``zero``, also with curves that are far above only named: ``near``), logarithmic, or round
    1 (``ratio``: what is over 1.25 is only named).
    """

    x: Key
    y: Column
    names: tuple[str, str]
    title: Text = ""
    model: Column | None = None
    series: Key = lambda row: ""
    looks: Mapping[Any, Look] | Callable[[Rows], Mapping[Any, Look]] = field(default_factory=dict)
    same: Sequence[str] = ()
    least: int = 1
    timed: Literal["", "y", "xy"] = ""
    levels: Callable[[Any], bool] | None = None
    shortest: int = 1
    joined: bool = False
    """Markers are joined by a line, as values are computed, and have no intervals."""

    x_scale: Literal["linear", "log", "log2", "delays"] = "linear"
    y_scale: Literal["linear", "zero", "near", "log", "ratio"] = "linear"
    ticks: Callable[[Any], str] | None = None
    """The name of a tick, which stands at each x."""

    grid: Literal["x", "y", "both"] = "both"
    room: bool = False
    lines: Sequence[PlotLine] = ()
    published: Column | None = None
    """Published values, as open marks of the look of their series, or of ``published_look``."""

    published_look: Look | None = None
    across_at: Mapping[float, Mapping[str, Any]] = field(default_factory=dict)
    """Horizontal lines: their values and looks."""

    categories: Sequence[Any] | None = None
    apart: float = 0.0
    across: bool = False
    written: str = ""
    bars: Mapping[str, float] = field(default_factory=dict)
    """Columns that are stacked as bars of each series in a category, with their opacity, in place of marks."""

    extra: Callable[[Panel], object] | None = None
    """Draws what else is in the panel."""

    entries: Entries = ()
    caption: str = ""
    """Of the legend, in place of what markers and lines are (``caption``)."""

    derive: Callable[[Rows], Rows] | None = None
    """The rows that are drawn, from those of the panel."""

    columns: int = 5
    height: float = 2.3
    below: Plot | None = None
    """The lower panel of each on the same x axis."""


@dataclass(frozen=True)
class Panel:
    """A drawn panel: its axes and rows, the curves by series, those too far above to be drawn, factor and unit of y."""

    axes: Axes
    rows: Rows
    drawn: Mapping[Any, Curve]
    factor: float
    unit: str
    places: Sequence[Any]
    """The categories in their order."""


def figure_of(plot: Plot | Sequence[Plot], rows: Rows, groups: Sequence[Rows] | None = None) -> Figure | None:
    """The figure of a plot, three panels in a row, or of several plots beside each other; None without rows.

    ``groups`` are the rows of each panel (default: by the columns that are ``same``). The legend is common to all.
    """
    plots = [plot] if isinstance(plot, Plot) else list(plot)
    if groups is None:
        groups = panel_rows(rows, plots[0].x, plots[0].same, plots[0].least) if len(plots) == 1 else [rows] * len(plots)
    first = plots[0]
    groups = groups[:_IN_A_ROW] if first.below else groups
    if not groups or not any(groups):
        return None
    columns = min(len(groups), _IN_A_ROW)
    deep = -(-len(groups) // columns)
    height = 3.4 if first.below else first.height + 2.1 * (deep - 1)
    figure = new_figure(COLUMN if len(groups) == 1 else PAGE, height)
    drawn: list[Curve] = []
    if first.below:
        pairs = figure.subplots(2, columns, squeeze=False, sharex="col", height_ratios=(3, 2)).T.tolist()
        for (above, below), mine in zip(pairs, groups, strict=True):
            drawn += [*_paint(first, above, mine).drawn.values(), *_paint(first.below, below, mine).drawn.values()]
    else:
        for place, mine in enumerate(groups):
            axes = figure.add_subplot(deep, columns, place + 1)
            drawn += _paint(plots[place % len(plots)], axes, mine).drawn.values()
    shown = [row for mine in groups for row in mine]
    entries = first.entries(shown) if callable(first.entries) else first.entries
    key(figure, drawn, *entries, columns=first.columns, plot=first)
    return figure


def _paint(plot: Plot, axes: Axes, rows: Rows) -> Panel:
    rows = plot.derive(rows) if plot.derive is not None else rows
    factor, unit = _unit(plot, rows)
    series = series_of(rows, lambda row: read_column(row, plot.series), _looks(plot, rows))
    x, places = _places(plot, rows, series, factor)
    drawn = curves(series, x, plot.y, plot.model, factor)
    at = [read_column(row, x) for row in rows]
    if plot.levels is not None:
        drawn = {name: one.level(at) if plot.levels(name) else one for name, one in drawn.items()}
    drawn = {name: one for name, one in drawn.items() if len({place for place, _ in one.points}) >= plot.shortest}
    panel = Panel(axes, rows, drawn, factor, unit, places)
    for line in plot.lines:
        _draw_line(panel, plot, line, {name: series[name] for name in drawn}, x)
    for value, level in plot.across_at.items():
        axes.axhline(value, **level)
    if plot.bars:
        _draw_bars(plot, axes, series, x)
    else:
        _draw_curves(plot, panel)
    if plot.published is not None:
        for name, (look, mine) in series.items():
            shown = curves({name: (look, mine)}, x, plot.published, None, factor)[name].measured
            _points(axes, shown, plot.across, zorder=5, **open_mark(plot.published_look or look))
    _scale_x(plot, axes, at, places)
    title = plot.title(rows) if callable(plot.title) else plot.title
    names = (name.replace("{unit}", unit) for name in plot.names)
    style_axes(axes, title, *names, grid=plot.grid, room=plot.room)
    if plot.extra is not None:
        plot.extra(panel)
    return panel


def _unit(plot: Plot, rows: Rows) -> tuple[float, str]:
    if not plot.timed:
        return 1.0, ""
    columns = [plot.y, *([plot.x] if plot.timed == "xy" else [])]
    times = [value for row in rows for column in columns if (value := read_column(row, column))]
    predicted = [read_column(row, plot.model) or 0.0 for row in rows if plot.model]
    return time_unit(max(times or predicted, default=0.0))


def _looks(plot: Plot, rows: Rows) -> Mapping[Any, Look]:
    return plot.looks(rows) if callable(plot.looks) else plot.looks


def _places(plot: Plot, rows: Rows, series: Series, factor: float) -> tuple[Key, Sequence[Any]]:
    """The column of x in the unit of the panel, and the categories in their order."""
    if plot.categories is None:
        return (lambda row: factor * read_column(row, plot.x)) if plot.timed == "xy" else plot.x, ()
    known = list(dict.fromkeys(read_column(row, plot.x) for row in rows))
    ordered = [each for each in plot.categories if each in known]
    ordered += [each for each in known if each not in ordered]
    names = list(series)

    apart = _BARS / len(names) if plot.bars else plot.apart

    def place(row: Row) -> float:
        beside = names.index(read_column(row, plot.series)) - (len(names) - 1) / 2
        return float(ordered.index(read_column(row, plot.x)) + apart * beside)

    return place, ordered


def _draw_line(panel: Panel, plot: Plot, line: PlotLine, series: Series, x: Key) -> None:
    """Draw a further column, each distinct line once, as most series have the same formula."""
    lines = curves(series, x, line.y, None, panel.factor)
    points = {name: tuple(lines[name].measured) for name in lines}
    if plot.levels is not None:
        at = sorted(read_column(row, x) for row in panel.rows)
        points = {name: ((at[0], mine[0][1]), (at[-1], mine[0][1])) if plot.levels(name) and len(mine) == 1 else mine
                  for name, mine in points.items()}  # fmt: skip
    distinct = {tuple((at, float(f"{y:.6g}")) for at, y in mine): name for name, mine in points.items() if mine}
    for name in distinct.values():
        if plot.categories is None:
            _points(panel.axes, points[name], False, **{"color": lines[name].look.colour, **line.look})
        else:
            _ticks(panel.axes, points[name], plot.across, 0.38, **line.look)


def _draw_curves(plot: Plot, panel: Panel) -> None:
    axes, drawn = panel.axes, panel.drawn
    if plot.categories is not None:
        for curve in drawn.values():
            half = 0.39 * plot.apart if plot.apart else 0.31
            _ticks(axes, curve.model, plot.across, half, color=curve.look.colour, linewidth=1.2, zorder=2)
            bad = dict(curve.unfaithful)
            for at, value in curve.estimates.items():
                mark(axes, at, value, curve.look, faithful=at not in bad, across=plot.across)
                if plot.written:
                    over = max(value.high or value.median, dict(curve.model).get(at, 0.0))
                    there = (value.median, at) if plot.across else (at, over)
                    note(axes, format(value.median, plot.written), there, (0, 4), ha="center", va="bottom")
    elif plot.joined:
        for curve in drawn.values():
            look = curve.look
            line(axes, curve.points, color=look.colour, linestyle=look.dashes, linewidth=1.0, marker=look.marker,
                 markersize=look.size)  # fmt: skip
    elif plot.y_scale == "near" and any(y > 0 for curve in drawn.values() for _, y in curve.points):
        draw_near(axes, drawn, panel.unit)
    elif plot.y_scale == "ratio":
        _draw_ratio(axes, drawn)
    else:
        draw(axes, drawn)
    if plot.y_scale == "log":
        logarithmic(axes.yaxis)
    elif plot.y_scale == "zero":
        axes.set_ylim(bottom=0)


def _draw_bars(plot: Plot, axes: Axes, series: Series, x: Key) -> None:
    """Draw the bars of each series, stacked, with the interval of each part."""
    for look, mine in series.values():
        for row in mine:
            at, bottom = read_column(row, x), 0.0
            for column, opacity in plot.bars.items():
                axes.bar(at, row[column] or 0.0, 0.92 * _BARS / len(series), bottom, alpha=opacity, **bar_look(look))
                value = estimate_of(row, column)
                if value is not None and value.low is not None and value.high is not None:
                    ends = [bottom + value.low, bottom + value.high]
                    axes.plot([at, at], ends, color=TEXT, marker="_", markersize=5, linewidth=0.8, zorder=3)
                bottom += row[column] or 0.0


def _draw_ratio(axes: Axes, drawn: Mapping[Any, Curve]) -> None:
    far = {name: one for name, one in drawn.items() if min(y for _, y in one.points) > _FAR_RATIO}
    near = {name: one for name, one in drawn.items() if name not in far}
    draw(axes, near)
    every = [y for one in near.values() for _, y in one.points]
    low, high = min([0.98, *every]), max([RATIO_TARGET, *every])
    axes.set_ylim(low - 0.08 * (high - low), high + (0.15 + 0.12 * len(far)) * (high - low))
    label_far(axes, far, "× formula")


def _scale_x(plot: Plot, axes: Axes, at: Sequence[Any], places: Sequence[Any]) -> None:
    """Set scale and ticks of the x axis; delays over a wide span are logarithmic, with a linear part around 0."""
    if plot.categories is not None:
        axis = axes.yaxis if plot.across else axes.xaxis
        axis.set_ticks(range(len(places)), [plot.ticks(place) if plot.ticks else str(place) for place in places])
        if plot.across:
            axes.set_ylim(len(places) - 0.4, -0.6)
        else:
            axes.set_xlim(-0.5, len(places) - 0.5)
        return
    positive = sorted(place for place in at if place and place > 0)
    if plot.x_scale == "delays":
        if positive and positive[-1] / positive[0] >= _WIDE_DELAYS:
            axes.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
            axes.set_xlim(left=-0.1 * positive[0])
    elif plot.x_scale == "log2":
        axes.set_xscale("log", base=2)
    elif plot.x_scale == "log":
        axes.set_xscale("log")
    if plot.ticks is not None:
        name_ticks(axes.xaxis, at, plot.ticks)


def _ticks(axes: Axes, points: Points, across: bool, half: float, **look: Any) -> None:
    """Draw short lines at the values of places: across the direction of the values, ``half`` to both sides."""
    for at, y in points:
        ends = [at - half, at + half]
        axes.plot(*([[y, y], ends] if across else [ends, [y, y]]), **look)


def _points(axes: Axes, points: Points, across: bool, **look: Any) -> None:
    if points:
        line(axes, [(y, at) for at, y in points] if across else points, **look)


def key(figure: Figure, drawn: Iterable[Curve], *entries: Artist, columns: int = 5, plot: Plot | None = None) -> None:
    """Add the legend of curves: the things that they are of, ``entries``, and what markers and lines are."""
    drawn = list(drawn)
    looks = dict.fromkeys(curve.look for curve in drawn)
    estimates = [each for curve in drawn for each in curve.estimates.values()]
    said = caption(estimates, model=any(curve.model for curve in drawn))
    handles: list[Artist] = [thing(look) for look in looks]
    if plot is not None and plot.bars:
        handles = [Patch(**bar_look(look), label=look.name) for look in looks]
        numbers = sorted({each.n for each in estimates if each.n > 1})
        said = f"whiskers: 95 % interval (n = {' to '.join(map(str, numbers))})" if numbers else ""
    elif plot is not None and plot.categories is not None:
        handles = [] if plot.across else [thing(look, linestyle="") for look in looks]
    elif plot is not None and plot.joined:
        said = ""
    said = plot.caption if plot is not None and plot.caption else said
    handles += entries
    if any(curve.unfaithful for curve in drawn) and not (plot and plot.bars):
        handles.append(unfaithful_mark())
    legend(figure, handles, columns, said)


def thing(look: Look, **more: Any) -> Line2D:
    """The entry of a legend of a thing that is drawn with markers and lines."""
    given: dict[str, Any] = {"marker": look.marker, "linestyle": look.dashes, "markersize": look.size}
    return entry(look.name, look.colour, **given | more)


def unfaithful_mark() -> Line2D:
    """The entry of a legend of points that are not faithful."""
    return entry("not faithful", BLACK, marker="x", markersize=5, linestyle="")


def caption(estimates: Iterable[Estimate], *, model: bool, markers: str = "markers") -> str:
    """The caption of a legend: what markers and lines are, and of how many repeats."""
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
    step = max(1, -int(-sum(len(name(place)) + 2 for place in ordered) // most))
    axis.set_ticks(ordered[::step], [name(place) for place in ordered[::step]])
    axis.set_minor_locator(NullLocator())


def logarithmic(axis: Axis) -> None:
    """Make a y axis logarithmic, with ticks at 1, 2 and 5 times the powers of 10, written as numbers."""
    axis.axes.set_yscale("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(NullLocator())


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
