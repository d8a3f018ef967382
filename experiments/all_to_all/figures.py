"""Figures of the all-to-all experiment: time against bytes, ranks and delay for each policy, and the slots' duty cycle.

Each figure takes the rows of a summary (``experiment`` = ``all-to-all``) and is None if its variable does not vary.
Rows that name the ``study`` of a variable (``bytes``, ``ranks``, ``delay``, ``slot``, ``skew``) are used for it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from experiments.all_to_all.duty_figure import duty_against_slot
from experiments.all_to_all.series import (
    BROAD,
    DOTTED,
    MOST_PANELS,
    distinct,
    formula_key,
    over_formula,
    series,
    study_rows,
)
from measure.figures.curves import (
    Curve,
    Points,
    Rows,
    curve,
    draw,
    key,
    label_ends,
    label_far,
    near_and_far,
    panel_rows,
    panel_title,
    value,
)
from measure.figures.style import (
    BLACK,
    GREY,
    LIGHT,
    TEXT,
    new_figure,
    style_axes,
    time_unit,
)
from railyard.size import size_in_words

EXPERIMENT = "all-to-all"
_MOST_TICKS = 7
_TARGET, _FAR = 1.05, 1.25


@dataclass(frozen=True)
class _Variable:
    """The variable of a figure: its study, its column, its axis label, and the columns that a panel keeps constant."""

    study: str
    column: str
    label: str
    same: tuple[str, ...]


_BYTES = _Variable("bytes", "bytes_per_pair", "bytes per pair", ("n", "reconfiguration_delay_ms"))
_RANKS = _Variable("ranks", "n", "ranks n", ("bytes_per_pair", "reconfiguration_delay_ms"))
_DELAY = _Variable("delay", "reconfiguration_delay_ms", "reconfiguration delay (ms)", ("n", "bytes_per_pair"))


STUDY_OF = {
    "all_to_all_bytes": "bytes",
    "all_to_all_ranks": "ranks",
    "all_to_all_delay": "delay",
    "all_to_all_duty": "slot",
    "all_to_all_skew": "skew",
}
"""Figure -> the study that it shows, if that was measured (``study_rows``)."""


def all_to_all_figures(rows: Rows) -> dict[str, Figure]:
    """The figures whose variables vary in ``rows``, by name; rows of other experiments are ignored."""
    rows = [row for row in rows if row["experiment"] == EXPERIMENT]
    made = {
        "all_to_all_bytes": time_against(rows, _BYTES),
        "all_to_all_ranks": time_against(rows, _RANKS),
        "all_to_all_delay": time_against(rows, _DELAY),
        "all_to_all_duty": duty_against_slot(rows),
        "all_to_all_skew": uneven_demand(rows),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def time_against(rows: Rows, variable: _Variable) -> Figure | None:
    """Figure of the time of the all-to-all, a curve for each policy, with time over formula below.

    Measured values are markers, the model is a line, the formula (n - 1)(D/B + T) is dashed. There is a column for each
    combination of the constant columns; an electrical rail has no delay and is in every column of its n and size.
    """
    rows = [row for row in study_rows(rows, variable.study) if row.get("time_s")]
    groups = _groups(rows, variable)
    if not groups:
        return None
    figure = new_figure(8.6 if len(groups) == 1 else 1.0 + 5.6 * len(groups), 6.6)
    axes = figure.subplots(2, len(groups), squeeze=False, sharex="col", height_ratios=(3, 2))
    drawn = []
    for column, here in enumerate(groups):
        drawn.append(_time_panel(axes[0][column], here, variable))
        _ratio_panel(axes[1][column], here, variable)
    target = Line2D([], [], color=TEXT, linewidth=0.8, linestyle=DOTTED, label=f"{_TARGET:g} × formula")
    key(figure, drawn, formula_key("formula: (n − 1)(D/B + T) in slots, else the wire's bound"), target)
    return figure


def _groups(rows: Rows, variable: _Variable) -> list[Rows]:
    """The rows of each panel, including those of the electrical rail."""
    optical = [row for row in rows if row["policy"] != "electrical"]
    groups: Sequence[Rows] = panel_rows(optical or rows, value(variable.column), variable.same)
    shared = [name for name in variable.same if name != "reconfiguration_delay_ms"]
    found: list[Rows] = []
    for group in groups[:MOST_PANELS]:
        beside = [
            row for row in rows if row["policy"] == "electrical" and all(row[name] == group[0][name] for name in shared)
        ]
        found.append([row for row in group if row["policy"] != "electrical"] + beside)
    return found


def _curves(rows: Rows, variable: _Variable, y: str, model: str, factor: float = 1.0) -> dict[str, Curve]:
    """A curve for each series with more than one point, and for the electrical rail."""
    x = value(variable.column)
    places = [place for row in rows if (place := x(row)) is not None]
    found: dict[str, Curve] = {}
    for name, (look, mine) in series(rows).items():
        one = curve(look, mine, x, value(y, factor), value(model, factor))
        if mine[0]["policy"] == "electrical" and variable is _DELAY:
            one = replace(one, model=_level(one.model, places))
        if len({place for place, _ in one.points}) > 1:
            found[name] = one
    return found


def _level(points: Points, places: Sequence[float]) -> Points:
    """A single point as a horizontal line over the whole axis; several points unchanged."""
    return [(place, points[0][1]) for place in (min(places), max(places))] if len(points) == 1 else points


def _time_panel(axes: Axes, rows: Rows, variable: _Variable) -> dict[str, Curve]:
    factor, unit = time_unit(max(row["time_s"] for row in rows))
    drawn = _curves(rows, variable, "time_s", "predicted_time_s", factor)
    wide = variable is _BYTES
    near, far = (drawn, {}) if wide else near_and_far(drawn)
    draw(axes, near)
    for points in distinct(_curves(rows, variable, "formula_s", "formula_s", factor).values()):
        axes.plot(*zip(*points, strict=True), **BROAD)
    if wide:
        _log_time(axes)
    else:
        axes.set_ylim(0, (1.2 if far else 1.06) * max(y for one in near.values() for _, y in one.points))
    panel_title(axes, _panel_name(rows, variable), "", f"time ({unit})")
    label_ends(axes, near)
    label_far(axes, far, unit)
    return drawn


def _log_time(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _ratio_panel(axes: Axes, rows: Rows, variable: _Variable) -> None:
    """Draw time over formula for the policies near the formula; the others are listed with their numbers."""
    drawn = _curves([over_formula(row) for row in rows if row.get("formula_s")], variable, "ratio", "model_ratio")
    far = {name: one for name, one in drawn.items() if min(y for _, y in one.points) > _FAR}
    near = {name: one for name, one in drawn.items() if name not in far}
    _mark_one(axes)
    draw(axes, near)
    panel_title(axes, "", variable.label, "time / formula")
    every = [y for one in near.values() for _, y in one.points]
    low, high = min([0.98, *every]), max([_TARGET, *every])
    axes.set_ylim(low - 0.08 * (high - low), high + (0.15 + 0.12 * len(far)) * (high - low))
    _ticks(axes, variable, {row[variable.column] for row in rows})
    label_far(axes, far, "× formula")


def _mark_one(axes: Axes) -> None:
    """Draw the line of the formula and the line of the largest ratio that a measurement should have."""
    axes.axhline(1.0, **BROAD)
    axes.axhline(_TARGET, color=TEXT, linewidth=0.8, linestyle=DOTTED, zorder=1)


def _ticks(axes: Axes, variable: _Variable, places: set[Any]) -> None:
    """Set a tick at each measured value, or fewer if they would crowd."""
    ordered = sorted(place for place in places if place is not None)
    if variable is _BYTES:
        ordered = ordered[:: -(-len(ordered) // _MOST_TICKS)]
        axes.set_xticks(ordered, [size_in_words(size) for size in ordered])
    else:
        axes.set_xticks(ordered, [f"{place:g}" for place in ordered])
    axes.xaxis.set_minor_locator(NullLocator())


def _panel_name(rows: Rows, variable: _Variable) -> str:
    """The title of a panel, such as ``All-to-all, n = 8, 4 MB per pair, T = 20 ms``."""
    row = next((row for row in rows if row["policy"] != "electrical"), rows[0])
    parts = ["All-to-all"]
    if "n" in variable.same:
        parts.append(f"n = {row['n']}")
    if "bytes_per_pair" in variable.same:
        parts.append(f"{size_in_words(row['bytes_per_pair'])} per pair")
    if "reconfiguration_delay_ms" in variable.same:
        parts.append(f"T = {row['reconfiguration_delay_ms']:g} ms")
    return ", ".join(parts)


def uneven_demand(rows: Rows) -> Figure | None:
    """Figure of a bar for each policy with the same uneven demand; the model is a thin line, the formula a broad one.

    None without rows of study ``skew``.
    """
    rows = [row for row in rows if row.get("study") == "skew" and row.get("time_s")]
    groups = panel_rows(rows, lambda _: 0.0, ("n", "bytes_per_pair"), least=1)[:MOST_PANELS]
    if not groups:
        return None
    tallest = max(len(series(group)) for group in groups)
    figure = new_figure(8.6 if len(groups) == 1 else 1.0 + 5.6 * len(groups), 1.6 + 0.55 * tallest)
    axes = figure.subplots(1, len(groups), squeeze=False)[0]
    for panel, here in zip(axes, groups, strict=True):
        _bars(panel, here)
    measured = Line2D([], [], color=GREY, linewidth=8, label="measured")
    model = Line2D([], [], color=BLACK, linewidth=1.6, label="model")
    handles = [measured, model, formula_key("formula: slots as long as their longest transfer, else the wire's bound")]
    figure.legend(handles=handles, loc="outside upper left", frameon=False, fontsize=9, ncols=3)
    return figure


def _bars(axes: Axes, rows: Rows) -> None:
    factor, unit = time_unit(max(row["time_s"] for row in rows))
    longest = max(row["time_s"] for row in rows) * factor
    named = list(series(rows).values())
    for place, (look, mine) in enumerate(named):
        one = curve(look, mine, lambda _: 0.0, value("time_s", factor), value("predicted_time_s", factor))
        ((_, time),) = one.measured
        bad = bool(one.unfaithful)
        axes.barh(
            place, time, 0.62, color="white" if bad else look.colour, edgecolor=look.colour, hatch="//" if bad else None
        )
        axes.text(time + 0.012 * longest, place, f"{time:.3g}", va="center", fontsize=9, color=TEXT)
        for x in {row["formula_s"] * factor for row in mine if row.get("formula_s")}:
            axes.plot((x, x), (place - 0.38, place + 0.38), **BROAD | {"zorder": 3, "linewidth": 3.5})
        for _, x in one.model:
            axes.plot((x, x), (place - 0.31, place + 0.31), color=BLACK, linewidth=1.6, zorder=4)
    axes.set_yticks(range(len(named)), [look.name for look, _ in named])
    axes.set_ylim(len(named) - 0.4, -0.6)
    axes.set_xlim(0, 1.1 * longest)
    axes.grid(axis="x", color=LIGHT, linewidth=0.7)
    axes.set_axisbelow(True)
    title = f"Uneven all-to-all, n = {rows[0]['n']}, {size_in_words(rows[0]['bytes_per_pair'])} per pair on average"
    style_axes(axes, title, f"time ({unit})", "")
