"""Figures of the all-to-all experiment: time against bytes, ranks and delay for each policy, and the slots' duty cycle.

Each figure takes the rows of a summary (``experiment`` = ``all-to-all``) and is None if its variable does not vary.
Rows that name the ``study`` of a variable (``bytes``, ``ranks``, ``delay``, ``slot``, ``skew``) are used for it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.all_to_all.duty_figure import duty_against_slot
from experiments.all_to_all.series import BROAD, by_policy, draw_formula, formula_entry, over_formula, study_rows
from measure.figures.curves import (
    Curve,
    Rows,
    curves,
    draw,
    draw_near,
    label_ends,
    label_far,
    logarithmic,
    name_ticks,
    panel_rows,
    panels,
)
from measure.figures.style import (
    BLACK,
    DOTTED,
    GREY,
    TEXT,
    entry,
    legend,
    new_figure,
    style_axes,
    time_unit,
)
from railyard.size import size_in_words

EXPERIMENT = "all-to-all"
_TARGET, _FAR = 1.05, 1.25


@dataclass(frozen=True)
class _Variable:
    """The variable of a figure: its study, column, axis label and ticks, and what columns a panel keeps constant."""

    study: str
    column: str
    label: str
    same: tuple[str, ...]
    tick: Callable[[Any], str] = "{:g}".format


_BYTES = _Variable("bytes", "bytes_per_pair", "bytes per pair", ("n", "reconfiguration_delay_ms"), size_in_words)
_RANKS = _Variable("ranks", "n", "ranks n", ("bytes_per_pair", "reconfiguration_delay_ms"))
_DELAY = _Variable("delay", "reconfiguration_delay_ms", "reconfiguration delay (ms)", ("n", "bytes_per_pair"))
_SAID: Mapping[str, Callable[[Any], str]] = {
    "n": "n = {}".format,
    "bytes_per_pair": lambda size: f"{size_in_words(size)} per pair",
    "reconfiguration_delay_ms": "T = {:g} ms".format,
}
"""What the title of a panel says of a constant column."""
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
    formula = formula_entry("formula: (n − 1)(D/B + T) in slots, else the wire's bound")
    target = entry(f"{_TARGET:g} × formula", linewidth=0.8, linestyle=DOTTED)
    return panels(_groups(rows, variable), partial(_panels, variable), formula, target, below=True)


def _groups(rows: Rows, variable: _Variable) -> list[Rows]:
    """The rows of each panel, including those of the electrical rail."""
    electrical = [row for row in rows if row["policy"] == "electrical"]
    optical = [row for row in rows if row["policy"] != "electrical"]
    if not optical:
        return panel_rows(electrical, variable.column, variable.same)
    shared = [name for name in variable.same if name != "reconfiguration_delay_ms"]
    return [
        [*group, *(row for row in electrical if all(row[name] == group[0][name] for name in shared))]
        for group in panel_rows(optical, variable.column, variable.same)
    ]


def _panels(variable: _Variable, axes: Axes, below: Axes, rows: Rows) -> Iterable[Curve]:
    drawn = _draw_time(axes, rows, variable)
    _draw_ratio(below, rows, variable)
    name_ticks(below.xaxis, (row[variable.column] for row in rows), variable.tick)
    return drawn


def _curves(rows: Rows, variable: _Variable, y: str, model: str, factor: float = 1.0) -> dict[Any, Curve]:
    """A curve for each series with more than one point, and for the electrical rail."""
    found = curves(by_policy(rows), variable.column, y, model, factor)
    if variable is _DELAY:
        places = [row[variable.column] for row in rows]
        found = {key: one.level(places) if key[0] == "electrical" else one for key, one in found.items()}
    return {key: one for key, one in found.items() if len({x for x, _ in one.points}) > 1}


def _draw_time(axes: Axes, rows: Rows, variable: _Variable) -> Iterable[Curve]:
    factor, unit = time_unit(max(row["time_s"] for row in rows))
    drawn = _curves(rows, variable, "time_s", "predicted_time_s", factor)
    draw_formula(axes, _curves(rows, variable, "formula_s", "formula_s", factor).values())
    said = ["All-to-all", *(_SAID[name](rows[0][name]) for name in variable.same)]
    style_axes(axes, ", ".join(said), "", f"time ({unit})", grid="both", room=True)
    if variable is _BYTES:
        logarithmic(axes)
        draw(axes, drawn)
        label_ends(axes, drawn)
    else:
        draw_near(axes, drawn, unit)
    return drawn.values()


def _draw_ratio(axes: Axes, rows: Rows, variable: _Variable) -> None:
    """Draw time over formula for the policies near the formula; the others are listed with their numbers."""
    drawn = _curves([over_formula(row) for row in rows if row.get("formula_s")], variable, "ratio", "model_ratio")
    far = {name: one for name, one in drawn.items() if min(y for _, y in one.points) > _FAR}
    near = {name: one for name, one in drawn.items() if name not in far}
    axes.axhline(1.0, color=GREY, **BROAD)
    axes.axhline(_TARGET, color=TEXT, linewidth=0.8, linestyle=DOTTED, zorder=1)
    draw(axes, near)
    every = [y for one in near.values() for _, y in one.points]
    low, high = min([0.98, *every]), max([_TARGET, *every])
    axes.set_ylim(low - 0.08 * (high - low), high + (0.15 + 0.12 * len(far)) * (high - low))
    style_axes(axes, "", variable.label, "time / formula", grid="both")
    label_far(axes, far, "× formula")


def uneven_demand(rows: Rows) -> Figure | None:
    """Figure of a bar for each policy with the same uneven demand; the model is a thin line, the formula a broad one.

    None without rows of study ``skew``.
    """
    rows = [row for row in rows if row.get("study") == "skew" and row.get("time_s")]
    groups = panel_rows(rows, "time_s", ("n", "bytes_per_pair"), least=1)[:3]
    if not groups:
        return None
    tallest = max(len(by_policy(group)) for group in groups)
    figure = new_figure(8.6 if len(groups) == 1 else 1.0 + 5.6 * len(groups), 1.6 + 0.55 * tallest)
    for axes, here in zip(figure.subplots(1, len(groups), squeeze=False)[0], groups, strict=True):
        _draw_bars(axes, here)
    formula = formula_entry("formula: slots as long as their longest transfer, else the wire's bound")
    legend(figure, [Patch(color=GREY, label="measured"), entry("model", BLACK, linewidth=1.6), formula])
    return figure


def _draw_bars(axes: Axes, rows: Rows) -> None:
    longest = max(row["time_s"] for row in rows)
    factor, unit = time_unit(longest)
    series = by_policy(rows)
    times = curves(series, lambda _: 0.0, "time_s", "predicted_time_s", factor)
    formulas = curves(series, lambda _: 0.0, "formula_s", None, factor)
    for place, (name, one) in enumerate(times.items()):
        ((_, time),) = one.measured
        face, hatch = ("white", "//") if one.unfaithful else (one.look.colour, None)
        axes.barh(place, time, 0.62, color=face, edgecolor=one.look.colour, hatch=hatch)
        axes.text(time + 0.012 * longest * factor, place, f"{time:.3g}", va="center", fontsize=9, color=TEXT)
        for _, x in formulas[name].measured:
            axes.vlines(x, place - 0.38, place + 0.38, GREY, **BROAD | {"zorder": 3, "linewidth": 3.5})
        for _, x in one.model:
            axes.vlines(x, place - 0.31, place + 0.31, BLACK, linewidth=1.6, zorder=4)
    axes.set_yticks(range(len(times)), [one.look.name for one in times.values()])
    axes.set_ylim(len(times) - 0.4, -0.6)
    axes.set_xlim(0, 1.1 * longest * factor)
    title = f"Uneven all-to-all, n = {rows[0]['n']}, {size_in_words(rows[0]['bytes_per_pair'])} per pair on average"
    style_axes(axes, title, f"time ({unit})", "", grid="x")
