"""Figures of the all-to-all experiment: time against bytes, ranks and delay for each policy, and the slots' duty cycle.

Each figure takes the rows of a summary (``experiment`` = ``all-to-all``) and is None if its variable does not vary.
Rows that name the ``study`` of a variable (``bytes``, ``ranks``, ``delay``, ``slot``, ``skew``) are used for it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from measure.figures import panels, style
from measure.figures.curves import Curve, Rows, Series, curves, panel_rows, series_of
from measure.figures.looks import DASHED, DOTTED, GREY, POLICIES, SHAPES, SPARE, TEXT, Look
from measure.results.estimates import values_of
from measure.results.row import Row
from railyard.size import size_in_words

_TARGET, _FAR = 1.05, 1.25
_SMOOTH = 60
BROAD: dict[str, Any] = {"linewidth": 3.0, "linestyle": (0, (1.6, 0.5)), "zorder": 1}
"""Line style of a formula: broad and below other lines, so that it stays visible under model and measurements."""


@dataclass(frozen=True)
class _Variable:
    """The variable of a figure: its column, axis label and ticks, and what columns a panel keeps constant."""

    column: str
    label: str
    same: tuple[str, ...]
    tick: Callable[[Any], str] = "{:g}".format


_BYTES = _Variable("bytes_per_pair", "bytes per pair", ("n", "reconfiguration_delay_ms"), size_in_words)
_RANKS = _Variable("n", "ranks n", ("bytes_per_pair", "reconfiguration_delay_ms"))
_DELAY = _Variable("reconfiguration_delay_ms", "reconfiguration delay (ms)", ("n", "bytes_per_pair"))
_SAID: Mapping[str, Callable[[Any], str]] = {
    "n": "n = {}".format,
    "bytes_per_pair": lambda size: f"{size_in_words(size)} per pair",
    "reconfiguration_delay_ms": "T = {:g} ms".format,
}
"""What the title of a panel says of a constant column."""


def all_to_all_figures(rows: Rows) -> dict[str, Figure]:
    """The figures whose variables vary in ``rows``, by name; rows of other experiments are ignored."""
    rows = [row for row in rows if row["experiment"] == "all-to-all"]
    made = {name: draw(study_rows(rows, study)) for name, (study, draw) in FIGURES.items()}
    return {name: figure for name, figure in made.items() if figure is not None}


def study_rows(rows: Rows, name: str) -> Rows:
    """The rows of study ``name``; if there are none, those that belong to none of the figures' studies."""
    mine = [row for row in rows if row.get("study") == name]
    studies = {study for study, _ in FIGURES.values()}
    return mine or [row for row in rows if row.get("study") not in studies]


def time_against(variable: _Variable, rows: Rows) -> Figure | None:
    """Figure of the time of the all-to-all, a curve for each policy, with time over formula below.

    Measured values are markers, the model is a line, the formula (n - 1)(D/B + T) is dashed. There is a column for each
    combination of the constant columns; an electrical rail has no delay and is in every column of its n and size.
    """
    rows = [row for row in rows if row.get("time_s")]
    formula = formula_entry("formula: (n − 1)(D/B + T) in slots, else the wire's bound")
    target = style.entry(f"{_TARGET:g} × formula", linewidth=0.8, linestyle=DOTTED)
    return panels.figure_of(_groups(rows, variable), partial(_time_panels, variable), formula, target, below=True)


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


def _time_panels(variable: _Variable, axes: Axes, below: Axes, rows: Rows) -> Iterable[Curve]:
    drawn = _draw_time(axes, rows, variable)
    _draw_ratio(below, rows, variable)
    panels.name_ticks(below.xaxis, (row[variable.column] for row in rows), variable.tick)
    return drawn


def _curves(rows: Rows, variable: _Variable, y: str, model: str, factor: float = 1.0) -> dict[Any, Curve]:
    """A curve for each series with more than one point, and for the electrical rail."""
    found = curves(by_policy(rows), variable.column, y, model, factor)
    if variable is _DELAY:
        places = [row[variable.column] for row in rows]
        found = {key: one.level(places) if key[0] == "electrical" else one for key, one in found.items()}
    return {key: one for key, one in found.items() if len({x for x, _ in one.points}) > 1}


def _draw_time(axes: Axes, rows: Rows, variable: _Variable) -> Iterable[Curve]:
    factor, unit = style.time_unit(max(row["time_s"] for row in rows))
    drawn = _curves(rows, variable, "time_s", "predicted_time_s", factor)
    draw_formula(axes, _curves(rows, variable, "formula_s", "formula_s", factor).values())
    said = ["All-to-all", *(_SAID[name](rows[0][name]) for name in variable.same)]
    style.style_axes(axes, ", ".join(said), "", f"time ({unit})", grid="both")
    if variable is _BYTES:
        panels.logarithmic(axes)
        panels.draw(axes, drawn)
    else:
        panels.draw_near(axes, drawn, unit)
    return drawn.values()


def _draw_ratio(axes: Axes, rows: Rows, variable: _Variable) -> None:
    """Draw time over formula for the policies near the formula; the others are listed with their numbers."""
    drawn = _curves([over_formula(row) for row in rows if row.get("formula_s")], variable, "ratio", "model_ratio")
    far = {name: one for name, one in drawn.items() if min(y for _, y in one.points) > _FAR}
    near = {name: one for name, one in drawn.items() if name not in far}
    axes.axhline(1.0, color=GREY, **BROAD)
    axes.axhline(_TARGET, color=TEXT, linewidth=0.8, linestyle=DOTTED, zorder=1)
    panels.draw(axes, near)
    every = [y for one in near.values() for _, y in one.points]
    low, high = min([0.98, *every]), max([_TARGET, *every])
    axes.set_ylim(low - 0.08 * (high - low), high + (0.15 + 0.12 * len(far)) * (high - low))
    style.style_axes(axes, "", variable.label, "time / formula", grid="both")
    panels.label_far(axes, far, "× formula")


def duty_against_slot(rows: Rows) -> Figure | None:
    """Figure of the share of time in which data moves against the length of fixed slots, with the total time below.

    Dashed: slot / (slot + T), the share in which circuits are up; dotted: less the guard time at the end of each slot.
    None without rows of at least two slot lengths.
    """
    rows = [row for row in rows if row.get("slot_ms") and row.get("duty_cycle") is not None]
    entries = [style.entry("slot / (slot + T)", linewidth=0.8, linestyle=DASHED)]
    if any(row.get("guard_ms") for row in rows):
        entries.append(style.entry("less the guard time", linewidth=0.8, linestyle=DOTTED))
    groups = panel_rows(rows, "slot_ms", ("n",))
    return panels.figure_of(groups, _slot_panels, *entries, formula_entry("formula of the time"), below=True)


def _slot_panels(axes: Axes, below: Axes, rows: Rows) -> Iterable[Curve]:
    slots = sorted({row["slot_ms"] for row in rows})
    axes.set_xscale("log")
    axes.set_xlim(slots[0] / 1.06, slots[-1] * 1.06)
    panels.name_ticks(below.xaxis, slots)
    return [*_draw_duty(axes, rows, slots), *_draw_slot_time(below, rows)]


def _by_delay(rows: Rows) -> Series:
    """The rows of each delay, and of each policy if there are several."""
    several = len({row["policy"] for row in rows}) > 1

    def name(row: Row) -> str:
        policy = POLICIES[row["policy"]].name if row["policy"] in POLICIES else row["policy"]
        return f"T = {row['reconfiguration_delay_ms']:g} ms" + (f", {policy}" if several else "")

    return series_of(sorted(rows, key=lambda row: (row["reconfiguration_delay_ms"], row["policy"])), name)


def _draw_duty(axes: Axes, rows: Rows, slots: Sequence[float]) -> Iterable[Curve]:
    series, lowest = _by_delay(rows), min(row["duty_cycle"] for row in rows)
    lengths = np.geomspace(slots[0], slots[-1], _SMOOTH + 1)
    for look, mine in series.values():
        delay, guard = mine[0]["reconfiguration_delay_ms"], mine[0].get("guard_ms") or 0.0
        for kept, dashes in {guard: DOTTED, 0.0: DASHED}.items():
            shares = (lengths - kept) / (lengths + delay)
            axes.plot(lengths, shares, color=look.colour, linewidth=0.8, linestyle=dashes, zorder=2)
            lowest = min(lowest, *shares)
    drawn = curves(series, "slot_ms", "duty_cycle")
    panels.draw(axes, drawn)
    axes.set_ylim(max(0.0, lowest - 0.12 * (1 - lowest)), 1.0 + 0.04 * (1 - lowest))
    style.style_axes(axes, f"Duty cycle of the slots, n = {rows[0]['n']}", "", "duty cycle", grid="both")
    return drawn.values()


def _draw_slot_time(axes: Axes, rows: Rows) -> Iterable[Curve]:
    """Draw the panel of total time; if sizes differ within the panel, of time over formula."""
    rows = [row for row in rows if row.get("formula_s") and row.get("time_s")]
    factor, unit = style.time_unit(max((row["time_s"] for row in rows), default=1.0))
    if len({row["bytes_per_pair"] for row in rows}) == 1:
        series, label = _by_delay(rows), f"time ({unit})"
        drawn = curves(series, "slot_ms", "time_s", "predicted_time_s", factor)
        formulas = curves(series, "slot_ms", "formula_s", "formula_s", factor)
    else:
        series, label = _by_delay([over_formula(row) for row in rows]), "time / formula"
        drawn = curves(series, "slot_ms", "ratio", "model_ratio")
        formulas = curves(series, "slot_ms", lambda _: 1.0, lambda _: 1.0)
    draw_formula(axes, formulas.values())
    panels.draw(axes, drawn)
    style.style_axes(axes, "", "slot length (ms)", label, grid="both")
    return drawn.values()


def uneven_demand(rows: Rows) -> Figure | None:
    """Figure of a bar for each policy with the same uneven demand; the model is a thin line, the formula a broad one.

    None without rows of study ``skew``.
    """
    rows = [row for row in rows if row.get("study") == "skew" and row.get("time_s")]
    groups = panel_rows(rows, "time_s", ("n", "bytes_per_pair"), least=1)[:3]
    if not groups:
        return None
    tallest = max(len(by_policy(group)) for group in groups)
    figure = style.new_figure(style.COLUMN if len(groups) == 1 else style.PAGE, 0.8 + 0.28 * tallest)
    drawn: list[Curve] = []
    for axes, here in zip(figure.subplots(1, len(groups), squeeze=False)[0], groups, strict=True):
        drawn += _draw_places(axes, here)
    formula = formula_entry("formula: slots as long as their longest transfer, else the wire's bound")
    model = style.entry("model", marker="|", markersize=10, markeredgewidth=1.2, linestyle="")
    crossed = [panels.unfaithful_mark()] if any(one.unfaithful for one in drawn) else []
    caption = panels.caption((each for one in drawn for each in one.estimates.values()), model=False)
    style.legend(figure, [model, formula, *crossed], caption=caption)
    return figure


def _draw_places(axes: Axes, rows: Rows) -> Iterable[Curve]:
    """Draw a line of the panel for each policy: the measured time, the model and the formula."""
    longest = max(row["time_s"] for row in rows)
    factor, unit = style.time_unit(longest)
    series = by_policy(rows)
    times = curves(series, lambda _: 0.0, "time_s", "predicted_time_s", factor)
    formulas = curves(series, lambda _: 0.0, "formula_s", None, factor)
    for place, (name, one) in enumerate(times.items()):
        for _, x in formulas[name].measured:
            axes.vlines(x, place - 0.38, place + 0.38, GREY, **BROAD)
        for _, x in one.model:
            axes.vlines(x, place - 0.31, place + 0.31, one.look.colour, linewidth=1.2, zorder=2)
        for value in one.estimates.values():
            panels.mark(axes, place, value, one.look, faithful=not one.unfaithful, across=True)
            style.note(axes, f"{value.median:.3g}", (value.median, place), (0, 4), ha="center", va="bottom")
    axes.set_yticks(range(len(times)), [one.look.name for one in times.values()])
    axes.set_ylim(len(times) - 0.4, -0.6)
    axes.set_xlim(0, 1.15 * longest * factor)
    title = f"n = {rows[0]['n']}, {size_in_words(rows[0]['bytes_per_pair'])} per pair on average"
    style.style_axes(axes, title, f"time ({unit})", "", grid="x")
    return times.values()


def by_policy(rows: Rows) -> Series:
    """The rows of each policy and slot length, with the look of their curve."""
    looks: dict[tuple[str, float], Look] = {}
    for policy in [*POLICIES, *sorted({row["policy"] for row in rows} - set(POLICIES))]:
        look = POLICIES.get(policy, SPARE[-1].named(policy))
        slots = sorted({row.get("slot_ms") or 0.0 for row in rows if row["policy"] == policy})
        for marker, slot in zip((look.marker, *SHAPES * len(slots)), slots, strict=False):
            name = f"{look.name}, {slot:g} ms" if slot and len(slots) > 1 else look.name
            looks[policy, slot] = replace(look, name=name, marker=marker)
    return series_of(rows, lambda row: (row["policy"], row.get("slot_ms") or 0.0), looks)


def draw_formula(axes: Axes, formulas: Iterable[Curve]) -> None:
    """Draw the lines of a formula, each once, since most policies have the same one."""
    distinct = {tuple((x, float(f"{y:.6g}")) for x, y in one.model): one.model for one in formulas}
    for points in distinct.values():
        panels.line(axes, points, color=GREY, **BROAD)


def over_formula(row: Row) -> Row:
    """The row with two more columns: ``ratio``, measured time over formula, and ``model_ratio``."""
    model = row.get("predicted_time_s")
    times = [time and time / row["formula_s"] for time in values_of(row, "time_s")]
    samples = {"ratio": times}
    ratio = row["time_s"] / row["formula_s"]
    return {
        **row,
        "ratio": ratio,
        "samples": samples,
        "model_ratio": None if model is None else model / row["formula_s"],
    }


def formula_entry(label: str) -> Line2D:
    """The legend style.entry of a formula."""
    return style.entry(label, GREY, **BROAD)


FIGURES: Mapping[str, tuple[str, Callable[[Rows], Figure | None]]] = {
    "all_to_all_bytes": ("bytes", partial(time_against, _BYTES)),
    "all_to_all_ranks": ("ranks", partial(time_against, _RANKS)),
    "all_to_all_delay": ("delay", partial(time_against, _DELAY)),
    "all_to_all_duty": ("slot", duty_against_slot),
    "all_to_all_skew": ("skew", uneven_demand),
}
"""Figure -> the study whose rows it shows (``study_rows``), and the function that draws it."""
