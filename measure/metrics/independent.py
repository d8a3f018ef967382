"""The difference of the medians of two independent samples with a 95 % interval: of two runs, which share no repeat.

From six values in each sample on, the interval is that of Price and Bonett (J. Stat. Comput. Simul. 72, 2002, p. 119,
"Distribution-free confidence intervals for difference and ratio of medians"): it assumes neither a distribution nor
that both samples have the same spread. With two to five values in one of them it is Welch's t around the difference of
the means (Biometrika 34, 1947, p. 28), which assumes that the values are normally distributed, as
``measure.metrics.estimate`` does for so few; it is widened to the difference of the medians where that lies outside.
A sample of one value gives no interval. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

from measure.metrics.estimate import LEAST_ORDERED, LEVEL

_PIECES = 200
"""Pieces of the numerical integral of Student's t distribution (even)."""
_LARGEST_T = 13.0
"""Above the quantile of one degree of freedom, which is the largest."""
_HALVINGS = 48
"""Halvings of the range in which a quantile is sought: to the precision of a float."""


@dataclass(frozen=True)
class Difference:
    """A difference of two medians with its 95 % interval, in the unit of the values; None: there is no interval."""

    value: float
    low: float | None = None
    high: float | None = None

    def times(self, factor: float) -> Difference:
        """The difference in another unit: times ``factor``, which is over 0."""
        low, high = (None if x is None else x * factor for x in (self.low, self.high))
        return Difference(self.value * factor, low, high)

    @property
    def holds_zero(self) -> bool:
        """Whether there is an interval and 0 lies in it, so that the samples may be of one median."""
        return self.low is not None and self.high is not None and self.low <= 0 <= self.high

    def widened_to_zero(self) -> Difference:
        """The difference with an interval that reaches to 0 at least, if it has one."""
        if self.low is None or self.high is None:
            return self
        return Difference(self.value, min(self.low, 0.0), max(self.high, 0.0))


def difference(base: Sequence[float | None], values: Sequence[float | None]) -> Difference | None:
    """The median of ``values`` less that of ``base``, without those that were not measured; None if one has none."""
    a, b = ([each for each in sample if each is not None] for sample in (base, values))
    if not a or not b:
        return None
    found = statistics.median(b) - statistics.median(a)
    fewest = min(len(a), len(b))
    if fewest < 2:
        return Difference(found)
    middle, half = (found, _ordered(a, b)) if fewest >= LEAST_ORDERED else _welch(a, b)
    return Difference(found, min(found, middle - half), max(found, middle + half))


def relative(base: Sequence[float | None], values: Sequence[float | None]) -> Difference | None:
    """The median of ``values`` over that of ``base``, less 1; the interval is that of the difference of logarithms.

    There is no interval unless all values are over 0; None without values, or if the median of ``base`` is not over 0.
    """
    a, b = ([each for each in sample if each is not None] for sample in (base, values))
    if not a or not b or statistics.median(a) <= 0:
        return None
    ratio = statistics.median(b) / statistics.median(a) - 1
    if min(*a, *b) <= 0:
        return Difference(ratio)
    logs = difference([math.log(each) for each in a], [math.log(each) for each in b])
    if logs is None or logs.low is None or logs.high is None:
        return Difference(ratio)
    return Difference(ratio, math.expm1(min(logs.low, _MOST)), math.expm1(min(logs.high, _MOST)))


_MOST = 700.0
"""Logarithm of the largest ratio: that of a float is not much larger."""


def _ordered(a: Sequence[float], b: Sequence[float]) -> float:
    """Half of the interval by Price and Bonett, from order statistics of each sample."""
    return NormalDist().inv_cdf((1 + LEVEL) / 2) * math.hypot(_median_error(a), _median_error(b))


def _median_error(sample: Sequence[float]) -> float:
    """The standard error of a median: the distance of two values around it over the quantile that they stand for."""
    ordered, n = sorted(sample), len(sample)
    c = max(1, round((n + 1) / 2 - math.sqrt(n)))
    outside = sum(math.comb(n, k) for k in range(c)) / 2**n
    return (ordered[n - c] - ordered[c - 1]) / (2 * NormalDist().inv_cdf(1 - outside))


def _welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """The difference of the means, and half of its interval by Welch, with the degrees of freedom of Satterthwaite."""
    errors = [statistics.variance(sample) / len(sample) for sample in (a, b)]
    middle, both = statistics.fmean(b) - statistics.fmean(a), sum(errors)
    if not both:
        return middle, 0.0
    freedom = 1 / sum((each / both) ** 2 / (len(sample) - 1) for each, sample in zip(errors, (a, b), strict=True))
    return middle, student_t(freedom) * math.sqrt(both)


@lru_cache(maxsize=256)
def student_t(freedom: float) -> float:
    """The quantile of Student's t distribution that 95 % lie within on both sides; ``freedom`` is 1 or more.

    With t = sqrt(freedom) tan(u) the density is that of cos(u) to the power of ``freedom - 1``, which is smooth, so
    that Simpson's rule integrates it.
    """
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    scale = 2 * math.exp(log_scale) / math.sqrt(math.pi)
    low, high = 0.0, math.atan(_LARGEST_T / math.sqrt(freedom))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        step = middle / _PIECES
        weights = (1 if k in (0, _PIECES) else 4 if k % 2 else 2 for k in range(_PIECES + 1))
        area = sum(w * math.cos(k * step) ** (freedom - 1) for k, w in enumerate(weights)) * step / 3
        low, high = (middle, high) if scale * area < LEVEL else (low, middle)
    return math.sqrt(freedom) * math.tan(low)
