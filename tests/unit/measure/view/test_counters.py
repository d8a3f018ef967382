from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.view.counters import Counter, Counters

RECORDS = st.lists(st.tuples(st.floats(0.001, 5), st.integers(0, 10_000)), min_size=2, max_size=30)


def counted(records: list[tuple[float, int]]) -> tuple[Counter, list[float], list[int]]:
    counter, t, sent, times, totals = Counter(), 0.0, 0, [], []
    for seconds, more in records:
        t, sent = t + seconds, sent + more
        counter.add(t, sent, 2 * sent)
        times.append(t)
        totals.append(sent)
    return counter, times, totals


@given(RECORDS, st.integers(1, 40))
def test_no_byte_is_lost_or_counted_twice_in_intervals(records: list[tuple[float, int]], bins: int) -> None:
    counter, times, totals = counted(records)
    edges = np.linspace(times[0], times[-1], bins + 1)
    assert counter.sent(edges).sum() == pytest.approx(totals[-1] - totals[0], abs=1e-6)


@given(RECORDS, st.floats(0, 1))
def test_the_rate_at_a_moment_is_that_between_the_records_around_it(
    records: list[tuple[float, int]], share: float
) -> None:
    counter, times, totals = counted(records)
    t = times[0] + share * (times[-1] - times[0])
    place = sum(1 for each in times if each <= t)
    if place == len(times):
        place -= 1
    wanted = (totals[place] - totals[place - 1]) / (times[place] - times[place - 1])
    assert counter.rates_at(t, 1e-9) == pytest.approx((wanted, 2 * wanted))


def test_a_counter_that_was_reset_and_records_out_of_order() -> None:
    counter = Counter()
    for t, sent in ((0.0, 0.0), (1.0, 100.0), (0.5, 50.0), (2.0, 10.0), (3.0, 60.0)):
        counter.add(t, sent, 0.0)
    assert len(counter) == 4
    assert list(counter.sent(np.array([0.0, 1.0, 2.0, 3.0]))) == [100.0, 0.0, 50.0]
    assert counter.rates_at(1.5) == counter.rates_at(-1) == (0.0, 0.0)


def test_after_the_last_record_a_rate_holds_for_a_short_time() -> None:
    counter = Counter()
    counter.add(0.0, 0, 0)
    counter.add(1.0, 100, 0)
    assert counter.rates_at(1.2, 0.25) == (100.0, 0.0)
    assert counter.rates_at(1.3, 0.25) == counter.rates_at(1.2) == (0.0, 0.0)


def test_real_rates_and_the_share_of_the_line() -> None:
    counters = Counters({"g0-r0": 400.0, "g1-r0": 400.0}, to_bits=8 * 4000 / 2.0, sample_s=0.05)
    for name in ("g0-r0", "unknown"):
        counters.add(0.0, name, 0, 0)
        counters.add(1.0, name, 12.5e6, 6.25e6)
    assert counters.at(0.5) == {"g0-r0": {"tx_gbps": 200.0, "rx_gbps": 100.0, "share": 0.5}}
    line, rates = counters.sent_gbps(["g0-r0", "g1-r0"], np.array([0.0, 0.5, 1.0, 2.0])) or (0.0, np.zeros(0))
    assert line == 400.0 and list(rates) == [200.0, 200.0, 0.0]
    assert counters.sent_gbps(["g1-r0"], np.array([0.0, 1.0])) is None
