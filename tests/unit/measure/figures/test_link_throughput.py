from __future__ import annotations

from typing import Any

import pytest

from measure.figures.link_throughput import throughputs
from railyard.scale import Scale
from railyard.timeline import Event


def _count(t: float, tx: int) -> Event:
    return Event(t, "link", "bytes", None, {"interface": "g0-r0", "rank": 0, "lane": 0, "tx_bytes": tx, "rx_bytes": 0})


def test_rate_is_real_gbps_whatever_the_time_scale() -> None:
    events = [_count(0.0, 0), _count(0.1, 1_250_000), _count(0.3, 1_250_000)]
    for time in (1.0, 5.0):
        (series,) = throughputs(events, Scale(1 / 1000, time))
        assert series.tx_gbps == pytest.approx((100.0, 0.0))
        assert series.edges_s == (0.0, 0.1, 0.3)


def test_a_counter_set_back_is_no_negative_rate() -> None:
    (series,) = throughputs([_count(0.0, 500), _count(1.0, 10)], Scale(0.5))
    assert series.tx_gbps == (0.0,)


def test_the_synthetic_job_fills_its_links(make_point: Any, make_job: Any) -> None:
    point = make_point("electrical", 0.0)
    series = throughputs(make_job(point).with_samples(0.02).timeline(), point.scale)
    assert len(series) == 16
    assert max(max(s.tx_gbps) for s in series) == pytest.approx(400 * 8948 / 9014, rel=0.01)
