"""Runs of one point with several seeds as one row: means, and intervals of 95 % of ratios between policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from measure.metrics.independent import student_t
from measure.results.row import Row

SAME = ("layer", "policy", "mode", "topology", "clients")
"""Runs with equal values of these differ in their seed alone."""


@dataclass(frozen=True)
class Interval:
    """The mean of ``count`` values and its 95 % interval; the interval is the mean itself for a single value."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + (f" ({self.low:.2f} to {self.high:.2f})" if self.count > 1 else "")


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95 % interval (Student's t) of at least one value."""
    mean, count = fmean(values), len(values)
    if count == 1:
        return Interval(mean, mean, mean, 1)
    half = student_t(count - 1) * stdev(values) / sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


def merged(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row for the runs that differ in their seed alone: numbers are means, ``seeds`` is the number of runs.

    ``starved`` lists the jobs that did not finish in one of them or more; ``faithful`` is that of all together.
    """
    found = []
    for mine in _groups(rows):
        one: dict[str, Any] = {key: _mean([row[key] for row in mine]) for key in mine[0]}
        one |= {key: mine[0][key] for key in ("study", *SAME)} | {"seeds": len(mine)}
        names = dict.fromkeys(name for row in mine for name in (row["starved"] or "").split(", ") if name)
        one["starved"] = ", ".join(names) or None
        judged = [row["faithful"] for row in mine]
        one["faithful"] = None if None in judged else all(judged)
        found.append(one)
    return found


def ratios(rows: Sequence[Row], column: str, above: str, below: str) -> dict[int, Interval]:
    """By number of clients: ``column`` of policy ``above`` over that of ``below``, seed by seed, with its interval."""
    value = {(row["policy"], row["clients"], row["seed"]): row[column] for row in rows}
    found: dict[int, list[float]] = {}
    for (policy, clients, seed), top in value.items():
        bottom = value.get((below, clients, seed))
        if policy == above and top and bottom:
            found.setdefault(clients, []).append(top / bottom)
    return {clients: interval(each) for clients, each in sorted(found.items())}


def _groups(rows: Sequence[Row]) -> Iterator[list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in SAME), []).append(row)
    yield from groups.values()


def _mean(values: Sequence[Any]) -> Any:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return fmean(numbers) if numbers else values[0]
