"""Curves of figures that compare measurements with the model: series of rows, their looks, medians and intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from statistics import median
from typing import Any

from measure.figures.looks import SPARE, Look
from measure.metrics.estimate import Estimate, estimate
from measure.results.estimates import values_of
from measure.results.row import Row

Rows = Sequence[Row]
Values = float | Sequence[float | None] | None
Column = str | Callable[[Row], Values]
"""A column of a row, or a function of the row that gives a number, or one for each repeat."""
Key = str | Callable[[Row], Any]
"""The same for what is no measured value: a place, a category, the name of a series."""
Points = Sequence[tuple[float, float]]
_FAR = 1.25
_MOST_PANELS = 9
Series = Mapping[Any, tuple[Look, Rows]]


@dataclass(frozen=True)
class Curve:
    """One curve: estimates of what was measured, those of them that are not faithful, and the model, ascending by x."""

    look: Look
    estimates: Mapping[float, Estimate]
    unfaithful: Points
    model: Points

    @property
    def measured(self) -> Points:
        """The medians of what was measured."""
        return [(place, each.median) for place, each in self.estimates.items()]

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


def panel_rows(rows: Rows, x: Key, same: Sequence[str], least: int = 2) -> list[Rows]:
    """Group rows by the columns ``same``, one panel per group with at least ``least`` values of x; 9 panels at most."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if read_column(row, x) is not None:
            groups[tuple(row[name] for name in same)].append(row)
    wide = [groups[group] for group in sorted(groups) if len({read_column(row, x) for row in groups[group]}) >= least]
    return list(wide[:_MOST_PANELS])


def series_of(rows: Rows, name: Callable[[Row], Hashable], looks: Mapping[Any, Look] | None = None) -> Series:
    """The rows of each curve with its look, by ``name``: those of ``looks`` first, the others with spare looks."""
    looks = looks or {}
    found: dict[Any, list[Row]] = {known: [] for known in looks}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    used = {looks[key].colour for key, mine in found.items() if mine and key in looks}
    spare = cycle(sorted(SPARE, key=lambda look: look.colour in used))
    return {key: (looks.get(key) or next(spare).named(str(key)), mine) for key, mine in found.items() if mine}


def curves(series: Series, x: Key, y: Column, model: Column | None = None, factor: float = 1.0) -> dict[Any, Curve]:
    """The curve of each series, with y and model multiplied by ``factor``; of rows at the same x their median."""
    found = {}
    for name, (look, rows) in series.items():
        measured = _estimates(rows, x, y, factor)
        bad = {read_column(row, x) for row in rows if not row.get("faithful", True)}
        unfaithful = [(place, each.median) for place, each in measured.items() if place in bad]
        lines = _estimates(rows, x, model, factor) if model else {}
        found[name] = Curve(look, measured, unfaithful, [(place, each.median) for place, each in lines.items()])
    return found


def _estimates(rows: Rows, x: Key, y: Column, factor: float) -> dict[float, Estimate]:
    points: dict[float, list[Estimate]] = defaultdict(list)
    for row in rows:
        place, found = read_column(row, x), estimate(_repeats(row, y))
        if place is not None and found is not None:
            points[place].append(found.times(factor))
    return {place: _together(points[place]) for place in sorted(points)}


def _together(points: Sequence[Estimate]) -> Estimate:
    """One row as it is; of several, which are different points and no repeats, the median, without an interval."""
    if len(points) == 1:
        return points[0]
    return Estimate(median(each.median for each in points), None, None, min(each.n for each in points))


def _repeats(row: Row, column: Column) -> Sequence[float | None]:
    if isinstance(column, str):
        return values_of(row, column)
    value = column(row)
    return value if isinstance(value, Sequence) else [value]


def read_column(row: Row, column: Key) -> Any:
    """A cell of a row, or what a function gives for the row."""
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
