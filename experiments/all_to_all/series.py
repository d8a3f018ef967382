"""Shared parts of the all-to-all figures: colours and markers of policies, rows of each series, line of the formula."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from matplotlib.lines import Line2D

from measure.figures.curves import Curve, Look, Points, Rows
from measure.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

LOOKS = {
    "electrical": Look("electrical", GREEN, "s", (0, (5, 2))),
    "rotor": Look("rotor", BLUE, "o", size=9.5),
    "rotor-fixed": Look("rotor, fixed slots", SKY, "v", (0, (3, 1, 1, 1))),
    "valiant": Look("two hops (Valiant)", PURPLE, "P", (0, (2, 1))),
    "demand": Look("demand-aware", VERMILION, "^", (0, (1, 1)), 5.5),
    "multi-hop": Look("multi-hop", ORANGE, "D", (0, (4, 1))),
}
MOST_PANELS = 3
DASHED, DOTTED = (0, (4, 3)), (0, (1, 2))
BROAD: dict[str, Any] = {"color": GREY, "linewidth": 4.5, "linestyle": (0, (1.6, 0.5)), "zorder": 1}
"""Line style of a formula: broad and below other lines, so that it stays visible under model and measurements."""
_OWN_STUDIES = ("bytes", "ranks", "delay", "slot", "skew")


def study_rows(rows: Rows, name: str) -> Rows:
    """The rows of study ``name``; if there are none, those that belong to none of the figures' studies."""
    mine = [row for row in rows if row.get("study") == name]
    return mine or [row for row in rows if row.get("study") not in _OWN_STUDIES]


def series(rows: Rows) -> dict[str, tuple[Look, Rows]]:
    """The rows of each policy and slot length, with the look of their curve."""
    found: dict[str, tuple[Look, Rows]] = {}
    names = {row["policy"] for row in rows}
    for policy in [*(name for name in LOOKS if name in names), *sorted(names - set(LOOKS))]:
        look = LOOKS.get(policy, Look(policy, BLACK, "X"))
        mine = [row for row in rows if row["policy"] == policy]
        slots = sorted({row.get("slot_ms") or 0.0 for row in mine})
        for marker, slot in zip((look.marker, *"v<>^*" * len(slots)), slots, strict=False):
            named = replace(look, name=f"{look.name}, {slot:g} ms", marker=marker) if slot and len(slots) > 1 else look
            found[f"{policy} {slot:g}" if slot else policy] = (
                named,
                [row for row in mine if (row.get("slot_ms") or 0.0) == slot],
            )
    return found


def distinct(formulas: Iterable[Curve]) -> list[Points]:
    """The lines of ``formulas`` without duplicates, since most policies have the same formula."""
    return list({tuple((x, float(f"{y:.6g}")) for x, y in one.model): one.model for one in formulas}.values())


def over_formula(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with two more columns: ``ratio``, measured time over formula, and ``model_ratio``."""
    model = row.get("predicted_time_s")
    ratio = row["time_s"] / row["formula_s"]
    return {**row, "ratio": ratio, "model_ratio": None if model is None else model / row["formula_s"]}


def formula_key(label: str) -> Line2D:
    """The legend entry of a formula."""
    handle = Line2D([], [], **BROAD)
    handle.set_label(label)
    return handle
