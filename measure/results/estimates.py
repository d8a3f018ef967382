"""Estimates of the measured fields of rows, for tables and figures: medians of repeats with intervals. Pure.

A row of repeated measurements has the value of every repeat in ``samples``; the lists of all rows of a run are in the
same order of repeats, so that differences and ratios are paired within a repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from measure.metrics.estimate import Estimate, crossing, estimate, paired_difference, paired_ratio, slope
from measure.results.row import Row


def values_of(row: Row, key: str) -> list[float | None]:
    """The value of field ``key`` in each repeat, None where it was not measured."""
    found: list[float | None] = row.get("samples", {}).get(key) or [row.get(key)]
    return found


def estimate_of(row: Row, key: str) -> Estimate | None:
    """Median and interval of field ``key``; None if it was not measured."""
    return estimate(values_of(row, key))


def difference_of(row: Row, base: Row, key: str) -> Estimate | None:
    """``row`` less ``base`` in field ``key``, paired within repeats."""
    return paired_difference(values_of(row, key), values_of(base, key))


def ratio_of(row: Row, base: Row, key: str) -> Estimate | None:
    """``row`` over ``base`` in field ``key``, paired within repeats."""
    return paired_ratio(values_of(row, key), values_of(base, key))


def slope_of(rows: Sequence[Row], x: str, key: str) -> Estimate | None:
    """The slope of field ``key`` over field ``x``, a least-squares line for each repeat."""
    return slope([row[x] for row in rows], [values_of(row, key) for row in rows])


def crossing_of(first: Sequence[Row], second: Sequence[Row], x: str, key: str) -> Estimate | None:
    """The value of field ``x`` from which on field ``key`` of ``second`` stays below that of ``first``.

    It is interpolated in each repeat; None if there is none, or if both have not the same values of ``x``.
    """
    pairs = [sorted(rows, key=lambda row: row[x]) for rows in (first, second)]
    xs = [row[x] for row in pairs[0]]
    if not xs or xs != [row[x] for row in pairs[1]]:
        return None
    repeats = zip(*(values_of(row, key) for rows in pairs for row in rows), strict=False)
    whole = [values for values in repeats if None not in values]
    return estimate([crossing(xs, values[: len(xs)], values[len(xs) :]) for values in whole])


def bounds(row: Row, columns: Iterable[str]) -> Mapping[str, float | None]:
    """The ends of the intervals of ``row`` whose columns, such as ``time_s_low``, are among ``columns``."""
    wanted, found = set(columns), dict[str, float | None]()
    for key in row.get("samples", {}):
        if f"{key}_low" in wanted and f"{key}_low" not in row:
            known = estimate_of(row, key)
            found[f"{key}_low"], found[f"{key}_high"] = (None, None) if known is None else (known.low, known.high)
    return found
