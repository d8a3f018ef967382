"""Figure of the duty cycle of slots of fixed length: the share of time in which data moves, and the total time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.all_to_all.series import LOOKS, draw_formula, formula_entry, over_formula, study_rows
from measure.figures.curves import (
    Curve,
    Rows,
    Series,
    curves,
    draw,
    label_ends,
    name_ticks,
    panel_rows,
    panels,
    series_of,
)
from measure.figures.style import DASHED, DOTTED, entry, style_axes, time_unit
from measure.results.row import Row

_SMOOTH = 60


def duty_against_slot(rows: Rows) -> Figure | None:
    """Figure of the share of time in which data moves against the length of fixed slots, with the total time below.

    Dashed: slot / (slot + T), the share in which circuits are up; dotted: less the guard time at the end of each slot.
    None without rows of at least two slot lengths.
    """
    rows = [row for row in study_rows(rows, "slot") if row.get("slot_ms") and row.get("duty_cycle") is not None]
    entries = [entry("slot / (slot + T)", linewidth=1.1, linestyle=DASHED)]
    if any(row.get("guard_ms") for row in rows):
        entries.append(entry("less the guard time", linewidth=1.1, linestyle=DOTTED))
    groups = panel_rows(rows, "slot_ms", ("n",))
    return panels(groups, _panels, *entries, formula_entry("formula of the time"), below=True)


def _panels(axes: Axes, below: Axes, rows: Rows) -> Iterable[Curve]:
    slots = sorted({row["slot_ms"] for row in rows})
    axes.set_xscale("log")
    axes.set_xlim(slots[0] / 1.06, slots[-1] * 1.06)
    name_ticks(below.xaxis, slots)
    return [*_draw_duty(axes, rows, slots), *_draw_time(below, rows)]


def _by_delay(rows: Rows) -> Series:
    """The rows of each delay, and of each policy if there are several."""
    several = len({row["policy"] for row in rows}) > 1

    def name(row: Row) -> str:
        policy = LOOKS[row["policy"]].name if row["policy"] in LOOKS else row["policy"]
        return f"T = {row['reconfiguration_delay_ms']:g} ms" + (f", {policy}" if several else "")

    return series_of(sorted(rows, key=lambda row: (row["reconfiguration_delay_ms"], row["policy"])), name)


def _draw_duty(axes: Axes, rows: Rows, slots: Sequence[float]) -> Iterable[Curve]:
    series, lowest = _by_delay(rows), min(row["duty_cycle"] for row in rows)
    lengths = np.geomspace(slots[0], slots[-1], _SMOOTH + 1)
    for look, mine in series.values():
        delay, guard = mine[0]["reconfiguration_delay_ms"], mine[0].get("guard_ms") or 0.0
        for kept, dashes in {guard: DOTTED, 0.0: DASHED}.items():
            shares = (lengths - kept) / (lengths + delay)
            axes.plot(lengths, shares, color=look.colour, linewidth=1.1, linestyle=dashes, zorder=2)
            lowest = min(lowest, *shares)
    drawn = curves(series, "slot_ms", "duty_cycle")
    draw(axes, drawn)
    axes.set_ylim(max(0.0, lowest - 0.12 * (1 - lowest)), 1.0 + 0.04 * (1 - lowest))
    style_axes(axes, f"Duty cycle of the slots, n = {rows[0]['n']}", "", "duty cycle", grid="both", room=True)
    label_ends(axes, drawn)
    return drawn.values()


def _draw_time(axes: Axes, rows: Rows) -> Iterable[Curve]:
    """Draw the panel of total time; if sizes differ within the panel, of time over formula."""
    rows = [row for row in rows if row.get("formula_s") and row.get("time_s")]
    factor, unit = time_unit(max((row["time_s"] for row in rows), default=1.0))
    if len({row["bytes_per_pair"] for row in rows}) == 1:
        series, label = _by_delay(rows), f"time ({unit})"
        drawn = curves(series, "slot_ms", "time_s", "predicted_time_s", factor)
        formulas = curves(series, "slot_ms", "formula_s", "formula_s", factor)
    else:
        series, label = _by_delay([over_formula(row) for row in rows]), "time / formula"
        drawn = curves(series, "slot_ms", "ratio", "model_ratio")
        formulas = curves(series, "slot_ms", lambda _: 1.0, lambda _: 1.0)
    draw_formula(axes, formulas.values())
    draw(axes, drawn)
    style_axes(axes, "", "slot length (ms)", label, grid="both")
    return drawn.values()
