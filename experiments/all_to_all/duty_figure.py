"""Figure of the duty cycle of slots of fixed length: the share of time in which data moves, and the total time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from experiments.all_to_all.series import (
    BROAD,
    DASHED,
    DOTTED,
    LOOKS,
    MOST_PANELS,
    distinct,
    formula_key,
    over_formula,
    study_rows,
)
from measure.figures.curves import (
    Curve,
    Look,
    Points,
    Rows,
    curve,
    draw,
    key,
    label_ends,
    panel_rows,
    panel_title,
    value,
)
from measure.figures.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, TEXT, VERMILION, new_figure, time_unit

_BY_DELAY = ((BLUE, "o"), (VERMILION, "^"), (GREEN, "s"), (PURPLE, "D"), (ORANGE, "v"), (SKY, "P"), (BLACK, "X"))
_SMOOTH = 60
_LABEL = "slot length (ms)"


def duty_against_slot(rows: Rows) -> Figure | None:
    """Figure of the share of time in which data moves against the length of fixed slots, with the total time below.

    Dashed: slot / (slot + T), the share in which circuits are up; dotted: less the guard time at the end of each slot.
    None without rows of at least two slot lengths.
    """
    rows = [row for row in study_rows(rows, "slot") if row.get("slot_ms") and row.get("duty_cycle") is not None]
    groups = panel_rows(rows, value("slot_ms"), ("n",))[:MOST_PANELS]
    if not groups:
        return None
    figure = new_figure(8.6 if len(groups) == 1 else 1.0 + 5.6 * len(groups), 6.6)
    axes = figure.subplots(2, len(groups), squeeze=False, sharex="col", height_ratios=(3, 2))
    drawn = []
    for column, here in enumerate(groups):
        drawn += [_duty_panel(axes[0][column], here), _slot_time_panel(axes[1][column], here)]
    up_share = Line2D([], [], color=TEXT, linewidth=1.1, linestyle=DASHED, label="slot / (slot + T)")
    guard = Line2D([], [], color=TEXT, linewidth=1.1, linestyle=DOTTED, label="less the guard time")
    formula = formula_key("formula of the time")
    key(figure, drawn, up_share, *([guard] if any(row.get("guard_ms") for row in rows) else []), formula)
    return figure


def _by_delay(rows: Rows) -> dict[str, tuple[Look, Rows]]:
    """The rows of each delay, and of each policy if there are several."""
    several = len({row["policy"] for row in rows}) > 1
    found: dict[tuple[float, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["reconfiguration_delay_ms"], row["policy"] if several else ""].append(row)
    series: dict[str, tuple[Look, Rows]] = {}
    for (delay, policy), (colour, marker) in zip(sorted(found), _BY_DELAY * len(found), strict=False):
        name = f"T = {delay:g} ms"
        if several:
            name += f", {LOOKS[policy].name if policy in LOOKS else policy}"
        series[name] = Look(name, colour, marker), found[delay, policy]
    return series


def _duty_panel(axes: Axes, rows: Rows) -> dict[str, Curve]:
    x = value("slot_ms")
    slots = [row["slot_ms"] for row in rows]
    lowest, drawn = 1.0, {}
    for name, (look, mine) in _by_delay(rows).items():
        drawn[name] = curve(look, mine, x, value("duty_cycle"), lambda _: None)
        delay, guard = mine[0]["reconfiguration_delay_ms"], mine[0].get("guard_ms") or 0.0
        for kept, dashes in {0.0: DASHED, **({guard: DOTTED} if guard else {})}.items():
            line = [(slot, (slot - kept) / (slot + delay)) for slot in _between(min(slots), max(slots))]
            axes.plot(*zip(*line, strict=True), color=look.colour, linewidth=1.1, linestyle=dashes, zorder=2)
            lowest = min(lowest, *(share for _, share in line), *(share for _, share in drawn[name].measured))
    draw(axes, drawn)
    axes.set_ylim(max(0.0, lowest - 0.12 * (1 - lowest)), 1.0 + 0.04 * (1 - lowest))
    _slot_axis(axes, slots)
    panel_title(axes, f"Duty cycle of the slots, n = {rows[0]['n']}", "", "duty cycle")
    label_ends(axes, {name: replace(one, model=_ends(one, slots)) for name, one in drawn.items()})
    return drawn


def _ends(one: Curve, slots: Sequence[float]) -> Points:
    """Position of a curve's name: at its last marker."""
    return [(max(slots), one.measured[-1][1])]


def _slot_time_panel(axes: Axes, rows: Rows) -> dict[str, Curve]:
    """Draw the panel of total time; if sizes differ within the panel, of time over formula."""
    rows = [row for row in rows if row.get("formula_s") and row.get("time_s")]
    same = len({row["bytes_per_pair"] for row in rows}) == 1
    factor, unit = time_unit(max((row["time_s"] for row in rows), default=1.0))
    if same:
        y, model, formula = value("time_s", factor), value("predicted_time_s", factor), value("formula_s", factor)
    else:
        rows = [over_formula(row) for row in rows]
        y, model, formula = value("ratio"), value("model_ratio"), lambda _: 1.0
    series = _by_delay(rows)
    drawn = {name: curve(look, mine, value("slot_ms"), y, model) for name, (look, mine) in series.items()}
    lines = [curve(look, mine, value("slot_ms"), formula, formula) for look, mine in series.values()]
    for points in distinct(lines):
        axes.plot(*zip(*points, strict=True), **BROAD)
    draw(axes, drawn)
    panel_title(axes, "", _LABEL, f"time ({unit})" if same else "time / formula")
    _slot_axis(axes, [row["slot_ms"] for row in rows])
    return drawn


def _slot_axis(axes: Axes, slots: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(min(slots) / 1.06, max(slots) * 1.06)
    ticks = sorted(set(slots))
    axes.set_xticks(ticks, [f"{slot:g}" for slot in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def _between(low: float, high: float) -> list[float]:
    """Points from ``low`` to ``high`` by equal factors, for a smooth curve on a logarithmic axis."""
    return [low * (high / low) ** (step / _SMOOTH) for step in range(_SMOOTH + 1)]
