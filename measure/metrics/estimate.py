"""Median of repeats with a 95 % interval, of values, of paired differences and ratios, and of slopes. Pure.

Repeats are independent runs of the same point. From six values on, the interval is that of order statistics, which
assumes no distribution (Hoefler and Belli, SC'15); of two to five it is Student's t around their mean, which assumes
that they are normally distributed, as order statistics of so few values cannot reach 95 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

LEVEL = 0.95
LEAST_ORDERED = 6
"""Fewest values whose smallest and largest enclose the median with a probability of ``LEVEL``."""
_MOST_SUMMED = 1000
"""Values above which the normal distribution stands for coins: the sum takes seconds for 10,000."""
_STUDENT_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Quantile 0.975 of Student's t distribution by the number of values."""


@dataclass(frozen=True)
class Estimate:
    """The median of ``n`` values with its 95 % interval, in the unit of the values; one value has no interval."""

    median: float
    low: float | None
    high: float | None
    n: int

    @property
    def half_width(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def plus(self, other: float) -> Estimate:
        low, high = (None if x is None else x + other for x in (self.low, self.high))
        return Estimate(self.median + other, low, high, self.n)

    def times(self, factor: float) -> Estimate:
        """The estimate in another unit: all values times ``factor``, which is over 0."""
        low, high = (None if x is None else x * factor for x in (self.low, self.high))
        return Estimate(self.median * factor, low, high, self.n)


def estimate(values: Sequence[float | None]) -> Estimate | None:
    """The estimate of ``values``, of which None (not measured in that repeat) is left out; None without any value."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    middle = statistics.median(known)
    low, high = _interval(known)
    return Estimate(middle, low, high, len(known))


def paired_difference(values: Sequence[float | None], base: Sequence[float | None]) -> Estimate | None:
    """The estimate of ``values - base``, each pair from the same repeat."""
    return estimate([None if a is None or b is None else a - b for a, b in zip(values, base, strict=False)])


def ratios(values: Sequence[float | None], base: Sequence[float | None]) -> list[float | None]:
    """``values / base``, each pair from the same repeat; None where one of them was not measured."""
    return [None if a is None or not b else a / b for a, b in zip(values, base, strict=False)]


def paired_ratio(values: Sequence[float | None], base: Sequence[float | None]) -> Estimate | None:
    """The estimate of ``values / base``, each pair from the same repeat."""
    return estimate(ratios(values, base))


def slope(x: Sequence[float], values: Sequence[Sequence[float | None]]) -> Estimate | None:
    """The estimate of the slope of ``values[i]`` (a value per repeat) over ``x[i]``: a least-squares line per repeat.

    A repeat counts if it has every point; None without such a repeat, or with fewer than two different ``x``.
    """
    if len(set(x)) < 2:
        return None
    repeats = zip(*values, strict=False)
    complete = [[value for value in repeat if value is not None] for repeat in repeats]
    lines = [statistics.linear_regression(x, repeat).slope for repeat in complete if len(repeat) == len(x)]
    return estimate(lines)


def crossing(xs: Sequence[float], first: Sequence[float], second: Sequence[float]) -> float | None:
    """The x from which on ``second`` stays below ``first``, by linear interpolation; None if there is none.

    ``xs`` must ascend. If ``second`` is below everywhere, the result is the first x.
    """
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    if not gaps or gaps[-1] <= 0:
        return None
    found = xs[0]
    for (x, gap), (next_x, next_gap) in pairwise(zip(xs, gaps, strict=True)):
        if gap <= 0 < next_gap:
            found = x + (next_x - x) * -gap / (next_gap - gap)
    return found


def _interval(ordered: Sequence[float]) -> tuple[float | None, float | None]:
    n = len(ordered)
    if n < 2:
        return None, None
    if n < LEAST_ORDERED:
        half = _STUDENT_T[n] * statistics.stdev(ordered) / math.sqrt(n)
        mean = statistics.fmean(ordered)
        return mean - half, mean + half
    outside = _outside(n)
    return ordered[outside], ordered[n - 1 - outside]


def _outside(n: int) -> int:
    """How many of ``n`` values lie outside the interval on either side: the most that keep ``LEVEL``.

    The median is under the k-th smallest of n values (k from 0) with the probability that at most k of n fair coins
    show heads.
    """
    if n > _MOST_SUMMED:
        return int(statistics.NormalDist(n / 2, math.sqrt(n) / 2).inv_cdf((1 - LEVEL) / 2) - 0.5)
    below, k = 0.0, -1
    while True:
        below += math.comb(n, k + 1) / 2**n
        if 2 * below > 1 - LEVEL:
            return k
        k += 1
