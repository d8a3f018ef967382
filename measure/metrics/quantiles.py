"""Quantiles of samples: median, 95th and 99th percentile, extremes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Quantiles:
    """Median, 95th and 99th percentile, extremes and count of a sample, in the unit of the sample."""

    count: int
    low: float
    p50: float
    p95: float
    p99: float
    high: float


def quantile(ordered: Sequence[float], share: float) -> float:
    """The ``share`` quantile (0..1) of a sorted, non-empty sample, linear between its neighbours."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(sample: Iterable[float]) -> float | None:
    """The median, or None for an empty sample."""
    ordered = sorted(sample)
    return quantile(ordered, 0.5) if ordered else None


def quantiles(sample: Iterable[float]) -> Quantiles | None:
    """The quantiles of a sample, or None if it is empty."""
    ordered = sorted(sample)
    if not ordered:
        return None
    p50, p95, p99 = (quantile(ordered, share) for share in (0.5, 0.95, 0.99))
    return Quantiles(len(ordered), ordered[0], p50, p95, p99, ordered[-1])
