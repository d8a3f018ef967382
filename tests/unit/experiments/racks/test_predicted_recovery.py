from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.engine.jobs import Detection
from experiments.racks.predicted_recovery import Restart, checkpoint_seconds, detection_bounds, predict_recovery
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
    found = detection_bounds(Detection(beat, misses), Scale(1 / 100, time))
    silent = (misses - phase) * beat / time
    assert found.low <= silent * (1 + 1e-9) and silent <= found.high * (1 + 1e-9)
    assert found.mean == pytest.approx((misses - 0.5) * beat / time)


def test_an_ended_agent_is_noticed_at_once() -> None:
    costs = Costs(control_s=0.002)
    for detection in (Detection(0.25, 3, exit=True), Detection(0.25, 3, port=True)):
        assert detection_bounds(detection, SCALE, costs).high == pytest.approx(0.002)


def test_nothing_to_notice_it_by_is_refused() -> None:
    with pytest.raises(ConfigError, match="heartbeat"):
        detection_bounds(Detection(0.0, 3), SCALE)


def test_a_checkpoint_takes_its_bytes_over_the_front_end_port() -> None:
    real = 100_000_000
    alone = checkpoint_seconds(real, RACK, SCALE)
    assert alone == pytest.approx(wire_bytes(real // 100, 9000) * 8 / 50e6)
    assert checkpoint_seconds(real, RACK, SCALE, copies=4) == pytest.approx(4 * alone)
    assert checkpoint_seconds(real, RACK, Scale(1 / 100, 0.5)) == pytest.approx(alone, rel=1e-3)
    with pytest.raises(ConfigError, match="front-end"):
        checkpoint_seconds(real, plan(RailTopo(servers=2, gpus=1)), SCALE)


def test_the_whole_recovery() -> None:
    restart = Restart(
        reconfiguration_delay_s=0.01,
        link_recovery_s=0.02,
        checkpoint_bytes=100_000_000,
        stages={"data": 10.0, "warm up": 1.0, "library": 3.4},
        launch_s=0.3,
        first_step_s=4.0,
        step_time_before_s=3.0,
        step_time_after_s=3.1,
    )
    found = predict_recovery(restart, Detection(0.25, 3), RACK, SCALE, Costs(control_s=0.002, settle_s=0.005))
    parts = dict(found.breakdown)
    assert list(parts) == [
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
    assert parts["rewire"] == pytest.approx(0.035)
    assert parts["launch"] == pytest.approx(0.301)
    assert found.outage.mean == pytest.approx(sum(parts.values()))
    assert found.outage.high - found.outage.low == pytest.approx(0.25 + 0.001)
    assert found.restart_s == pytest.approx(
        sum(parts[n] for n in ("launch", "checkpoint", "library", "data", "warm up"))
    )
    assert (found.step_time_before_s, found.step_time_after_s) == (3.0, 3.1)


def test_a_given_checkpoint_goes_before_its_bytes() -> None:
    given_ = predict_recovery(
        Restart(checkpoint_bytes=1e9, stages={"checkpoint": 2.0}), Detection(0.25, 3), RACK, SCALE
    )
    assert given_.checkpoint_s == 2.0
    assert predict_recovery(Restart(), Detection(0.25, 3), RACK, SCALE).checkpoint_s is None
