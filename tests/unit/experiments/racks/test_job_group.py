"""Several jobs beside each other: kills at their moments, a controller that dies, and bounds on everything."""

from __future__ import annotations

from typing import Any

import pytest
from fake_rack import READY_S, STEP_S, TICK_S, Rack

from experiments.racks.run import STEPS_AFTER, JobGroup
from experiments.racks.setting import parse_kills
from experiments.racks.supervisor import GO_S, JobSupervisor
from railyard.errors import AgentError, ControlError
from workloads.agent.launcher import Failure

BOUND_S = 120.0


class Play:
    """A crew on a pretended rack, and what a person heard."""

    def __init__(self, rack: Rack, kills: str = "", jobs: int = 2, **more: Any) -> None:
        self.heard: list[str] = []
        self.jobs = [JobSupervisor(rack.context, spec) for spec in rack.specs()[:jobs]]
        self.job_group = JobGroup(rack.context, self.jobs, parse_kills(kills), self.heard.append, **more)

    def run(self, timeout_s: float = BOUND_S) -> list[str]:
        self.job_group.run(timeout_s)
        return [job.state for job in self.jobs]


def faults(rack: Rack) -> list[tuple[int, float]]:
    return [(e["rank"], e.t) for e in rack.context.notes if e.kind == "fault"]


def test_the_first_job_decides_when_it_is_over_and_the_neighbour_is_ended(rack: Rack) -> None:
    play = Play(rack)
    assert play.run() == ["done", "done"]
    assert rack.log.index("register B") < rack.log.index("go A")
    assert rack.teams[0].steps == dict.fromkeys(range(4), 6) and min(rack.teams[1].steps.values()) >= 5
    assert all(channel.closed for channel in rack.channels) and all(team.stopped for team in rack.teams)
    assert rack.log.count("finish A") == rack.log.count("finish B") == 1


@pytest.mark.parametrize(("kill", "steps"), [("1@0.5", 0.5), ("1@2.5", 2.5), ("2@4", 4.0), ("5@1.5", 1.5)])
def test_a_chip_dies_at_its_moment(rack: Rack, kill: str, steps: float) -> None:
    Play(rack, kill).run()
    ((rank, t),) = faults(rack)
    assert f"{rank}@" in kill
    began = rack.teams[0].launched + READY_S + GO_S
    assert began + steps * STEP_S <= t <= began + steps * STEP_S + 4 * TICK_S


def test_a_job_that_lost_a_chip_goes_on_and_is_told_in_words(rack: Rack) -> None:
    play = Play(rack, "1@3.5")
    assert play.run() == ["done", "done"]
    job, neighbour = play.jobs
    assert (job.incarnation, job.resumed, job.acknowledged[-1]) == (1, [(2, 1)], (6, 1006))
    assert neighbour.incarnation == 0
    assert any("rank 1 is killed, a member of job A, 3 steps done" in text for text in play.heard)
    assert any("rank 16 replaces 1; incarnation 1 begins at step 2" in text for text in play.heard)


def test_the_second_kill_counts_from_the_first_one(rack: Rack) -> None:
    play = Play(rack, "1@3.5,2@+0.25")
    assert play.run() == ["done", "done"]
    (_, first), (_, second) = faults(rack)
    assert second - first == pytest.approx(0.25, abs=2 * TICK_S)
    assert set(play.jobs[0].members) == {0, 16, 17, 3}


def test_the_one_who_stands_in_may_die_too(rack: Rack) -> None:
    play = Play(rack, "1@2.5,16@4.5")
    assert play.run() == ["done", "done"]
    assert [rank for rank, _ in faults(rack)] == [1, 16]


def test_a_kill_that_never_came_is_said(rack: Rack) -> None:
    play = Play(rack, "1@3.5,5@+60")
    assert play.run() == ["done", "done"]
    assert "the kill 5@+60 was not executed: the run ended before" in play.heard


def test_a_spare_dies_by_the_steps_of_the_first_job(rack: Rack) -> None:
    play = Play(rack, "16@1.5,1@3.5")
    play.run()
    assert any("rank 16 is killed, a spare" in text for text in play.heard)
    assert set(play.jobs[0].members) == {0, 17, 2, 3}


def test_a_neighbour_that_was_struck_last_shows_some_steps_before_the_end(rack: Rack) -> None:
    play = Play(rack, "5@4.5")
    assert play.run() == ["done", "done"]
    neighbour = play.jobs[1]
    assert neighbour.incarnation == 1 and neighbour.steps_done - neighbour.first_step >= STEPS_AFTER


def test_a_neighbour_that_starts_late_is_waited_for(rack: Rack) -> None:
    play = Play(rack)
    rack.slow.add(5)
    rack.due.append((rack.now + 15.0, lambda: rack.slow.discard(5)))
    assert play.run() == ["done", "done"] and rack.now > 115.0
    assert "go B" in rack.log


def test_the_neighbour_goes_on_where_the_job_is_stranded(rack: Rack) -> None:
    rack.spares.clear()
    play = Play(rack, "1@2.5")
    assert play.run() == ["stranded", "done"]
    assert any(text.startswith("job A stops: rank 1 has failed") for text in play.heard)
    assert play.jobs[1].incarnation == 0


# ---- the controller ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after_s", [0.2, 0.7, 2.0])
def test_the_controller_dies_in_mid_recovery(rack: Rack, after_s: float) -> None:
    play = Play(rack, "1@3.5", controller_dies_after_s=after_s)
    assert play.run() == ["done", "done"]
    assert set(play.jobs[0].members) == {0, 16, 2, 3}
    assert "the controller is killed" in play.heard
    assert any("was restarted" in text for text in play.heard)
    assert play.jobs[0].acknowledged[-1] == (6, 1006) and play.jobs[1].incarnation == 1


def test_all_jobs_are_known_before_a_new_controller_gives_spares_away(rack: Rack) -> None:
    play = Play(rack, "1@1.5,5@+1,2@4.5", controller_dies_after_s=3.0)
    assert play.run() == ["done", "done"]
    again = rack.log[rack.log.index("restart the controller") :]
    assert max(again.index("register A"), again.index("register B")) < again.index("failed A 1")
    a, b = (set(job.members) for job in play.jobs)
    assert not a & b and {1, 2}.isdisjoint(a) and 5 not in b


def test_a_stranded_job_stays_so_when_the_controller_is_started_again(rack: Rack) -> None:
    rack.spares.clear()
    play = Play(rack, "5@1.5", controller_dies_after_s=2.0)
    assert play.run() == ["done", "stranded"]
    again = rack.log[rack.log.index("restart the controller") :]
    assert "register A" in again and "register B" not in again and "finish B" not in again


def test_agents_that_are_heard_before_the_controllers_end_are_no_fault(rack: Rack) -> None:
    play = Play(rack)

    def end() -> None:
        rack.controller.gone = True  # the supervisors' sockets are still silent
        rack.teams[0].failures.append(Failure(0, "the controller closed the job channel"))

    rack.due.append((rack.now + 2.0, end))
    assert play.run() == ["done", "done"]
    assert any("was restarted" in text for text in play.heard)


def test_what_a_controller_that_lives_refuses_ends_the_run(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(rack, "1@1.5")
    call = rack.controller.call

    def refuse(op: str, **fields: Any) -> dict[str, Any]:
        if op == "restart":
            raise ControlError("no more lives")
        return call(op, **fields)

    monkeypatch.setattr(rack.controller, "call", refuse)
    with pytest.raises(ControlError, match="no more lives"):
        play.run()
    assert [job.state for job in play.jobs] == ["done", "done"] and all(team.stopped for team in rack.teams)


# ---- bounds ------------------------------------------------------------------------------------------------------


def test_a_run_that_takes_too_long_names_the_job_and_stops_everybody(rack: Rack) -> None:
    play = Play(rack)
    with pytest.raises(AgentError, match="job A was not over within 3 s: running in incarnation 0, 2 of 6 steps done"):
        play.run(3.0)
    assert all(team.stopped for team in rack.teams) and all(channel.closed for channel in rack.channels)


def test_a_death_that_nobody_notices_has_a_bound(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(rack, "1@1.5", jobs=1)
    monkeypatch.setattr(rack.controller, "fail", lambda rank: None)
    with pytest.raises(AgentError, match="job A was not over within 30 s: running in incarnation 0, 1 of 6 steps done"):
        play.run(30.0)


def test_the_end_of_the_nursery_is_the_sentence_of_the_run(rack: Rack) -> None:
    play = Play(rack)

    def end() -> None:
        rack.nursery_gone = True
        raise AgentError("the process that starts the agents is gone")

    rack.due.append((rack.now + 2.0, end))
    with pytest.raises(AgentError, match="the process that starts the agents is gone"):
        play.run()
    assert [job.state for job in play.jobs] == ["done", "done"] and all(channel.closed for channel in rack.channels)
