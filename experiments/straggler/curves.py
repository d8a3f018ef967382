"""Curves of the straggler figures, one per algorithm, and the points where two of them cross."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from experiments.straggler.law import crossing
from measure.figures.curves import Column, Curve, Look, Points, Rows, curves, series_of
from measure.figures.style import BLUE, GREEN, GREY, ON_WHITE, ORANGE, PURPLE, TEXT, VERMILION, note

WRONG = " (wrong rank)"
LOOKS = {
    "ring": Look("Ring", BLUE, "o", size=9.5),
    "recursive-halving-doubling": Look("RHD", GREEN, "s", (0, (5, 3)), 5.0),
    "straggler-direct": Look("Direct", PURPLE, "D", (0, (1, 1))),
    "stragglar": Look("StragglAR", VERMILION, "^"),
    "stragglar" + WRONG: Look("wrong rank", ORANGE, "v", (0, (3, 1, 1, 1))),
}


def series_name(row: Mapping[str, Any]) -> str:
    """The name of a row's curve: its algorithm, with a suffix if the wrong rank was predicted on purpose."""
    words = str(row.get("injection") or "").replace("+", ":").split(":")
    wrong = row["algorithm"] == "stragglar" and "wrong" in (word.strip() for word in words)
    return f"{row['algorithm']}{WRONG}" if wrong else str(row["algorithm"])


def by_algorithm(rows: Rows, x: Column, y: Column, model: Column | None, factor: float = 1.0) -> dict[str, Curve]:
    """Curves by series name, those of ``LOOKS`` first, with y and model multiplied by ``factor``."""
    return curves(series_of(rows, series_name, LOOKS), x, y, model, factor)


def crossing_point(first: Points, second: Points) -> tuple[float, float] | None:
    """Point (x, time) from which on the line ``second`` stays below ``first``; None if there is none."""
    both = sorted(dict(first).keys() & dict(second).keys())
    if len(both) < 2:
        return None
    high, low = [dict(first)[x] for x in both], [dict(second)[x] for x in both]
    found = crossing(both, high, low)
    return None if found is None or found <= both[0] else (found, float(np.interp(found, both, high)))


def mark_crossing(axes: Axes, point: tuple[float, float], text: str) -> None:
    """Draw a ring around a measured crossing, with ``text`` below it, away from the curves."""
    axes.plot(*point, "o", markersize=13, markerfacecolor="none", color=TEXT, markeredgewidth=1.3, zorder=6)
    pointer = {"arrowstyle": "-", "color": GREY, "linewidth": 0.9, "shrinkB": 7}
    note(axes, text, point, (24, -58), va="top", bbox=ON_WHITE, arrowprops=pointer, zorder=6)
