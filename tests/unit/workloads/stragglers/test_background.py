from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.scale import goodput_share
from topos.describe import plan
from topos.rails import RailTopo
from workloads.stragglers.background import Background, Drip, SentTraffic

FDS = dict.fromkeys(range(6), 0)


@given(rate=st.floats(1e3, 1e9), pauses=st.lists(st.floats(1e-4, 0.045), min_size=1, max_size=50))
def test_a_drip_that_is_taken_in_time_keeps_its_rate(rate: float, pauses: list[float]) -> None:
    drip, now, sent = Drip(rate, 100.0), 100.0, 0
    for pause in pauses:
        now += pause
        size = int(drip.due(now))
        drip.sent(size)
        sent += size
    assert sent == pytest.approx((now - 100.0) * rate, abs=2 + 1e-6 * sent)


@given(rate=st.floats(1e3, 1e9), blocked=st.floats(0.05, 100.0))
def test_what_a_blocked_port_did_not_take_is_forgotten(rate: float, blocked: float) -> None:
    drip = Drip(rate, 0.0, memory_s=0.05)
    assert drip.due(blocked) == pytest.approx(0.05 * rate)
    drip.sent(int(drip.due(blocked)))
    assert drip.due(blocked + 0.01) == pytest.approx(0.01 * rate, abs=2)


@given(rate=st.floats(1e3, 1e9), size=st.integers(1, 1_000_000))
def test_after_the_wait_the_bytes_are_due(rate: float, size: int) -> None:
    drip = Drip(rate, 5.0, memory_s=1e6)
    assert drip.due(5.0 + drip.wait_s(5.0, size)) == pytest.approx(size, rel=1e-3)
    assert drip.wait_s(5.0 + 2 * size / rate, size) == 0.0


def test_the_rate_counts_headers() -> None:
    assert SentTraffic(8948 * 100, 8948 * 100, 0.1).mbps(goodput_share()) == pytest.approx(9014 * 100 * 8 / 0.1 / 1e6)
    assert SentTraffic(0, 0, 0.0).mbps(goodput_share()) == 0.0


def test_traffic_leaves_by_the_ranks_port_for_the_next_server_on_its_rail() -> None:
    fabric = plan(RailTopo(servers=3, gpus=2, fabric="electrical", rate_mbps=50, slow="4:0.5"))
    settings = Background.on(fabric, FDS, rank=4, share=0.4)._settings
    assert settings["source"]["interface"] == "g4-r0"
    assert settings["target"]["ip"] == fabric.rail_of(0).port(0, 0).ip
    assert settings["bytes_per_s"] == pytest.approx(0.4 * 25e6 / 8 * 8948 / 9014), "the share is of the slow port"
