from __future__ import annotations

import pytest
from tries import Try

from commands.bench.bed import Bed
from commands.bench.fabric import ring
from commands.calibrate import calibrate_machine, control_cost, transfer_costs, transfer_rail
from measure.live.calibration import DATAPATHS, Datapath
from measure.live.machine_benchmark import ring_goodputs
from measure.live.scale_choice import ScaleNeeds, pick_scale
from railyard.errors import MachineError
from topos.kernel.emulation import Emulation
from workloads.agent.launcher import AgentLauncher


@pytest.mark.root
@pytest.mark.timed
def test_streams_of_a_ring_reach_every_host_and_none_is_faster_than_its_link() -> None:
    with ring(Bed("ovs"), 4, 20.0) as lanes:
        goodputs = ring_goodputs(lanes, 20.0, 0.3, 0.5)
    assert len(goodputs) == 4
    assert min(goodputs) > 1
    assert max(goodputs) < 20 * 1.3


@pytest.mark.root
@pytest.mark.beside
@pytest.mark.parametrize("name", DATAPATHS)
def test_costs_are_measured_over_every_datapath(name: Datapath) -> None:
    found = control_cost(Bed(name), 5)
    assert 1e-5 < found.swap_s <= found.swap_p99_s < 5
    assert 0 < found.shortest_dark_s < 5
    with AgentLauncher.start() as launcher, Emulation(transfer_rail(16, 320.0), datapath=name, openflow=None) as net:
        assert net.datapath == name
        costs = transfer_costs(net, launcher, 320.0, quick=True)
    assert [(cost.ranks, cost.aggregate_mbps) for cost in costs] == [(2, 320.0), (16, 320.0)]
    assert all(cost.seconds < 1 for cost in costs)


@pytest.mark.root
@pytest.mark.timed
def test_a_quick_calibration_finds_a_rate_that_picks_a_scale(machine: Try, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commands.calibrate._CEILING_MBPS", 3200.0)  # the search is one of unit tests
    said: list[str] = []
    try:
        found = calibrate_machine(quick=True, say=said.append, datapaths=("bpf",))
    except MachineError as error:
        if "try again when it is idle" in str(error):
            machine.late(str(error))
        raise
    assert set(found.datapaths) == {"bpf"} and found.takes() == "bpf"
    capacity = found.of()
    assert capacity.aggregate_mbps > 10
    assert 1e-6 < capacity.alpha_s < 0.05
    assert len(capacity.transfers) == 4
    assert found.timer_idle.p50_s < 0.05
    assert len(said) >= 4
    assert 0 < pick_scale(ScaleNeeds(32, 400), found.floors(), capacity).rate < 1
