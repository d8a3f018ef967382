"""Curves of the straggler figures: one per algorithm, measured as markers, the model as a line, a label at its end."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from measure.figures.style import BLACK, BLUE, GREEN, GREY, LIGHT, ORANGE, PURPLE, SKY, TEXT, VERMILION, dress
from measure.straggler_law import crossing

Rows = Sequence[Mapping[str, Any]]
Value = Callable[[Mapping[str, Any]], float | None]
Points = Sequence[tuple[float, float]]
WRONG = " (wrong rank)"


@dataclass(frozen=True)
class Look:
    """How one algorithm is drawn, and its name in figures."""

    name: str
    colour: str
    marker: str
    dashes: Any = "-"
    size: float = 6.5


LOOKS = {
    "ring": Look("Ring", BLUE, "o", size=9.5),
    "recursive-halving-doubling": Look("RHD", GREEN, "s", (0, (5, 3)), 5.0),
    "straggler-direct": Look("Direct", PURPLE, "D", (0, (1, 1))),
    "stragglar": Look("StragglAR", VERMILION, "^"),
    "stragglar" + WRONG: Look("wrong rank", ORANGE, "v", (0, (3, 1, 1, 1))),
}
_OTHERS = ((SKY, "P"), (BLACK, "X"), (ORANGE, "<"), (GREEN, ">"))
_FAR = 1.25
_LABEL_STEP = 0.062
"""Least distance of two labels, as a share of the axis."""


@dataclass(frozen=True)
class Curve:
    """One algorithm: what was measured, which of it is not faithful, what the model says; points ascend by x."""

    look: Look
    measured: Points
    unfaithful: Points
    model: Points

    @property
    def points(self) -> Points:
        """All of it, for ranges."""
        return (*self.measured, *self.model)


def series_name(row: Mapping[str, Any]) -> str:
    """The curve a row belongs to: its algorithm, apart where the wrong rank was predicted on purpose."""
    words = str(row.get("injection") or "").replace("+", ":").split(":")
    wrong = row["algorithm"] == "stragglar" and "wrong" in (word.strip() for word in words)
    return f"{row['algorithm']}{WRONG}" if wrong else str(row["algorithm"])


def curves(rows: Rows, x: Value, y: Value, model: Value) -> dict[str, Curve]:
    """Curves by series name, those of ``LOOKS`` first; rows of the same x become their median."""
    by_name: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_name[series_name(row)].append(row)
    unknown = iter(sorted(set(by_name) - set(LOOKS)))
    looks = LOOKS | {name: Look(name, *look) for name, look in zip(unknown, _OTHERS * len(by_name), strict=False)}
    found = {}
    for name in (name for name in looks if name in by_name):
        measured = _medians(by_name[name], x, y)
        bad = {x(row) for row in by_name[name] if not row.get("faithful", True)}
        doubtful = [point for point in measured if point[0] in bad]
        found[name] = Curve(looks[name], measured, doubtful, _medians(by_name[name], x, model))
    return found


def _medians(rows: Iterable[Mapping[str, Any]], x: Value, y: Value) -> Points:
    points: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        place, value = x(row), y(row)
        if place is not None and value is not None:
            points[place].append(value)
    return sorted((place, statistics.median(values)) for place, values in points.items())


def draw(axes: Axes, drawn: Mapping[str, Curve]) -> None:
    """Lines of the model, markers of the measurement; what is not faithful is hollow and crossed out."""
    for curve in drawn.values():
        look = curve.look
        if curve.model:
            axes.plot(
                *zip(*curve.model, strict=True), color=look.colour, linestyle=look.dashes, linewidth=1.5, zorder=2
            )
        for point in curve.measured:
            bad = point in curve.unfaithful
            face = "white" if bad else look.colour
            axes.plot(
                *point,
                color=look.colour,
                marker=look.marker,
                markersize=look.size,
                markerfacecolor=face,
                linestyle="",
                zorder=4,
            )
            if bad:
                axes.plot(*point, color=BLACK, marker="x", markersize=11, linestyle="", zorder=5)
    axes.grid(color=LIGHT, linewidth=0.7)
    axes.set_axisbelow(True)


def near_and_far(drawn: Mapping[str, Curve]) -> tuple[dict[str, Curve], dict[str, Curve]]:
    """The curves worth an axis, and those so far above all of the others that these would be crowded at its foot."""
    near = {name: curve for name, curve in drawn.items() if curve.points}
    far: dict[str, Curve] = {}
    while len(near) > 2:
        name = max(near, key=lambda one: min(y for _, y in near[one].points))
        rest = max(y for other, curve in near.items() if other != name for _, y in curve.points)
        if min(y for _, y in near[name].points) <= _FAR * rest:
            break
        far[name] = near.pop(name)
    return near, far


def label_far(axes: Axes, far: Mapping[str, Curve], unit: str) -> None:
    """Says what is above the panel, and where."""
    for place, curve in enumerate(far.values()):
        text = f"↑ {curve.look.name}, {min(y for _, y in curve.measured or curve.model):.3g} {unit}"
        axes.text(
            0.99,
            0.98 - 0.07 * place,
            text,
            transform=axes.transAxes,
            color=curve.look.colour,
            fontsize=9,
            va="top",
            ha="right",
            fontweight="bold",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            zorder=6,
        )


def label_ends(axes: Axes, drawn: Mapping[str, Curve]) -> None:
    """The name of each curve right of its last point, moved apart where two would meet. Limits must be set before."""
    ends = []
    for curve in drawn.values():
        points = sorted(curve.points)
        if points:
            height = axes.transAxes.inverted().transform(axes.transData.transform(points[-1]))[1]
            ends.append((float(height), curve.look))
    for height, look in zip(_apart([end for end, _ in ends]), [look for _, look in ends], strict=True):
        axes.text(
            1.02,
            height,
            look.name,
            transform=axes.transAxes,
            color=look.colour,
            fontsize=9,
            va="center",
            fontweight="bold",
        )


def _apart(heights: Sequence[float]) -> list[float]:
    """Heights at least ``_LABEL_STEP`` apart, in the same order: pushed up from below, then down from the top."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    placed = list(heights)
    for below, above in pairwise(order):
        placed[above] = max(placed[above], placed[below] + _LABEL_STEP)
    for place in order[-1:]:
        placed[place] = min(placed[place], 1.0)
    for above, below in pairwise(reversed(order)):
        placed[below] = min(placed[below], placed[above] - _LABEL_STEP)
    return placed


def measured_crossing(first: Curve, second: Curve) -> tuple[float, float] | None:
    """Where ``second`` as measured falls below ``first`` for good: x and the time there; None if it never does."""
    return _crossing(first.measured, second.measured)


def model_crossing(first: Curve, second: Curve) -> tuple[float, float] | None:
    """The same of the model's lines."""
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


def mark_upright(axes: Axes, x: float, text: str, *, left: bool = False) -> None:
    """A dashed upright line at what is predicted, named above the panel."""
    axes.axvline(x, color=TEXT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    axes.annotate(
        text,
        (x, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-2 if left else 2, 3),
        textcoords="offset points",
        fontsize=8,
        color=TEXT,
        ha="right" if left else "left",
        va="bottom",
    )


def mark_crossing(axes: Axes, point: tuple[float, float], text: str) -> None:
    """A ring around what was measured, and its number below it, out of the way of the curves."""
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


def panel_title(axes: Axes, title: str, x: str, y: str) -> None:
    """Title with room for the names of upright lines beneath it."""
    dress(axes, title, x, y)
    axes.set_title(title, loc="left", pad=17, fontsize=10.5, color=TEXT, fontweight="bold")


def key(figure: Figure, drawn: Iterable[Mapping[str, Curve]], *extra: Line2D) -> None:
    """What lines and markers mean, once for all panels."""
    every = [curve for panel in drawn for curve in panel.values()]
    handles = []
    if any(curve.measured for curve in every):
        handles.append(Line2D([], [], color=TEXT, marker="o", markersize=6, linestyle="", label="measured"))
    if any(curve.model for curve in every):
        handles.append(Line2D([], [], color=TEXT, linewidth=1.5, label="model"))
    handles += extra
    if any(curve.unfaithful for curve in every):
        handles.append(Line2D([], [], color=BLACK, marker="x", markersize=9, linestyle="", label="point not faithful"))
    figure.legend(handles=handles, loc="outside upper left", frameon=False, fontsize=9, ncols=len(handles))
