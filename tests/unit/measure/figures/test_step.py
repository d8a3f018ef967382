from __future__ import annotations

from typing import Any

import pytest

from measure.figures.step import link_throughput, throughputs
from measure.figures.style import time_unit
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


def test_the_links_have_the_zero_and_the_end_of_the_step_and_the_samples_around_it(make_point: Any) -> None:
    """Nothing is sent in the first 0.4 s, which no sample shows; the sample after the end is after the point."""
    point = make_point("electrical", 0.0)
    port = point.plan.rail_ports(0)[0]
    step = Event(10.0, "agent", "step", 11.0, {"rank": 0, "step": 0})

    def count(t: float, tx: int) -> Event:
        return Event(t, "link", "bytes", None, {"interface": port.interface, "rank": 0, "lane": 0, "tx_bytes": tx})

    after = count(11.05, 650_000)
    inside = [step, count(10.4, 0), count(10.5, 100_000), count(10.9, 500_000)]
    figure = link_throughput(point, inside, [count(3.0, 0), count(9.0, 0), *inside, after, count(20.0, 9_000_000)])
    assert figure is not None
    whole = figure.axes[1]
    values, edges, _ = whole.patches[0].get_data()  # type: ignore[attr-defined]
    factor, unit = time_unit(point.scale.real_s(1.0))
    assert (edges[0], edges[-1]) == (0.0, pytest.approx(factor / point.scale.time))
    assert whole.get_xlabel() == f"time in the step ({unit})"
    at = (edges[:-1] + edges[1:]) / 2 * point.scale.time / factor
    assert not values[at < 0.35].any() and (values[at > 0.45] > 0).all(), "as far as the end of the step"
    assert values[-1] == pytest.approx(values[at > 0.6][0])
