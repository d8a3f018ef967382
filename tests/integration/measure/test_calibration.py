from __future__ import annotations

import pytest
from tries import Try

from experiments.calibrate.machine import calibrate_machine, ring
from measure.live.calibration import pick_scale
from measure.live.machine_benchmark import ring_goodputs
from railyard.errors import MachineError

pytestmark = [pytest.mark.root, pytest.mark.timed]
"""Both measure rates."""


def test_streams_of_a_ring_reach_every_host_and_none_is_faster_than_its_link() -> None:
    with ring(4, 20.0) as (lanes, datapath):
        goodputs = ring_goodputs(lanes, 20.0, 0.3, 0.5)
    assert datapath in ("system", "netdev")
    assert len(goodputs) == 4
    assert min(goodputs) > 1
    assert max(goodputs) < 20 * 1.3


def test_a_quick_calibration_finds_a_rate_that_picks_a_scale(machine: Try) -> None:
    said: list[str] = []
    try:
        found = calibrate_machine(quick=True, say=said.append)
    except MachineError as error:
        if "try again when it is idle" in str(error):
            machine.late(str(error))
        raise
    assert found.aggregate_mbps > 10
    assert 1e-6 < found.alpha_s < 0.05
    assert found.timer_idle.p50_s < 0.05
    assert len(said) >= 4
    assert 0 < pick_scale(32, 400, 0, calibration=found).rate < 1
