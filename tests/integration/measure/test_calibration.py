from __future__ import annotations

import pytest
from tries import Try

from experiments.calibrate.machine import calibrate_machine, ring
from measure.live.calibration import Datapath
from measure.live.machine_benchmark import ring_goodputs
from measure.live.scale_choice import ScaleNeeds, pick_scale
from railyard.errors import MachineError

pytestmark = [pytest.mark.root, pytest.mark.timed]
"""Both measure rates."""


def test_streams_of_a_ring_reach_every_host_and_none_is_faster_than_its_link() -> None:
    with ring(4, 20.0) as lanes:
        goodputs = ring_goodputs(lanes, 20.0, 0.3, 0.5)
    assert len(goodputs) == 4
    assert min(goodputs) > 1
    assert max(goodputs) < 20 * 1.3


@pytest.mark.parametrize("name", ["ovs"])
def test_a_quick_calibration_finds_a_rate_that_picks_a_scale(machine: Try, name: Datapath) -> None:
    said: list[str] = []
    try:
        found = calibrate_machine(quick=True, say=said.append, datapaths=(name,))
    except MachineError as error:
        if "try again when it is idle" in str(error):
            machine.late(str(error))
        raise
    assert set(found.datapaths) == {name} and found.takes() == name
    capacity = found.of(name)
    assert capacity.aggregate_mbps > 10
    assert 1e-6 < capacity.alpha_s < 0.05
    assert len(capacity.transfers) == 4 and all(cost.seconds < 0.1 for cost in capacity.transfers)
    assert 1e-5 < capacity.control.swap_s < 0.1
    assert found.timer_idle.p50_s < 0.05
    assert len(said) >= 4
    assert 0 < pick_scale(ScaleNeeds(32, 400), found.floors(name), capacity).rate < 1
