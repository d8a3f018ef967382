from __future__ import annotations

import math
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.remote.clock import DRIFT, ClockSample, Offset, between, offset_of, sampled

delays = st.floats(0.0, 0.5)
ROUNDING_S = 1e-8
"""Of times of up to a million seconds as floating-point numbers, added a few times."""


def exchange(at: float, offset: float, there: float, work: float, back: float) -> ClockSample:
    """What both clocks show when the request takes ``there`` seconds and the answer ``back``."""
    return ClockSample(at, at + there + offset, at + there + work + offset, at + there + work + back)


def test_offset_of_a_symmetric_exchange_is_exact() -> None:
    offset = offset_of([exchange(100.0, 1000.0, 0.001, 0.5, 0.001)])
    assert offset.offset_s == pytest.approx(1000.0, abs=ROUNDING_S)
    assert offset.round_trip_s == pytest.approx(0.002, abs=ROUNDING_S)
    assert offset.uncertainty_s == pytest.approx(0.001 + DRIFT * 0.502, abs=ROUNDING_S)
    assert (offset.at_s, offset.jitter_s) == (pytest.approx(100.251), 0.0)


def test_the_exchange_with_the_least_round_trip_counts() -> None:
    slow, quick = exchange(1.0, 5.0, 0.3, 0.0, 0.1), exchange(2.0, 5.0, 0.01, 0.2, 0.01)
    assert offset_of([slow, quick, slow]).round_trip_s == pytest.approx(0.02)
    assert offset_of([slow, quick, slow]).jitter_s == pytest.approx(0.1)


def test_no_samples_have_no_offset() -> None:
    with pytest.raises(ValueError):
        offset_of([])


@given(
    st.floats(-1e6, 1e6),
    st.floats(-DRIFT, DRIFT),
    st.lists(st.tuples(st.floats(0, 1), delays, delays, delays), min_size=1, max_size=20),
)
def test_the_true_offset_is_within_the_uncertainty_whatever_the_delays(
    start: float, drift: float, exchanges: list[tuple[float, float, float, float]]
) -> None:
    def there(t: float) -> float:
        return t + start + drift * t

    samples = []
    for at, out, work, back in exchanges:
        samples.append(ClockSample(at, there(at + out), there(at + out + work), at + out + work + back))
    found = offset_of(samples)
    true = there(found.at_s) - found.at_s
    assert abs(found.offset_s - true) <= found.uncertainty_s + ROUNDING_S


@given(
    st.lists(st.floats(-DRIFT, DRIFT), min_size=4, max_size=4),
    st.floats(-1, 1),
    st.floats(-1, 1),
    st.floats(0, 4),
)
def test_between_two_measurements_the_offset_is_within_the_uncertainty(
    rates: list[float], wrong_before: float, wrong_after: float, at: float
) -> None:
    """The rate changes every 25 s within its bounds; both measurements are wrong by a part of their uncertainty."""

    def true(t: float) -> float:
        return 7.0 + sum(rate * min(25.0, max(0.0, t - 25.0 * k)) for k, rate in enumerate(rates))

    before = Offset(true(0.0) + wrong_before * 1e-4, 1e-4, 2e-4, 0.0, 0.0)
    after = Offset(true(100.0) + wrong_after * 2e-4, 2e-4, 4e-4, 100.0, 0.0)
    line = between(before, after)
    t = at * 25.0
    assert abs(line.offset_s(t) - true(t)) <= line.uncertainty_s(t) + ROUNDING_S


def test_offsets_between_are_linear_and_can_be_turned_round() -> None:
    line = between(Offset(10.0, 1e-4, 2e-4, 0.0, 0.0), Offset(10.001, 1e-4, 2e-4, 100.0, 0.0))
    assert line.drift == pytest.approx(1e-5)
    assert line.offset_s(50.0) == pytest.approx(10.0005)
    assert line.here(50.0 + line.offset_s(50.0)) == pytest.approx(50.0)
    assert line.uncertainty_s(0.0) == pytest.approx(1e-4)
    assert 1e-4 < line.uncertainty_s(50.0) < 1e-4 + DRIFT * 50.0


def test_two_measurements_at_one_moment_have_no_drift() -> None:
    one = Offset(3.0, 1e-4, 2e-4, 5.0, 0.0)
    assert between(one, one).offset_s(9.0) == 3.0
    assert math.isfinite(between(one, one).uncertainty_s(9.0))


def test_samples_are_taken_around_each_exchange() -> None:
    ticks = count()
    samples = sampled(lambda: (next(ticks) + 100.0, next(ticks) + 100.0), lambda: float(next(ticks)), times=3)
    assert samples == [(0, 101, 102, 3), (4, 105, 106, 7), (8, 109, 110, 11)]
