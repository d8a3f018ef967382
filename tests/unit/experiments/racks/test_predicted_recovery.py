from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.engine.jobs import Detection
from experiments.racks.forecast import checkpoint_seconds, detection_bounds, predicted_parts
from experiments.racks.row import FailoverRow
from measure.model.simulated_control import Costs
from measure.model.wires import wire_bytes
from railyard.errors import ConfigError
from railyard.scale import Scale
from topos.describe import plan
from topos.racks import RackTopo
from topos.rails import RailTopo

SCALE = Scale(1 / 100)
RACK = plan(RackTopo(torus="4x4", server="2x2", port_mbps=100, front_end_mbps=50))


@given(beat=st.floats(0.01, 5), misses=st.integers(1, 9), time=st.floats(0.1, 4), phase=st.floats(0.001, 0.999))
def test_silence_is_noticed_within_its_bounds(beat: float, misses: int, time: float, phase: float) -> None:
    """The last beat is heard ``phase`` of a beat before the fault; the chip is given up ``misses`` beats after it."""
    found = detection_bounds(Detection(beat, misses), Scale(1 / 100, time), Costs())
    silent = (misses - phase) * beat / time
    assert found.low <= silent * (1 + 1e-9) and silent <= found.high * (1 + 1e-9)
    assert found.mean == pytest.approx((misses - 0.5) * beat / time)


def test_an_ended_agent_is_noticed_at_once() -> None:
    costs = Costs(control_s=0.002)
    for detection in (Detection(0.25, 3, exit=True), Detection(0.25, 3, port=True)):
        assert detection_bounds(detection, SCALE, costs).high == pytest.approx(0.002)


def test_nothing_to_notice_it_by_is_refused() -> None:
    with pytest.raises(ConfigError, match="heartbeat"):
        detection_bounds(Detection(0.0, 3), SCALE, Costs())


def test_a_checkpoint_takes_its_bytes_over_the_front_end_port() -> None:
    real = 100_000_000
    alone = checkpoint_seconds(real, RACK, SCALE)
    assert alone == pytest.approx(wire_bytes(real // 100, 9000) * 8 / 50e6)
    assert checkpoint_seconds(real, RACK, SCALE, copies=4) == pytest.approx(4 * alone)
    assert checkpoint_seconds(real, RACK, Scale(1 / 100, 0.5)) == pytest.approx(alone, rel=1e-3)
    with pytest.raises(ConfigError, match="front-end"):
        checkpoint_seconds(real, plan(RailTopo(servers=2, gpus=1)), SCALE)


def test_the_whole_recovery() -> None:
    costs = Costs(control_s=0.002, settle_s=0.005)
    stages = {"data": 10.0, "warm up": 1.0, "library": 3.4, "checkpoint": 0.2}
    parts = predicted_parts(stages, SCALE, costs, rewire_s=0.03, launch_s=0.3, first_step_s=4.0)
    row = FailoverRow()
    row.predict(detection_bounds(Detection(0.25, 3), SCALE, costs), parts)
    assert [name for name, _ in row.predicted_breakdown] == [
        "detect",
        "decide",
        "rewire",
        "launch",
        "checkpoint",
        "library",
        "data",
        "warm up",
        "first step",
    ]
    assert row.predicted_rewire_s == pytest.approx(0.035)
    assert parts["launch"] == pytest.approx(0.301)
    low, high = row.predicted_outage_low_s or 0.0, row.predicted_outage_high_s or 0.0
    assert row.predicted_outage_s == pytest.approx(sum(seconds for _, seconds in row.predicted_breakdown))
    assert high - low == pytest.approx(0.25 + 0.001)
    assert row.predicted_restart_s == pytest.approx(
        sum(parts[n] for n in ("launch", "checkpoint", "library", "data", "warm up"))
    )
    assert row.predicted_checkpoint_s == 0.2 and row.predicted_first_step_s == 4.0
