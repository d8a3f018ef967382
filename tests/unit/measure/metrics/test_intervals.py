from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from measure.metrics.intervals import Interval, difference, overlap, total, union

times = st.integers(0, 60)
interval_lists = st.lists(st.tuples(times, times).map(lambda p: (float(min(p)), float(max(p)))), max_size=12)


def _seconds(intervals: list[Interval]) -> set[int]:
    """The whole seconds covered: the oracle."""
    return {s for start, end in intervals for s in range(int(start), int(end))}


@given(interval_lists)
def test_union_covers_the_same_time_and_is_disjoint(intervals: list[Interval]) -> None:
    merged = union(intervals)
    assert _seconds(merged) == _seconds(intervals)
    assert all(a[1] < b[0] for a, b in pairwise(merged))
    assert total(merged) == len(_seconds(intervals))


@given(interval_lists, interval_lists)
def test_overlap_and_difference_split_a_set(a: list[Interval], b: list[Interval]) -> None:
    one, other = union(a), union(b)
    assert _seconds(overlap(one, other)) == _seconds(one) & _seconds(other)
    assert _seconds(difference(one, other)) == _seconds(one) - _seconds(other)
