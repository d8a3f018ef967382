"""Predictions on racks: jobs before and after failures, and each part of a recovery."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.engine.jobs import Detection
from experiments.racks.failover.experiment import FABRICS, FabricName, Failover, FailoverSettings
from experiments.racks.forecast import (
    JobWindow,
    combined,
    detection_bounds,
    predict_recovery,
    predicted_parts,
    windows,
)
from experiments.racks.row import FailoverRow
from experiments.settings import validated
from measure.model.simulated_control import Costs
from measure.model.wires import checkpoint_seconds, wire_bytes
from railyard.errors import ConfigError
from railyard.scale import Scale
from topos.describe import plan
from topos.racks import RackTopo
from topos.rails import RailTopo
from workloads.program import Collective
from workloads.training.step import training_job

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


def seen_on(name: FabricName, dying: Sequence[int], **values: Any) -> list[JobWindow]:
    made = validated(FailoverSettings, values)
    setting = made.setting(name)
    return windows(setting, made.jobs(setting), [(rank,) for rank in dying])


def predicted_rows(**values: Any) -> list[FailoverRow]:
    return Failover(validated(FailoverSettings, values)).predict()


@cache
def step_times(name: FabricName) -> tuple[tuple[float, float], tuple[float, float]]:
    """(before, after) of the job and of its neighbour when chip 1 dies."""
    before, after = seen_on(name, [1])
    a, b = ((before.jobs[job].step_time_s, after.jobs[job].step_time_s) for job in ("A", "B"))
    return a, b


# ---- step times --------------------------------------------------------------------------------------------------


def test_on_photonics_the_job_runs_at_its_rate_of_before_and_nobody_else_notices() -> None:
    job, neighbour = step_times("photonic")
    assert job[1] / job[0] == pytest.approx(1.0, abs=0.005)
    assert neighbour[1] == pytest.approx(neighbour[0], rel=0.005)


def test_one_of_two_dimensions_costs_e2_seven_tenths_before_and_after() -> None:
    photonic, _ = step_times("photonic")
    job, neighbour = step_times("e2")
    # two of four ports at work: 0.6 s of compute and twice the communication, over one with all four
    assert [t / photonic[0] for t in job] == pytest.approx([1.71, 1.71], abs=0.03)
    assert neighbour[1] == pytest.approx(neighbour[0], rel=0.01)


def test_forwarding_over_others_links_costs_e1_more_and_slows_the_neighbour() -> None:
    photonic, _ = step_times("photonic")
    job, neighbour = step_times("e1")
    assert 1.6 <= job[1] / photonic[0] <= 2.1  # the papers: 1.6 to 2
    assert job[1] > 1.05 * job[0]
    assert neighbour[1] > 1.05 * neighbour[0]


def test_contention_is_between_the_rings_of_two_jobs_on_one_link() -> None:
    assert [window.contended for window in seen_on("e1", [1])] == [False, True]
    for name in ("photonic", "e2", "migrate"):
        assert not any(window.contended for window in seen_on(name, [1]))
    assert not any(window.contended for window in seen_on("e1", [1], neighbour=None))


def test_both_rings_of_a_dead_chip_are_steered_to_the_spare() -> None:
    """Two of the four ports for each of its rings, before the death and after it."""
    made = validated(FailoverSettings, {"policy": "morphlux", "job": {"tensor_parallel": 2}, "neighbour": None})
    setting = made.setting("photonic")
    (job,) = made.jobs(setting)
    before, after = windows(setting, [job], [(1,)])
    assert after.members["A"] != before.members["A"]
    for window in (before, after):
        groups = tuple(job.program_of(window.members["A"]).groups.values())
        assert set(setting.lanes(groups).values()) == {2}
    assert after.jobs["A"].step_time_s == pytest.approx(before.jobs["A"].step_time_s, rel=1e-3)


# ---- who is in a job after a death -------------------------------------------------------------------------------


def test_two_deaths_in_a_row() -> None:
    members = [window.members["A"] for window in seen_on("photonic", [1, 2])]
    assert members[1] == tuple(16 if rank == 1 else rank for rank in members[0])
    assert members[2] == tuple(17 if rank == 2 else rank for rank in members[1])
    assert [window.dead for window in seen_on("photonic", [1, 2])] == [frozenset(), {1}, {1, 2}]


def test_the_spare_that_stands_in_may_die_too_and_a_dead_spare_is_passed_over() -> None:
    first, _, _, last = seen_on("photonic", [1, 16, 17])
    assert last.members["A"] == tuple(18 if rank == 1 else rank for rank in first.members["A"])
    idle, after = seen_on("photonic", [16, 1])[1:]
    assert idle.members == first.members and 17 in after.members["A"] and 16 not in after.members["A"]


def test_a_neighbour_that_dies_gets_the_spare() -> None:
    after = seen_on("photonic", [5])[-1]
    assert sorted(after.members["B"]) == [4, 6, 7, 16] and sorted(after.members["A"]) == [0, 1, 2, 3]


def test_migration_moves_everybody_to_the_other_rack() -> None:
    before, after = seen_on("migrate", [1])
    assert set(after.members["A"]) <= set(range(16, 32)) and after.members["B"] == before.members["B"]
    assert after.jobs["A"].step_time_s == pytest.approx(before.jobs["A"].step_time_s, rel=0.01)


def test_where_nobody_is_left_there_are_fewer_windows() -> None:
    assert len(seen_on("photonic", [16, 17, 18, 19, 1, 2])) == 5
    assert len(seen_on("migrate", [1, 17])) == 2  # there is no third rack


# ---- recoveries --------------------------------------------------------------------------------------------------


def recovery_on(name: FabricName, *, stored: bool) -> FailoverRow:
    made = validated(FailoverSettings, {"stages": {"data": 10.0}})
    setting = made.setting(name)
    job, other = made.jobs(setting)
    before, after = windows(setting, [job, other], [(1,)])
    row = FailoverRow()
    predict_recovery(row, setting, job, before, after, stored=stored)
    return row


def test_a_recovery_fetches_the_checkpoint_once_for_each_newcomer_of_a_host() -> None:
    found = {name: recovery_on(name, stored=True) for name in FABRICS}
    rewire_s = {name: row.predicted_rewire_s or 0.0 for name, row in found.items()}
    for name in FABRICS:
        first_life = recovery_on(name, stored=False)
        assert first_life.predicted_checkpoint_s is None
        assert [part for part, _ in first_life.predicted_breakdown][4:-1] == ["data"]
        assert dict(first_life.predicted_breakdown)["data"] == 10.0
    # its bytes over a port of 10 Gb/s
    assert found["photonic"].predicted_checkpoint_s == pytest.approx(39.55 / 10, rel=0.02)
    # four newcomers, three hosts that live and have it
    assert found["migrate"].predicted_checkpoint_s == pytest.approx(2 * 39.55 / 10, rel=0.02)
    assert rewire_s["migrate"] - rewire_s["e1"] == pytest.approx(10.0)
    assert rewire_s["photonic"] - rewire_s["e1"] == pytest.approx(0.010)


def test_a_given_checkpoint_goes_before_its_bytes() -> None:
    made = validated(FailoverSettings, {"stages": {"checkpoint": 2.0}, "neighbour": None})
    setting = made.setting("photonic")
    (job,) = made.jobs(setting)
    row = FailoverRow()
    predict_recovery(row, setting, job, *windows(setting, [job], [(1,)]), stored=True)
    assert row.predicted_checkpoint_s == 2.0


def test_a_row_for_every_fabric_and_every_kill_that_strikes_a_job() -> None:
    rows = predicted_rows()
    assert [(row.fabric, row.tenant, row.event) for row in rows] == [(f, "A", "predicted") for f in FABRICS]
    ratio = {row.fabric: row.predicted_after_to_photonic or 0.0 for row in rows}
    assert ratio["photonic"] == 1.0 and ratio["e1"] > ratio["e2"] > 1.6
    assert all(row.faithful is None and row.outage_s is None for row in rows)
    assert {row.fabric: (row.reserve_chips, row.chips) for row in rows} == {
        "photonic": (4, 20),
        "fixed": (4, 20),
        "e1": (4, 16),
        "e2": (4, 16),
        "migrate": (16, 32),
    }
    two = predicted_rows(fabrics="photonic", kill="19@1,1@4.5,5@+2")
    assert [row.tenant for row in two] == ["A", "B"]  # that of a spare strikes nobody
    (row,) = predicted_rows(fabrics="photonic", kill="server0@4.5", slice="2x2@1,0", neighbour=None)
    assert row.tenant == "A" and row.predicted_outage_s  # of that server the second and the fourth chip are the job's


def test_random_kills_are_foreseen_by_the_first_of_them() -> None:
    (row,) = predicted_rows(fabrics="photonic", random_kills=5, steps=3)
    assert row.predicted_step_time_after_s == pytest.approx(step_times("photonic")[0][0], rel=0.01)


# ---- programs side by side ---------------------------------------------------------------------------------------


def test_jobs_of_different_sizes_keep_schedules_of_one_name_apart() -> None:
    two = training_job((0, 1), 1000, 0.1, 2, 8, group="A")
    four = training_job((2, 3, 4, 5), 2000, 0.2, 2, 8, group="B")
    (name,) = two.schedules
    assert list(four.schedules) == [name]
    both = combined([two, four])
    assert both.ranks == 8 and set(both.groups) == {"A", "B"}
    sizes = []
    for rank in (0, 2):
        (collective,) = (op for op in both.operations[rank] if isinstance(op, Collective))
        sizes.append(both.schedules[collective.algorithm].n)
    assert sizes == [2, 4]
    assert both.operations[6] == both.operations[7] == ()
    assert combined([two]).operations[0][0] == two.operations[0][0]


# ---- where spares stand -------------------------------------------------------------------------------------------


def test_places_of_spares_are_told_apart_by_hops_and_fibres() -> None:
    """A spare beside the job is nearer; on photonics the step does not feel it, only fibres do."""
    rows = {row.fabric: row for row in predicted_rows(fabrics=["photonic", "e1"], spares=["corner", "nearest"])}
    assert rows["e1 nearest"].ring_hops == 12 and rows["e1 corner"].ring_hops == 16  # 8 before the failure
    assert rows["e1 nearest"].shared_links == 0 and (rows["e1 corner"].shared_links or 0) > 0
    # two circuits to each of two neighbours: over one pair of servers, or over two of them one after the other
    assert (rows["photonic nearest"].ring_hops, rows["photonic corner"].ring_hops) == (4, 8)
    after = {name: row.predicted_step_time_after_s for name, row in rows.items()}
    assert after["photonic corner"] == pytest.approx(after["photonic nearest"], rel=1e-6)
    assert rows["e1 corner"].reserve_chips == 4


def test_one_spare_in_each_free_server() -> None:
    settings = validated(FailoverSettings, {"neighbour": None})
    rack = settings.setting("e1", "spread").plan.rack
    assert rack is not None and rack.spares == (4, 8, 12)
