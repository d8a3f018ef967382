"""Jobs that share rails, without packets: what is asked for, when each has which servers, and what a fault adds."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.engine.jobs import Job
from controllers.policies.catalog import load_policy
from experiments.faults import Kill
from experiments.settings import validated
from experiments.shared_rails.experiment import SharedRails
from experiments.shared_rails.row import SharedJobRow, carried_nothing
from experiments.shared_rails.settings import SharedRailsSettings, parse_jobs
from measure.metrics.stall import Dark
from measure.model.simulated_control import Costs, SimulatedControl
from railyard.digits import numbers_in, spans
from railyard.loop import Timers
from railyard.timeline import Event
from workloads.rank.executor import RequestCircuits


def shared(jobs: str, **values: Any) -> SharedRails:
    found = SharedRails(validated(SharedRailsSettings, {"jobs": jobs.split(","), **values}))
    found.check()
    return found


def rows(jobs: str, **values: Any) -> list[SharedJobRow]:
    return list(shared(jobs, **values).predict())


@pytest.mark.parametrize(
    ("word", "jobs"),
    [
        ("smoke", [("smoke", 5, 0, "packed")]),
        ("2xsmoke*3@1.5+2:spread", [("smoke", 3, 1.5, "spread"), ("smoke", 3, 3.5, "spread")]),
        ("my job.yaml@2:0+3", [("my job.yaml", 5, 2, "0+3")]),
        ("smoke:/a/mine.py:Mine", [("smoke", 5, 0, "/a/mine.py:Mine")]),
    ],
)
def test_jobs_as_text(word: str, jobs: list[tuple[Any, ...]]) -> None:
    found = parse_jobs(iter([word]), 5)
    assert [(job.workload, job.steps, job.arrival_s, job.placement) for job in found] == jobs


def test_spans_of_numbers() -> None:
    for numbers, text in (([0, 1, 2, 8], "0-2, 8"), ([4], "4"), ([5, 4], "5, 4")):
        assert spans(numbers) == text and numbers_in(text) == numbers


def test_jobs_that_fit_do_not_know_of_each_other_and_others_wait() -> None:
    (alone,) = rows("smoke")
    first, second, third = rows("2xsmoke,smoke@3:spread", servers=8)
    for row in (first, second):
        assert row.predicted_completion_s == pytest.approx(alone.predicted_completion_s, rel=1e-9)
        assert row.predicted_queue_s == 0
    assert (first.servers, second.servers) == ("0-3", "4-7")
    assert third.predicted_start_s == pytest.approx(first.predicted_end_s)
    assert third.predicted_queue_s == pytest.approx(first.predicted_end_s - 3)  # type: ignore[operator]


def test_jobs_on_the_same_servers_take_turns() -> None:
    first, second = rows("smoke:0+1+2+3,smoke:3+2+1+0")
    assert second.predicted_start_s == pytest.approx(first.predicted_end_s)


def test_a_kill_adds_the_outage_and_the_steps_since_the_checkpoint() -> None:
    steps = {}
    for every in (1, 2):
        kept = {"spare_servers": 1, "checkpoint_every": every, "steps": 6}
        whole, killed = (rows("smoke", **kept, **more)[0] for more in ({}, {"kill": "5@3.5"}))
        assert whole.predicted_completion_s is not None and killed.predicted_completion_s is not None
        steps[every] = (killed.predicted_completion_s - whole.predicted_completion_s), whole.predicted_step_time_s
    added, step_s = steps[1]
    assert steps[2][0] - added == pytest.approx(step_s)  # from step 2 again, and not from step 3
    assert added > 0.5 * step_s  # type: ignore[operator]


def test_a_spare_server_takes_over_whole_and_a_second_one_is_missing() -> None:
    experiment = shared("smoke", spare_servers=1)
    setting = experiment.setting(experiment.setting_scale)
    predicted = experiment._forecast(setting, experiment.jobs, [Kill(5, 1.5), Kill(0, 2.5)], ideal=True)
    before, after = predicted.windows  # after the second kill there is none
    assert before.members["job1"] == tuple(range(8))
    assert after.members["job1"] == (0, 1, 2, 3, 8, 9, 6, 7)  # each GPU keeps its rail


class Clock(Timers):
    """The clock of a simulation."""

    def play(self, until: float) -> None:
        while self.next_time <= until:
            self.step()


def test_dark_ports_of_one_job_never_touch_the_other() -> None:
    """On the same switches: the second job's circuits are up after its own delay, while those of the first are dark."""
    experiment, clock, acked = shared("2xsmoke"), Clock(), dict[int, float]()
    setting = experiment.setting(experiment.setting_scale)
    points, notes = experiment.job_points(setting, experiment.jobs, kills=False), list[Event]()
    control = SimulatedControl(
        setting.plan,
        Costs(),
        lambda seconds, callback: clock.at(clock.now + seconds, lambda: callback(clock.now)),
        lambda ack: acked.update({ack.rank // 8: acked.get(ack.rank // 8, clock.now)}),
        notes.append,
    )
    for number, (point, delay_s) in enumerate(zip(points, (5.0, 0.1), strict=True)):
        groups = tuple(point.program_of(range(8 * number, 8 * number + 8)).groups.values())
        control.register(Job(point.name, groups, "on-demand", delay_s), load_policy("opus", setting.plan))
        clock.play(0.0)
        pair = next(group for group in groups if group.dimension == "pp")
        for group in groups:
            for rank in group.members:
                control.check_in(rank, group.name, 0.0)
        for rank in pair.members:
            control.send(rank, RequestCircuits(pair.name, 0))
    clock.play(10.0)
    assert acked == {0: 5.0, 1: 0.1}


def test_circuits_in_vain() -> None:
    def dark(t: float, *ports: int) -> Dark:
        pairs = frozenset({(ports[0], ports[1])})
        return Dark(t, t + 0.1, "rail0", frozenset(ports), frozenset(ports), pairs, "job1/dp", t)

    first, again, last = dark(1.0, 1, 2), dark(2.0, 1, 3), dark(3.0, 1, 2)
    moved = Event(1.5, "agent", "communicate", 1.8, {"group": "job1/dp"})
    darks = [first, again, last]
    assert carried_nothing(darks, [moved]) == [False, True, False]  # the last may be used yet
