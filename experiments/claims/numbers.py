"""Numbers of claims, taken from the rows of a run: a field, a ratio, a slope, the worst point. Pure.

Each function returns one that takes the rows which a claim selects. Values are medians of repeats with an interval,
paired within repeats where two rows are compared (``measure.results.estimates``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from measure.metrics.estimate import Estimate, estimate, paired_ratio
from measure.results.estimates import estimate_of, ratio_of, slope_of, values_of
from measure.results.row import Row

Select = Callable[[Row], bool]
Number = Callable[[Sequence[Row]], Estimate | None]


def where(**wanted: Any) -> Select:
    """Select the rows whose fields have these values; a tuple is a choice of values."""

    def select(row: Row) -> bool:
        return all(row.get(key) in (value if isinstance(value, tuple) else (value,)) for key, value in wanted.items())

    return select


def value(key: str, factor: float = 1.0) -> Number:
    """Field ``key`` of the only row, times ``factor``; None of several rows."""

    def number(rows: Sequence[Row]) -> Estimate | None:
        found = estimate_of(rows[0], key) if len(rows) == 1 else None
        return None if found is None else found.times(factor)

    return number


def ratio(key: str, top: Select, base: Select) -> Number:
    """Field ``key`` of the row that ``top`` selects over that of the one of ``base``."""

    def number(rows: Sequence[Row]) -> Estimate | None:
        above, below = [row for row in rows if top(row)], [row for row in rows if base(row)]
        return ratio_of(above[0], below[0], key) if len(above) == len(below) == 1 else None

    return number


def fields(key: str, base: str) -> Number:
    """Field ``key`` over field ``base`` of the only row."""

    def number(rows: Sequence[Row]) -> Estimate | None:
        return paired_fields(rows[0], key, base) if len(rows) == 1 else None

    return number


def paired_fields(row: Row, key: str, base: str) -> Estimate | None:
    """Field ``key`` over field ``base`` of a row; a ``base`` without samples is the same in every repeat."""
    values, under = values_of(row, key), values_of(row, base)
    return paired_ratio(values, under if len(under) == len(values) else [row.get(base)] * len(values))


def slope(x: str, key: str, factor: float = 1.0) -> Number:
    """The slope of field ``key`` over field ``x``, times ``factor``."""

    def number(rows: Sequence[Row]) -> Estimate | None:
        found = slope_of(rows, x, key)
        return None if found is None else found.times(factor)

    return number


def furthest(key: str, base: str) -> Number:
    """Field ``key`` over field ``base`` of that row in which it is furthest from 1; None if a row lacks one."""

    def number(rows: Sequence[Row]) -> Estimate | None:
        found = [paired_fields(row, key, base) for row in rows]
        known = [each for each in found if each is not None]
        return max(known, key=lambda each: abs(each.median - 1)) if known and len(known) == len(found) else None

    return number


def total(key: str) -> Number:
    """The sum of field ``key`` over all rows; None if a row lacks it."""

    def number(rows: Sequence[Row]) -> Estimate | None:
        found = [row.get(key) for row in rows]
        return None if None in found else Estimate(float(sum(map(float, found))), None, None, 1)  # type: ignore[arg-type]

    return number


def share(good: Select) -> Number:
    """The share of the rows that ``good`` selects."""
    return lambda rows: Estimate(sum(map(good, rows)) / len(rows), None, None, 1)


def in_repeats(function: Callable[[Sequence[Row]], float | None]) -> Number:
    """What ``function`` makes of the rows, for each repeat: it gets them with the values of that repeat."""

    def number(rows: Sequence[Row]) -> Estimate | None:
        samples = [row.get("samples") or {} for row in rows]
        n = min((len(values) for each in samples for values in each.values()), default=0)

        def repeat(i: int) -> list[Row]:
            return [
                {**row, **{key: of[i] for key, of in each.items()}} for row, each in zip(rows, samples, strict=True)
            ]

        return estimate([_known(function, each) for each in (map(repeat, range(n)) if n else [rows])])

    return number


def _known(function: Callable[[Sequence[Row]], float | None], rows: Sequence[Row]) -> float | None:
    """The value of a function of rows; None where a field is missing, or was not measured in this repeat."""
    try:
        return function(rows)
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return None
