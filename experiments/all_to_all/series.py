"""Shared parts of the all-to-all figures: colours and markers of policies, rows of each series, line of the formula."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from measure.figures.curves import Curve, Look, Rows, Series, line, series_of
from measure.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, entry
from measure.results.row import Row

LOOKS = {
    "electrical": Look("electrical", GREEN, "s", (0, (5, 2))),
    "rotor": Look("rotor", BLUE, "o", size=9.5),
    "rotor-fixed": Look("rotor, fixed slots", SKY, "v", (0, (3, 1, 1, 1))),
    "valiant": Look("two hops (Valiant)", PURPLE, "P", (0, (2, 1))),
    "demand": Look("demand-aware", VERMILION, "^", (0, (1, 1)), 5.5),
    "multi-hop": Look("multi-hop", ORANGE, "D", (0, (4, 1))),
}
BROAD: dict[str, Any] = {"linewidth": 4.5, "linestyle": (0, (1.6, 0.5)), "zorder": 1}
"""Line style of a formula: broad and below other lines, so that it stays visible under model and measurements."""
_OWN_STUDIES = ("bytes", "ranks", "delay", "slot", "skew")


def study_rows(rows: Rows, name: str) -> Rows:
    """The rows of study ``name``; if there are none, those that belong to none of the figures' studies."""
    mine = [row for row in rows if row.get("study") == name]
    return mine or [row for row in rows if row.get("study") not in _OWN_STUDIES]


def by_policy(rows: Rows) -> Series:
    """The rows of each policy and slot length, with the look of their curve."""
    looks: dict[tuple[str, float], Look] = {}
    for policy in [*LOOKS, *sorted({row["policy"] for row in rows} - set(LOOKS))]:
        look = LOOKS.get(policy, Look(policy, BLACK, "X"))
        slots = sorted({row.get("slot_ms") or 0.0 for row in rows if row["policy"] == policy})
        for marker, slot in zip((look.marker, *"v<>^*" * len(slots)), slots, strict=False):
            name = f"{look.name}, {slot:g} ms" if slot and len(slots) > 1 else look.name
            looks[policy, slot] = replace(look, name=name, marker=marker)
    return series_of(rows, lambda row: (row["policy"], row.get("slot_ms") or 0.0), looks)


def draw_formula(axes: Axes, formulas: Iterable[Curve]) -> None:
    """Draw the lines of a formula, each once, since most policies have the same one."""
    distinct = {tuple((x, float(f"{y:.6g}")) for x, y in one.model): one.model for one in formulas}
    for points in distinct.values():
        line(axes, points, color=GREY, **BROAD)


def over_formula(row: Row) -> Row:
    """The row with two more columns: ``ratio``, measured time over formula, and ``model_ratio``."""
    model = row.get("predicted_time_s")
    ratio = row["time_s"] / row["formula_s"]
    return {**row, "ratio": ratio, "model_ratio": None if model is None else model / row["formula_s"]}


def formula_entry(label: str) -> Line2D:
    """The legend entry of a formula."""
    return entry(label, GREY, **BROAD)
