"""Quantiles of samples: median, 95th and 99th percentile, extremes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Quantiles:
    """Median, 95th and 99th percentile, extremes and count of a sample, in the unit of the sample."""

    count: int
    low: float
    p50: float
    p95: float
    p99: float
    high: float


def median(sample: Iterable[float]) -> float | None:
    values = list(sample)
    return statistics.median(values) if values else None


def quantiles(sample: Iterable[float]) -> Quantiles | None:
    values = list(sample)
    if not values:
        return None
    low, p50, p95, p99, high = np.quantile(values, (0.0, 0.5, 0.95, 0.99, 1.0)).tolist()
    return Quantiles(len(values), low, p50, p95, p99, high)
