"""Tests of medians with intervals: their coverage, pairs within repeats, slopes."""

from __future__ import annotations

import random
import statistics

import pytest

from measure.metrics.estimate import Estimate, estimate, paired_difference, paired_ratio, slope


def test_one_value_has_no_interval_and_none_no_estimate() -> None:
    assert estimate([2.0]) == Estimate(2.0, None, None, 1)
    assert estimate([2.0]).half_width is None  # type: ignore[union-attr]
    assert estimate([]) is None and estimate([None, None]) is None


def test_what_was_not_measured_in_a_repeat_does_not_count() -> None:
    found = estimate([1.0, None, 3.0])
    assert found is not None and (found.median, found.n) == (2.0, 2)


def test_a_few_values_have_students_interval() -> None:
    found = estimate([1.0, 2.0, 3.0])
    assert found is not None and found.low is not None
    assert found.half_width == pytest.approx(4.303 / 3**0.5) and found.low == pytest.approx(2 - 4.303 / 3**0.5)


@pytest.mark.parametrize(("n", "outside"), [(6, 0), (8, 0), (9, 1), (20, 5), (100, 39), (1000, 468), (100_000, 49_689)])
def test_many_values_have_the_interval_of_order_statistics(n: int, outside: int) -> None:
    found = estimate(list(map(float, range(n))))
    assert found is not None and (found.low, found.high) == (outside, n - 1 - outside)


@pytest.mark.parametrize("n", [2, 3, 5, 6, 12])
def test_95_of_100_intervals_hold_the_true_median(n: int) -> None:
    draws = random.Random(n)
    held = 0
    for _ in range(4000):
        found = estimate([draws.gauss(10, 1) for _ in range(n)])
        assert found is not None and found.low is not None and found.high is not None
        held += found.low <= 10 <= found.high
    assert held / 4000 > 0.94


def test_differences_and_ratios_are_paired_within_repeats() -> None:
    """A machine that is slower in one repeat slows both; the differences do not vary."""
    base, values = [10.0, 12.0, 11.0], [13.0, 15.0, 14.0]
    found = paired_difference(values, base)
    assert found is not None and (found.low, found.median, found.high) == (3.0, 3.0, 3.0)
    assert paired_difference([13.0, None], [10.0, 12.0]) == Estimate(3.0, None, None, 1)
    doubled = paired_ratio([2 * x for x in base], base)
    assert doubled is not None and (doubled.low, doubled.high) == (2.0, 2.0)
    assert paired_ratio([1.0], [0.0]) is None


def test_a_slope_is_fitted_in_each_repeat() -> None:
    x = [0.0, 0.5, 1.0]
    found = slope(x, [[1.0, 2.0], [4.0, 5.1], [7.0, None]])
    assert found == Estimate(pytest.approx(6.0), None, None, 1)  # type: ignore[arg-type]
    assert slope([1.0, 1.0], [[1.0], [2.0]]) is None and slope(x, [[None], [1.0], [2.0]]) is None


def test_another_unit() -> None:
    found = estimate([1.0, 2.0, 3.0])
    assert found is not None and found.times(1e3).median == 2e3
    assert found.times(1e3).half_width == pytest.approx(1e3 * statistics.stdev([1, 2, 3]) * 4.303 / 3**0.5)
