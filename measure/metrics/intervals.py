"""Set operations on time intervals in seconds: union, overlap and difference of sorted, disjoint intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    both: list[Interval] = []
    i = j = 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            both.append((start, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return both


def difference(a: Sequence[Interval], b: Sequence[Interval]) -> list[Interval]:
    """The time that is in ``a`` and not in ``b``, each as ``union`` returns it."""
    left: list[Interval] = []
    for start, end in a:
        for b_start, b_end in b:
            if b_end <= start:
                continue
            if b_start >= end:
                break
            if b_start > start:
                left.append((start, b_start))
            start = max(start, b_end)
        if start < end:
            left.append((start, end))
    return left


def total(intervals: Iterable[Interval]) -> float:
    """Total length of disjoint intervals, in seconds."""
    return sum(end - start for start, end in intervals)
