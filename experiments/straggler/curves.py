"""Curves of the straggler figures, one per algorithm, and the points where two of them cross."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes

from experiments.straggler.law import crossing
from measure.figures.curves import Curve, Look, Points, Rows, Value, curve
from measure.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, TEXT, VERMILION

WRONG = " (wrong rank)"
LOOKS = {
    "ring": Look("Ring", BLUE, "o", size=9.5),
    "recursive-halving-doubling": Look("RHD", GREEN, "s", (0, (5, 3)), 5.0),
    "straggler-direct": Look("Direct", PURPLE, "D", (0, (1, 1))),
    "stragglar": Look("StragglAR", VERMILION, "^"),
    "stragglar" + WRONG: Look("wrong rank", ORANGE, "v", (0, (3, 1, 1, 1))),
}
_OTHERS = ((SKY, "P"), (BLACK, "X"), (ORANGE, "<"), (GREEN, ">"))


def series_name(row: Mapping[str, Any]) -> str:
    """The name of a row's curve: its algorithm, with a suffix if the wrong rank was predicted on purpose."""
    words = str(row.get("injection") or "").replace("+", ":").split(":")
    wrong = row["algorithm"] == "stragglar" and "wrong" in (word.strip() for word in words)
    return f"{row['algorithm']}{WRONG}" if wrong else str(row["algorithm"])


def curves(rows: Rows, x: Value, y: Value, model: Value) -> dict[str, Curve]:
    """Curves by series name, those of ``LOOKS`` first; rows with the same x are replaced by their median."""
    by_name: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_name[series_name(row)].append(row)
    unknown = iter(sorted(set(by_name) - set(LOOKS)))
    looks = LOOKS | {name: Look(name, *look) for name, look in zip(unknown, _OTHERS * len(by_name), strict=False)}
    return {name: curve(looks[name], by_name[name], x, y, model) for name in looks if name in by_name}


def measured_crossing(first: Curve, second: Curve) -> tuple[float, float] | None:
    """Point (x, time) from which on the measured ``second`` stays below ``first``; None if there is none."""
    return _crossing(first.measured, second.measured)


def model_crossing(first: Curve, second: Curve) -> tuple[float, float] | None:
    """Point (x, time) from which on the model's ``second`` stays below ``first``; None if there is none."""
    return _crossing(first.model, second.model)


def _crossing(first: Points, second: Points) -> tuple[float, float] | None:
    both = sorted(dict(first).keys() & dict(second).keys())
    if len(both) < 2:
        return None
    high, low = [dict(first)[x] for x in both], [dict(second)[x] for x in both]
    found = crossing(both, high, low)
    if found is None or found <= both[0]:
        return None
    after = next(place for place, x in enumerate(both) if x >= found)
    share = (found - both[after - 1]) / (both[after] - both[after - 1])
    return found, high[after - 1] + share * (high[after] - high[after - 1])


def mark_crossing(axes: Axes, point: tuple[float, float], text: str) -> None:
    """Draw a ring around a measured crossing, with ``text`` below it, away from the curves."""
    axes.plot(*point, marker="o", markersize=13, markerfacecolor="none", color=TEXT, markeredgewidth=1.3, zorder=6)
    axes.annotate(
        text,
        point,
        xycoords="data",
        xytext=(24, -58),
        textcoords="offset points",
        fontsize=8.5,
        color=TEXT,
        ha="left",
        va="top",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.9, "shrinkB": 7},
        zorder=6,
    )
