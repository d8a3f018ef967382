"""Figures of the all-to-all experiment: time against bytes, ranks and delay for each policy, and the slots' duty cycle.

Each figure takes the rows of a summary (``experiment`` = ``all-to-all``) and is None if its variable does not vary.
Rows that name the ``study`` of a variable (``bytes``, ``ranks``, ``delay``, ``slot``, ``skew``) are used for it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from measure.figures import style
from measure.figures.curves import Rows, panel_rows
from measure.figures.looks import DASHED, DOTTED, POLICIES, SHAPES, SPARE, TEXT, Look
from measure.figures.plot import FORMULA, RATIO_TARGET, Panel, Plot, PlotLine, figure_of
from measure.results.estimates import values_of
from measure.results.row import Row
from railyard.size import size_in_words

_SMOOTH = 60
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


def _looks(rows: Rows) -> Mapping[tuple[str, float], Look]:
    looks: dict[tuple[str, float], Look] = {}
    for policy in [*POLICIES, *sorted({row["policy"] for row in rows} - set(POLICIES))]:
        look = POLICIES.get(policy, SPARE[-1].named(policy))
        slots = sorted({row.get("slot_ms") or 0.0 for row in rows if row["policy"] == policy})
        for marker, slot in zip((look.marker, *SHAPES * len(slots)), slots, strict=False):
            name = f"{look.name}, {slot:g} ms" if slot and len(slots) > 1 else look.name
            looks[policy, slot] = replace(look, name=name, marker=marker)
    return looks


def _policy(row: Row) -> tuple[str, float]:
    return row["policy"], row.get("slot_ms") or 0.0


def _over_formula(rows: Rows) -> Rows:
    """The rows with a formula, with two more columns: measured time over it (``ratio``), and the model's."""
    return [
        {
            **row,
            "ratio": row["time_s"] / row["formula_s"],
            "samples": {"ratio": [time and time / row["formula_s"] for time in values_of(row, "time_s")]},
            "model_ratio": (model := row.get("predicted_time_s")) and model / row["formula_s"],
        }
        for row in rows
        if row.get("formula_s") and row.get("time_s")
    ]


_FORMULA = PlotLine("formula_s", FORMULA)


def _against(column: str, label: str, same: tuple[str, str], levels: Any = None) -> Callable[[Rows], Figure | None]:
    """Draws the time of the all-to-all, a curve for each policy, with time over formula below.

    Measured values are markers, the model is a line, the formula (n - 1)(D/B + T) is dashed. There is a column for each
    combination of the constant columns; an electrical rail has no delay and is in every column of its n and size.
    """
    sizes = column == "bytes_per_pair"
    x_scale: Any = "log" if sizes else "linear"
    common = partial(Plot, column, series=_policy, looks=_looks, shortest=2, x_scale=x_scale, levels=levels)
    entries = [
        style.entry("formula: (n − 1)(D/B + T) in slots, their own if provisioned, else the wire's bound", **FORMULA),
        style.entry(f"{RATIO_TARGET:g} × formula", linewidth=0.8, linestyle=DOTTED),
    ]
    near: Any = {
        1.0: FORMULA,
        RATIO_TARGET: {"color": TEXT, "linewidth": 0.8, "linestyle": DOTTED, "zorder": 1},
    }
    below = common("ratio", (label, "time / formula"), model="model_ratio", derive=_over_formula, y_scale="ratio",
                   ticks=size_in_words if sizes else "{:g}".format, across_at=near)  # fmt: skip
    plot = common(
        "time_s",
        ("", "time ({unit})"),
        lambda rows: ", ".join(["All-to-all", *(_SAID[name](rows[0][name]) for name in same)]),
        "predicted_time_s",
        timed="y",
        y_scale="log" if sizes else "near",
        lines=[_FORMULA],
        entries=entries,
        below=below,
    )

    def draw(rows: Rows) -> Figure | None:
        rows = [row for row in rows if row.get("time_s")]
        return figure_of(plot, rows, _groups(rows, column, same))

    return draw


def _groups(rows: Rows, column: str, same: tuple[str, ...]) -> list[Rows]:
    """The rows of each panel, including those of the electrical rail."""
    electrical = [row for row in rows if row["policy"] == "electrical"]
    optical = [row for row in rows if row["policy"] != "electrical"]
    if not optical:
        return panel_rows(electrical, column, same)
    shared = [name for name in same if name != "reconfiguration_delay_ms"]
    return [
        [*group, *(row for row in electrical if all(row[name] == group[0][name] for name in shared))]
        for group in panel_rows(optical, column, same)
    ]


def duty_against_slot(rows: Rows) -> Figure | None:
    """Figure of the share of time in which data moves against the length of fixed slots, with the total time below.

    Dashed: slot / (slot + T), the share in which circuits are up; dotted: less the guard time at the end of each slot.
    Where sizes differ, the lower panel has the time over the formula. None without rows of at least two slot lengths.
    """
    rows = [row for row in rows if row.get("slot_ms") and row.get("duty_cycle") is not None]
    rows = sorted(rows, key=lambda row: (row["reconfiguration_delay_ms"], row["policy"]))
    several = len({row["policy"] for row in rows}) > 1

    def name(row: Row) -> str:
        policy = POLICIES[row["policy"]].name if row["policy"] in POLICIES else row["policy"]
        return f"T = {row['reconfiguration_delay_ms']:g} ms" + (f", {policy}" if several else "")

    entries = [style.entry("slot / (slot + T)", linewidth=0.8, linestyle=DASHED)]
    if any(row.get("guard_ms") for row in rows):
        entries.append(style.entry("less the guard time", linewidth=0.8, linestyle=DOTTED))
    by_slot = partial(Plot, "slot_ms", series=name, x_scale="log", ticks="{:g}".format)
    if len({(row["n"], row["bytes_per_pair"]) for row in rows}) == len({row["n"] for row in rows}):
        below = by_slot("time_s", ("slot length (ms)", "time ({unit})"), model="predicted_time_s", timed="y",
                        lines=[_FORMULA])  # fmt: skip
    else:
        below = by_slot("ratio", ("slot length (ms)", "time / formula"), model="model_ratio", derive=_over_formula,
                        lines=[PlotLine(lambda _: 1.0, FORMULA)])  # fmt: skip
    plot = by_slot(
        "duty_cycle",
        ("", "duty cycle"),
        lambda rows: f"Duty cycle of the slots, n = {rows[0]['n']}",
        same=("n",),
        least=2,
        extra=_draw_shares,
        entries=[*entries, style.entry("formula of the time", **FORMULA)],
        below=below,
    )
    return figure_of(plot, rows)


def _draw_shares(panel: Panel) -> None:
    """Draw the shares that slots and delays allow, and set the ranges of both axes."""
    axes, slots = panel.axes, sorted({row["slot_ms"] for row in panel.rows})
    lowest = min(row["duty_cycle"] for row in panel.rows)
    lengths = np.geomspace(slots[0], slots[-1], _SMOOTH + 1)
    for name, curve in panel.drawn.items():
        mine = next(row for row in panel.rows if name.startswith(f"T = {row['reconfiguration_delay_ms']:g} ms"))
        delay, guard = mine["reconfiguration_delay_ms"], mine.get("guard_ms") or 0.0
        for kept, dashes in {guard: DOTTED, 0.0: DASHED}.items():
            shares = (lengths - kept) / (lengths + delay)
            axes.plot(lengths, shares, color=curve.look.colour, linewidth=0.8, linestyle=dashes, zorder=2)
            lowest = min(lowest, *shares)
    axes.set_xlim(slots[0] / 1.06, slots[-1] * 1.06)
    axes.set_ylim(max(0.0, lowest - 0.12 * (1 - lowest)), 1.0 + 0.04 * (1 - lowest))


def uneven_demand(rows: Rows) -> Figure | None:
    """Figure of a line for each policy with the same uneven demand; the model is a thin line, the formula a broad one.

    None without rows of study ``skew``.
    """
    rows = [row for row in rows if row.get("study") == "skew" and row.get("time_s")]
    groups = panel_rows(rows, "time_s", ("n", "bytes_per_pair"), least=1)[:3]
    policies = _looks(rows)

    def title(rows: Rows) -> str:
        return f"n = {rows[0]['n']}, {size_in_words(rows[0]['bytes_per_pair'])} per pair on average"

    plot = Plot(
        _policy,
        "time_s",
        ("time ({unit})", ""),
        title,
        "predicted_time_s",
        series=_policy,
        looks=policies,
        timed="y",
        ticks=lambda policy: policies[policy].name,
        grid="x",
        lines=[_FORMULA],
        categories=list(policies),
        across=True,
        written=".3g",
        extra=lambda panel: panel.axes.set_xlim(0, 1.15 * panel.factor * max(row["time_s"] for row in panel.rows)),
        entries=[style.entry("formula: slots as long as their longest transfer, else the wire's bound", **FORMULA)],
        height=0.8 + 0.28 * max((len({_policy(row) for row in group}) for group in groups), default=0),
    )
    return figure_of(plot, rows, groups)


FIGURES: Mapping[str, tuple[str, Callable[[Rows], Figure | None]]] = {
    "all_to_all_bytes": (
        "bytes",
        _against("bytes_per_pair", "bytes per pair", ("n", "reconfiguration_delay_ms")),
    ),
    "all_to_all_ranks": ("ranks", _against("n", "ranks n", ("bytes_per_pair", "reconfiguration_delay_ms"))),
    "all_to_all_delay": (
        "delay",
        _against(
            "reconfiguration_delay_ms",
            "reconfiguration delay (ms)",
            ("n", "bytes_per_pair"),
            levels=lambda policy: policy[0] == "electrical",
        ),
    ),
    "all_to_all_duty": ("slot", duty_against_slot),
    "all_to_all_skew": ("skew", uneven_demand),
}
"""Figure -> the study whose rows it shows (``study_rows``), and the function that draws it."""
