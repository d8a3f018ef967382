"""Curves of figures that compare measurements with the model: series of rows, their looks, and medians."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from measure.figures.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from measure.results.row import Row

Rows = Sequence[Row]
Column = str | Callable[[Row], float | None]
"""A column of a row, or a function of the row."""
Points = Sequence[tuple[float, float]]
_FAR = 1.25
_MOST_PANELS = 9


@dataclass(frozen=True)
class Look:
    """The style of one curve, and its name in figures."""

    name: str
    colour: str
    marker: str
    dashes: Any = "-"
    size: float = 6.5


Series = Mapping[Any, tuple[Look, Rows]]
_SPARE = tuple(
    Look("", colour, marker)
    for colour, marker in zip((BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK), "o^sDvPX", strict=True)
)


@dataclass(frozen=True)
class Curve:
    """One curve: measured points, those of them that are not faithful, and points of the model, ascending by x."""

    look: Look
    measured: Points
    unfaithful: Points
    model: Points

    @property
    def points(self) -> Points:
        """Measured points and points of the model, for the ranges of axes."""
        return (*self.measured, *self.model)

    def level(self, places: Iterable[float]) -> Curve:
        """The curve with a model of one point drawn as a horizontal line over ``places``."""
        if len(self.model) != 1:
            return self
        ends = sorted(places)
        return replace(self, model=[(ends[0], self.model[0][1]), (ends[-1], self.model[0][1])])


def panel_rows(rows: Rows, x: Column, same: Sequence[str], least: int = 2) -> list[Rows]:
    """Group rows by the columns ``same``, one panel per group with at least ``least`` values of x; 9 panels at most."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if _read(row, x) is not None:
            groups[tuple(row[name] for name in same)].append(row)
    wide = [groups[group] for group in sorted(groups) if len({_read(row, x) for row in groups[group]}) >= least]
    return list(wide[:_MOST_PANELS])


def series_of(rows: Rows, name: Callable[[Row], Hashable], looks: Mapping[Any, Look] | None = None) -> Series:
    """The rows of each curve with its look, by ``name``: those of ``looks`` first, the others with spare looks."""
    looks = looks or {}
    found: dict[Any, list[Row]] = {known: [] for known in looks}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    used = {look.colour for look in looks.values()}
    spare = cycle(sorted(_SPARE, key=lambda look: look.colour in used))
    return {key: (looks.get(key) or replace(next(spare), name=str(key)), mine) for key, mine in found.items() if mine}


def curves(series: Series, x: Column, y: Column, model: Column | None = None, factor: float = 1.0) -> dict[Any, Curve]:
    """The curve of each series: medians of rows with the same x, with y and model multiplied by ``factor``."""
    found = {}
    for name, (look, rows) in series.items():
        measured = _medians(rows, x, y, factor)
        bad = {_read(row, x) for row in rows if not row.get("faithful", True)}
        unfaithful = [point for point in measured if point[0] in bad]
        found[name] = Curve(look, measured, unfaithful, _medians(rows, x, model, factor) if model else [])
    return found


def _medians(rows: Rows, x: Column, y: Column, factor: float) -> Points:
    points: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        place, value = _read(row, x), _read(row, y)
        if place is not None and value is not None:
            points[place].append(value * factor)
    return sorted((place, statistics.median(values)) for place, values in points.items())


def _read(row: Row, column: Column) -> Any:
    return row.get(column) if isinstance(column, str) else column(row)


def near_and_far(drawn: Mapping[Any, Curve]) -> tuple[dict[Any, Curve], dict[Any, Curve]]:
    """Split curves into those to draw and those so far above the others that they would squeeze them together."""
    near = {name: curve for name, curve in drawn.items() if curve.points}
    far: dict[Any, Curve] = {}
    while len(near) > 2:
        name = max(near, key=lambda one: min(y for _, y in near[one].points))
        rest = max(y for other, curve in near.items() if other != name for _, y in curve.points)
        if min(y for _, y in near[name].points) <= _FAR * rest:
            break
        far[name] = near.pop(name)
    return near, far
