from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.remote.clock import DRIFT, ClockSample, Offset, offset_of, sampled, time_here

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


def test_between_two_measurements_the_offset_is_linear() -> None:
    before, after = Offset(10.0, 1e-4, 2e-4, 0.0, 0.0), Offset(10.001, 1e-4, 2e-4, 100.0, 0.0)
    assert time_here(before, after, 50.0 + 10.0005) == pytest.approx(50.0)
    assert time_here(before, before, 9.0 + 10.0) == pytest.approx(9.0)


def test_samples_are_taken_around_each_exchange() -> None:
    ticks = count()
    samples = sampled(lambda: (next(ticks) + 100.0, next(ticks) + 100.0), lambda: float(next(ticks)), times=3)
    assert samples == [(0, 101, 102, 3), (4, 105, 106, 7), (8, 109, 110, 11)]
