"""Differences of medians of independent samples: against hand calculations and published ones, and by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from statistics import median

import pytest

from measure.metrics.estimate import _STUDENT_T
from measure.metrics.independent import Difference, _welch, difference, relative, student_t

DRAWS = 400


@pytest.mark.parametrize("values", sorted(_STUDENT_T))
def test_quantiles_of_student_are_those_of_the_table(values: int) -> None:
    assert student_t(values - 1.0) == pytest.approx(_STUDENT_T[values], abs=6e-4)


@pytest.mark.parametrize(("freedom", "quantile"), [(1.0, 12.70620), (10.0, 2.22814), (30.0, 2.04227), (1e6, 1.95997)])
def test_quantiles_of_student_are_right_to_five_digits(freedom: float, quantile: float) -> None:
    assert student_t(freedom) == pytest.approx(quantile, rel=1e-5)


def test_welch_agrees_with_the_published_example_of_students_sleep_data() -> None:
    """R's ``t.test(extra ~ group, data = sleep)``: 95 percent confidence interval -3.3654832 0.2054832."""
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    middle, half = _welch(second, first)
    assert (middle - half, middle + half) == pytest.approx((-3.3654832, 0.2054832), abs=1e-6)


def test_few_values_have_the_interval_of_welch_around_their_means() -> None:
    found = difference([10.0, 11.0, 12.0], [13.0, 15.0, 14.0, 16.0])
    freedom = 0.75**2 / ((1 / 3) ** 2 / 2 + (5 / 12) ** 2 / 3)
    half = student_t(freedom) * math.sqrt(0.75)
    assert found is not None and found.value == 3.5
    assert (found.low, found.high) == pytest.approx((3.5 - half, 3.5 + half))
    assert half == pytest.approx(2.2317, abs=1e-3)


def test_six_values_have_the_interval_of_price_and_bonett() -> None:
    a, b = [float(x) for x in range(1, 7)], [float(x) for x in range(11, 17)]
    half = 1.959964 * math.sqrt(2) * 5 / (2 * 2.153875)
    found = difference(a, b)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((10.0, 10 - half, 10 + half), rel=1e-5)


def test_one_value_has_no_interval_and_none_no_difference() -> None:
    assert difference([1.0], [3.0, 5.0]) == Difference(3.0)
    assert relative([2.0], [3.0, 5.0]) == Difference(1.0)
    assert difference([None], [1.0]) is None and relative([], [1.0]) is None
    assert relative([0.0, 0.0], [1.0, 2.0]) is None


def test_equal_values_differ_by_nothing() -> None:
    assert difference([2.0, 2.0], [2.0, 2.0, 2.0]) == Difference(0.0, 0.0, 0.0)
    assert difference([2.0] * 7, [3.0] * 7) == Difference(1.0, 1.0, 1.0)


def test_a_repeat_without_a_value_does_not_count() -> None:
    assert difference([1.0, None, 2.0], [None, 4.0, 5.0]) == difference([1.0, 2.0], [4.0, 5.0])


def test_a_ratio_has_the_interval_of_the_logarithms() -> None:
    a, b = [2.0, 2.1, 1.9], [4.0, 4.4, 3.8]
    found, logs = relative(a, b), difference([math.log(x) for x in a], [math.log(x) for x in b])
    assert found is not None and logs is not None and logs.low is not None and found.low is not None
    assert found.value == pytest.approx(1.0)
    assert 1 + found.low == pytest.approx(math.exp(logs.low))
    assert relative([-1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == Difference(0.0)


def test_a_huge_ratio_is_no_error() -> None:
    found = relative([1e-300, 1e-10], [1e300, 1e10])
    assert found is not None and found.high is not None and math.isfinite(found.high)


NORMAL: Callable[[Random], float] = lambda random: random.gauss(0.0, 1.0)  # noqa: E731
SKEWED: Callable[[Random], float] = lambda random: random.lognormvariate(0.0, 1.0)  # noqa: E731


@pytest.mark.parametrize(
    ("draw", "middle", "sizes", "spread"),
    [
        (NORMAL, 0.0, (3, 3), 1.0),
        (NORMAL, 0.0, (5, 3), 3.0),
        (NORMAL, 0.0, (7, 7), 3.0),
        (SKEWED, 1.0, (7, 9), 1.0),
        (SKEWED, 1.0, (20, 10), 3.0),
    ],
)
def test_the_interval_holds_the_true_difference_in_95_of_100_cases(
    draw: Callable[[Random], float], middle: float, sizes: tuple[int, int], spread: float
) -> None:
    """Of 400 draws an interval of 95 % misses 20 on average, and more than 37 once in ten thousand times."""
    random, held = Random(f"{sizes} {spread}"), 0
    for _ in range(DRAWS):
        a = [10 + draw(random) for _ in range(sizes[0])]
        b = [12 + spread * draw(random) for _ in range(sizes[1])]
        found = difference(a, b)
        assert found is not None and found.low is not None and found.high is not None
        assert found.value == pytest.approx(median(b) - median(a))
        held += found.low <= 2 + (spread - 1) * middle <= found.high
    assert held >= DRAWS - 37


def test_the_difference_of_medians_lies_in_its_interval() -> None:
    """Welch's interval is around the means, from which medians of skewed values may be far."""
    few, more = [1.0, 1.0, 1.0, 9.0, 9.0], [1.0] * 11 + [9.0] * 9
    for base, values in ((few, more), (more, few), ([1.0, 1.0, 9.0], [1.0, 1.0, 1.0])):
        for found in (difference(base, values), relative(base, values)):
            assert found is not None and found.low is not None and found.high is not None
            assert found.low <= found.value <= found.high


def test_a_negative_base_has_no_share() -> None:
    assert relative([-1.0, -1.0], [-2.0, -2.0]) is None
