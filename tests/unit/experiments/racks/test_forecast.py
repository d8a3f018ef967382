"""What the model says of racks before and after a chip's death: the policies' own decisions, without a packet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from experiments.failover.run import predicted_rows, specs_of
from experiments.failover.settings import FABRICS, FabricName, FailoverExperiment
from experiments.racks.forecast import JobWindow, combined, predict_outage, windows
from experiments.settings import validated
from railyard.scale import Scale
from workloads.program import Collective
from workloads.training.training_job import training_job

SCALE = Scale(1 / 800)


def seen_on(name: FabricName, dying: Sequence[int], **values: Any) -> list[JobWindow]:
    made = validated(FailoverExperiment, values)
    setting = made.setting(name)
    plan = made.plan(setting, SCALE)
    return windows(specs_of(made, setting, plan, SCALE), plan, SCALE, dying)


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


def test_a_recovery_fetches_the_checkpoint_once_for_each_newcomer_of_a_host() -> None:
    made = validated(FailoverExperiment, {"stages": {"data": 10.0}})
    found = {}
    for name in FABRICS:
        setting = made.setting(name)
        plan = made.plan(setting, SCALE)
        specs = specs_of(made, setting, plan, SCALE)
        before, after = windows(specs, plan, SCALE, [1])
        found[name] = predict_outage(specs[0], before, after, plan, SCALE, has_checkpoint=True)
        first_life = predict_outage(specs[0], before, after, plan, SCALE, has_checkpoint=False)
        assert first_life.checkpoint_s is None and dict(first_life.stages) == {"data": 10.0}
    assert found["photonic"].checkpoint_s == pytest.approx(39.55 / 10, rel=0.02)  # its bytes over a port of 10 Gb/s
    # four newcomers, three hosts that live and have it
    assert found["migrate"].checkpoint_s == pytest.approx(2 * 39.55 / 10, rel=0.02)
    assert found["migrate"].rewire_s - found["e1"].rewire_s == pytest.approx(10.0)
    assert found["photonic"].rewire_s - found["e1"].rewire_s == pytest.approx(0.010)


def test_a_row_for_every_fabric_and_every_kill_that_strikes_a_job() -> None:
    rows = predicted_rows(validated(FailoverExperiment, {}))
    assert [(row["fabric"], row["tenant"], row["event"]) for row in rows] == [(f, "A", "predicted") for f in FABRICS]
    ratio = {row["fabric"]: row["predicted_after_to_photonic"] for row in rows}
    assert ratio["photonic"] == 1.0 and ratio["e1"] > ratio["e2"] > 1.6
    assert {row["fabric"]: (row["reserve_chips"], row["chips"]) for row in rows} == {
        "photonic": (4, 20),
        "e1": (4, 16),
        "e2": (4, 16),
        "migrate": (16, 32),
    }
    two = predicted_rows(validated(FailoverExperiment, {"fabrics": "photonic", "kill": "19@1,1@4.5,5@+2"}))
    assert [row["tenant"] for row in two] == ["A", "B"]  # that of a spare strikes nobody


def test_random_kills_are_foreseen_by_the_first_of_them() -> None:
    (row,) = predicted_rows(validated(FailoverExperiment, {"fabrics": "photonic", "random_kills": 5, "steps": 3}))
    assert row["predicted_step_time_after_s"] == pytest.approx(step_times("photonic")[0][0], rel=0.01)


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
