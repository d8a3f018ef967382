"""Set operations on time intervals in seconds: union, overlap and difference of sorted, disjoint intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

Interval = tuple[float, float]
"""(start, end), start <= end."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals into sorted ones that neither touch nor overlap; empty ones are left out."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def overlap(a: Sequence[Interval], b: Sequence[Interval]) -> list[Interval]:
    """The time that is in both ``a`` and ``b``, each as ``union`` returns it."""
    both = ((max(one[0], other[0]), min(one[1], other[1])) for one in a for other in b)
    return [(start, end) for start, end in both if start < end]


def difference(a: Sequence[Interval], b: Sequence[Interval]) -> list[Interval]:
    """The time that is in ``a`` and not in ``b``, each as ``union`` returns it."""
    starts, ends = [-inf, *(end for _, end in b)], [*(start for start, _ in b), inf]
    return overlap(a, list(zip(starts, ends, strict=True)))


def total(intervals: Iterable[Interval]) -> float:
    """Total length of disjoint intervals, in seconds."""
    return sum(end - start for start, end in intervals)
