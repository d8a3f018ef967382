"""Jobs of a point on pretended agents: how they start, resume and end, their faults, and bounds of time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fake_rack import READY_S, STEP_S, TICK_S, Channel, Rack

from experiments.faults import Faults, parse_kills
from experiments.job_group import STEPS_AFTER, JobGroup
from experiments.job_point import JobPoint
from experiments.job_supervisor import GO_S, LAUNCH_S, JobSupervisor
from experiments.timetable import parse
from railyard.errors import AgentError, ControlError
from railyard.point_folder import NOTES
from railyard.timeline import read_events
from workloads.agent.launcher import Failure


def running(rack: Rack, **changes: object) -> JobSupervisor:
    """Job A on ranks 0 to 3 in its first life, under way."""
    job = rack.job(**changes)
    rack.team.get_ready()
    job.poll(rack.now, heard=False)
    assert job.state == "running"
    return job


def lose(rack: Rack, job: JobSupervisor, rank: int) -> None:
    """A member dies, the controller says who stands in or that nobody does."""
    rack.context.kill([rank], job.name, job.team)
    rack.controller.fail(rank)
    job.handle_messages()


def members_of(job: JobSupervisor) -> set[int]:
    return set(job.members)


# ---- start -------------------------------------------------------------------------------------------------------


def test_everybody_knows_the_job_and_has_a_disk_of_his_own(rack: Rack) -> None:
    job = rack.job(stages=(("data", 3.0),))
    configs = rack.team.configs
    assert set(configs) == members_of(job) == {0, 1, 2, 3}
    incarnations = [rack.team.incarnation(rank) for rank in configs]
    assert len({incarnation.store for incarnation in incarnations}) == 4
    assert all(
        incarnation.first_step == 0 and incarnation.copy_from is None and not incarnation.copy_to
        for incarnation in incarnations
    )
    assert all(
        incarnation.heartbeat_s == 0.25 and incarnation.given == (("data", 3.0),) for incarnation in incarnations
    )


def test_an_agent_that_was_never_forked_is_reported_once(rack: Rack) -> None:
    job = rack.job()
    rack.context.dead.add(2)  # unknown to the controller: nobody watched it yet
    rack.team.pids.update({0: 1, 1: 2, 3: 4})
    rack.now += LAUNCH_S
    job.poll(rack.now, heard=False)
    assert "failed A 2" not in rack.log
    rack.now += 0.01
    job.poll(rack.now, heard=False)
    job.poll(rack.now, heard=False)
    assert rack.log.count("failed A 2") == 1
    job.handle_messages()
    assert members_of(job) == {0, 1, 3, 16} and job.incarnation == 1


def test_an_agent_that_never_gets_ready_ends_the_run(rack: Rack) -> None:
    job = rack.job(stages=(("data", 10.0),))
    rack.team.pids.update(dict.fromkeys(range(4), 1))
    rack.team.ready.update({0, 2, 3})
    rack.now += 39.0  # the stage, and more
    job.poll(rack.now, heard=False)
    rack.now += 2.0
    with pytest.raises(AgentError, match="rank 1 of job A did not get ready in incarnation 0"):
        job.poll(rack.now, heard=False)


# ---- checkpoints -------------------------------------------------------------------------------------------------


def test_a_checkpoint_counts_when_all_members_have_the_same(rack: Rack) -> None:
    job = running(rack)
    rack.team.store(2, [0, 1, 2])
    job.poll(rack.now, heard=False)
    assert job.acknowledged == []
    rack.team.store(2, [3], checksum=7)  # another one than theirs
    job.poll(rack.now, heard=False)
    assert job.acknowledged == []
    rack.team.store(2, [3])
    rack.team.store(4)
    job.poll(rack.now, heard=False)
    job.poll(rack.now, heard=False)
    assert job.acknowledged == [(2, 1002), (4, 1004)]


def test_a_checkpoint_whose_news_come_with_the_end_of_the_life_counts_too(rack: Rack) -> None:
    job = running(rack)
    rack.team.store(2)
    lose(rack, job, 1)
    assert job.acknowledged == [(2, 1002)] and job.first_step == 2


# ---- lives -------------------------------------------------------------------------------------------------------


def test_the_newcomer_fetches_the_last_acknowledged_checkpoint_from_a_host_that_lives(rack: Rack) -> None:
    job = running(rack)
    before = job.members
    rack.team.steps = dict.fromkeys(range(4), 5)
    rack.team.store(2)
    rack.team.store(4, [0, 1, 2])
    lose(rack, job, 0)
    assert (job.incarnation, job.first_step, job.state) == (1, 2, "starting")
    assert job.resumed == [(2, 3)]  # five were done, and are done again from the third on
    assert job.members == tuple(16 if rank == 0 else rank for rank in before)
    assert (
        set(rack.team.configs) == members_of(job) and rack.team.configs[16].program.groups["A"].members == job.members
    )
    source = rack.team.incarnation(16).copy_from
    assert source in {1, 2, 3} and rack.team.incarnation(source).copy_to == (16,)
    assert [rank for rank in (1, 2, 3) if rack.team.incarnation(rank).copy_from is not None] == []
    assert rack.teams[0].stopped and rack.log.index("stop A") < rack.log.index("restart A")


def test_without_a_checkpoint_it_begins_again(rack: Rack) -> None:
    job = running(rack)
    rack.team.steps = dict.fromkeys(range(4), 1)
    lose(rack, job, 1)
    assert (job.first_step, job.resumed) == (0, [(0, 1)])
    assert rack.team.incarnation(16).copy_from is None


def test_a_second_change_while_it_starts(rack: Rack) -> None:
    job = running(rack)
    rack.team.steps = dict.fromkeys(range(4), 3)
    rack.team.store(2)
    lose(rack, job, 1)
    assert job.state == "starting"
    lose(rack, job, 16)
    assert (job.incarnation, job.first_step, job.resumed) == (2, 2, [(2, 1), (2, 0)])
    assert members_of(job) == {0, 17, 2, 3} and rack.teams[1].stopped
    assert rack.team.incarnation(17).copy_from in {0, 2, 3}


def test_who_has_loaded_the_checkpoint_can_pass_it_on(rack: Rack) -> None:
    job = running(rack)
    rack.team.store(2)
    lose(rack, job, 0)
    rack.team.get_ready()
    job.poll(rack.now, heard=False)
    for rank in (1, 2, 3):  # all who stored it are gone before there is another one
        lose(rack, job, rank)
        if rank != 3:
            rack.team.get_ready()
            job.poll(rack.now, heard=False)
    assert members_of(job) == {16, 17, 18, 19}
    assert rack.team.incarnation(19).copy_from in {16, 17, 18}


def test_where_the_last_holder_is_dead_the_run_ends_in_one_sentence(rack: Rack) -> None:
    job = running(rack)
    rack.team.store(2)
    rack.context.dead.update({0, 1, 2, 3})
    rack.controller.fail(0)
    with pytest.raises(AgentError, match="no host that holds the checkpoint of job A is left"):
        job.handle_messages()


def test_old_hosts_that_only_serve_a_checkpoint_hold_no_step_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack = Rack(tmp_path / "moved", "migrate")  # everybody moves
    monkeypatch.setattr("experiments.job_supervisor.JobChannel", rack.connect)
    job = running(rack)
    rack.team.steps = dict.fromkeys(range(4), 3)
    rack.team.store(2)
    job.poll(rack.now, heard=False)
    lose(rack, job, 1)
    team, servers = rack.team, set(rack.team.configs) - set(job.members)
    assert servers and servers <= {0, 2, 3} and min(job.members) >= 16
    assert all(team.incarnation(rank).heartbeat_s == 0 and team.incarnation(rank).copy_to for rank in servers)
    assert all(team.incarnation(rank).copy_from in servers for rank in job.members)
    team.get_ready()
    job.poll(rack.now, heard=False)
    team.steps.update(dict.fromkeys(job.members, 5))
    assert job.steps_done == 5


# ---- how it ends -------------------------------------------------------------------------------------------------


def test_nobody_stands_in(rack: Rack, tmp_path: Path) -> None:
    job = running(rack)
    rack.kill_spares()
    rack.team.store(2)
    disk = Path(rack.context.disk(3))
    disk.mkdir(parents=True)
    (disk / "checkpoint-00000002").write_text("state")
    lose(rack, job, 0)
    for rank in (1, 2):
        rack.context.dead.add(rank)
    assert job.state == "stranded" and job.over and "cannot be replaced" in job.reason
    assert rack.team.stopped and len(rack.teams) == 1
    (tmp_path / "kept").mkdir()
    link = tmp_path / "kept" / "A-checkpoint-00000002"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="A-checkpoint-00000002"):  # not followed by root
        job.keep_checkpoint(tmp_path / "kept")
    link.unlink()
    kept = job.keep_checkpoint(tmp_path / "kept")
    assert kept == tmp_path / "kept" / "A-checkpoint-00000002" and kept.read_text() == "state"


def test_it_may_be_stranded_between_the_news_and_the_next_life(rack: Rack) -> None:
    job = running(rack)
    rack.kill_spares(16)
    rack.controller.fail(1)  # the answer is under way
    rack.controller.fail(2)  # and now nobody is left
    job.handle_messages()
    assert job.state == "running" and job.team is None and rack.teams[0].stopped
    job.poll(rack.now, heard=False)
    job.handle_messages()
    assert job.state == "stranded" and "rank 2" in job.reason and len(rack.teams) == 1


def test_an_agents_own_fault_ends_the_run_in_its_words(rack: Rack) -> None:
    job = running(rack)
    rack.team.failures.append(Failure(2, "rank 2 lost rank 1", consequence=True))
    job.poll(rack.now, heard=False)
    rack.team.failures.append(Failure(1, "rank 1 cannot store its checkpoint: the disk is full"))
    with pytest.raises(AgentError, match=r"^rank 1 cannot store its checkpoint: the disk is full$"):
        job.poll(rack.now, heard=False)


def test_while_a_member_is_dead_nothing_that_agents_say_is_a_fault(rack: Rack) -> None:
    job = running(rack)
    rack.context.dead.add(1)
    rack.team.failures += [Failure(1, "the agent of rank 1 was killed"), Failure(0, "rank 0 was refused")]
    job.poll(rack.now, heard=False)
    assert job.state == "running"
    rack.controller.fail(1)
    job.handle_messages()
    rack.team.failures.append(Failure(0, "rank 0 has a fault of its own"))
    with pytest.raises(AgentError, match="a fault of its own"):
        job.poll(rack.now, heard=False)


def test_a_job_ends_without_its_controller_too(rack: Rack) -> None:
    job = running(rack)
    rack.controller.gone = True
    job.end("done")
    assert job.state == "done" and rack.team.stopped and rack.channels[0].closed


# ---- groups of jobs ------------------------------------------------------------------------------------------------

BOUND_S = 120.0


class Play:
    """A crew on a pretended rack, and what a person heard."""

    def __init__(self, rack: Rack, kills: str = "", jobs: int = 2, **more: Any) -> None:
        self.heard: list[str] = []
        self.job_group = JobGroup(
            rack.context,
            rack.jobs()[:jobs],
            Faults(parse_kills(kills, rack.context.session.plan), **more),
            self.heard.append,
        )
        self.jobs = self.job_group.jobs

    def run(self, timeout_s: float = BOUND_S) -> list[str]:
        self.job_group.play(timeout_s)
        return [job.state for job in self.jobs]


def faults(rack: Rack) -> list[tuple[int, float]]:
    return [(e["rank"], e.t) for e in read_events(rack.context.folder / NOTES) if e.kind == "fault"]


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


@pytest.mark.parametrize(
    ("kills", "members", "said"),
    [
        ("1@3.5", {0, 16, 2, 3}, "rank 1 is killed, a member of job A, 3 steps done"),
        ("1@3.5", {0, 16, 2, 3}, "job A: rank 16 replaces 1; incarnation 1 begins at step 2"),
        ("1@3.5,2@+0.25", {0, 16, 17, 3}, "rank 2 is killed, a member of job A"),
        ("1@3.5,5@+60", {0, 16, 2, 3}, "the kill 5@+60 was not executed: the run ended before"),
        ("16@1.5,1@3.5", {0, 17, 2, 3}, "rank 16 is killed, a spare"),  # by the steps of the first job
    ],
)
def test_a_job_goes_on_with_spares(rack: Rack, kills: str, members: set[int], said: str) -> None:
    play = Play(rack, kills)
    assert play.run() == ["done", "done"]
    job, neighbour = play.jobs
    assert set(job.members) == members and any(said in text for text in play.heard)
    assert job.acknowledged[-1] == (6, 1006) and neighbour.incarnation == 0
    if "+0.25" in kills:
        (_, first), (_, second) = faults(rack)
        assert second - first == pytest.approx(0.25, abs=2 * TICK_S)


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
    rack.kill_spares()
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
    rack.kill_spares()
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


@pytest.mark.parametrize(("kills", "jobs", "bound_s", "steps"), [("", 2, 3, 2), ("1@1.5", 1, 30, 1)])
def test_a_run_that_takes_too_long_or_a_death_that_nobody_notices_names_the_job_and_stops_everybody(
    kills: str, jobs: int, bound_s: int, steps: int, rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Play(rack, kills, jobs)
    monkeypatch.setattr(rack.controller, "fail", lambda rank: None)
    late = f"job A was not over within {bound_s} s: running in incarnation 0, {steps} of 6 steps done"
    with pytest.raises(AgentError, match=late):
        play.run(bound_s)
    assert all(team.stopped for team in rack.teams) and all(channel.closed for channel in rack.channels)


def test_the_end_of_the_nursery_is_the_sentence_of_the_run(rack: Rack) -> None:
    play = Play(rack)

    def end() -> None:
        rack.nursery_gone = True
        raise AgentError("the process that starts the agents is gone")

    rack.due.append((rack.now + 2.0, end))
    with pytest.raises(AgentError, match="the process that starts the agents is gone"):
        play.run()
    assert [job.state for job in play.jobs] == ["done", "done"] and all(channel.closed for channel in rack.channels)


# ---- timetables ------------------------------------------------------------------------------------------------------


class Client(Channel):
    """A connection for one act, which the controller answers at once."""

    rack: Rack

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__(self.rack, "", -1)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, op: str, **fields: Any) -> None:
        self._rack.controller.ask(self, op, **fields)

    def answer(self, *given: Any) -> None:  # of the controller, or to whom takes it
        if len(given) == 2:
            super().answer(*given)
        elif not self._answers[0]["ok"]:
            raise ControlError(self._answers[0]["error"])


@pytest.fixture
def timed(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> Rack:
    monkeypatch.setattr(Client, "rack", rack, raising=False)
    monkeypatch.setattr("experiments.fabric_acts.ChannelClient", Client)
    cast(Any, rack.context.session).net = SimpleNamespace(
        **{verb: lambda name, verb=verb: rack.log.append(f"{verb} {name}") for verb in ("fail", "restore")},
        set_link=lambda name, _, **values: rack.log.append(f"set {name} {values}"),
    )
    return rack


def test_acts_are_done_at_their_times_and_steps_in_the_kernel_and_by_the_controller(timed: Rack) -> None:
    text = "0.5s set g0-rack0 rate=5; 1.5s fail g16; 2s restore g16; 2s disconnect rack0 64; step 4.5 fail rack0:1"
    play = Play(timed, acts=parse(f"{text}; step 5.5 fail rack0:1; step 5.9 restore rack0:1; step 40 fail rack0"))
    assert play.run() == ["done", "done"] and {job.incarnation for job in play.jobs} == {0}
    begun = timed.teams[0].launched + READY_S + GO_S
    noted = read_events(timed.context.folder / NOTES)
    done = {e["act"]: (e.t - begun, e["late_s"]) for e in noted if e.kind == "act"}
    due = {"0.5s set": 0.5, "1.5s fail": 1.5, "2s restore": 2.0, "step 4.5": 4.5, "step 5.9": 5.9}
    assert len(done) == len(due)
    for start, moment in due.items():
        ((after_s, late_s),) = [found for act, found in done.items() if act.startswith(start)]
        assert moment <= after_s + 1e-9 <= moment + 5 * TICK_S and late_s < 5 * TICK_S
    changed = [entry for entry in timed.log if entry.startswith(("set", "fail", "restore g"))]
    assert changed == ["set g0-rack0 {'rate_mbps': 5.0}", "fail g16", "restore g16"]
    assert timed.controller.engine.optical.switch("rack0").failed == frozenset()
    undone = {e["act"]: e["reason"] for e in noted if e.kind == "undone"}
    assert undone == {
        "2s disconnect rack0 64": "port 64 of rack0 is in no circuit",
        "step 5.5 fail rack0:1": "port 1 of rack0 has failed already",
        "step 40 fail rack0": "the run ended before",
    }


# ---- jobs that do not train ----------------------------------------------------------------------------------------


@pytest.fixture
def plain(rack: Rack) -> list[JobPoint]:
    """Both jobs, which begin and end together."""
    return [replace(job, training=None, steps=4) for job in rack.jobs()]


def test_jobs_start_together_and_are_over_together(rack: Rack, plain: list[JobPoint]) -> None:
    rack.slow.add(5)
    rack.due.append((rack.now + 3.0 + TICK_S / 2, lambda: rack.slow.discard(5)))
    steps: list[int] = []
    group = JobGroup(rack.context, plain, on_step=steps.append)
    group.play(BOUND_S)
    assert [job.state for job in group.jobs] == ["done", "done"] and steps == [1, 2, 3, 4]
    assert rack.log.index("register B-10ms") < rack.log.index("go A-10ms") < rack.log.index("stop A-10ms")
    assert {team.go_t for team in rack.teams} == {group.began + 0.2}
    heard = 103.0 + TICK_S, group.began + 0.2 + 4 * STEP_S
    assert (group.began, group.ended) == pytest.approx(heard, abs=TICK_S / 2), "nothing else is waited for"
    (started,) = [e for e in read_events(rack.context.folder / NOTES) if e.kind == "started"]
    assert started.t == group.began and not rack.channels


def test_beside_a_training_job_another_one_starts_as_it_is_ready(rack: Rack, plain: list[JobPoint]) -> None:
    group = JobGroup(rack.context, [rack.jobs()[0], plain[1]], Faults(parse_kills("1@3.5", rack.context.session.plan)))
    group.play(BOUND_S)
    assert [job.state for job in group.jobs] == ["done", "done"]
    assert group.jobs[0].incarnation == 1 and group.jobs[1].steps_done == 4


def test_the_end_of_an_agent_ends_all_jobs_in_its_words(rack: Rack, plain: list[JobPoint]) -> None:
    rack.due.append(
        (rack.now + 2.0, lambda: rack.teams[1].failures.append(Failure(5, "the agent of rank 5 was killed")))
    )
    with pytest.raises(AgentError, match=r"^the agent of rank 5 was killed$"):
        JobGroup(rack.context, plain).play(BOUND_S)
    assert all(team.stopped for team in rack.teams) and rack.log.count("finish A-10ms") == 1


def test_the_controller_is_named_before_the_agents_that_ended_with_it(rack: Rack, plain: list[JobPoint]) -> None:
    def end() -> None:
        rack.controller.gone = True
        rack.teams[0].failures.append(Failure(0, "the controller closed the job channel"))

    rack.due.append((rack.now + 2.0, end))
    with pytest.raises(ControlError, match="the controller ended during the run"):
        JobGroup(rack.context, plain).play(BOUND_S)
    assert all(team.stopped for team in rack.teams)


def test_jobs_without_training_go_on_when_the_controller_is_started_again(rack: Rack, plain: list[JobPoint]) -> None:
    heard: list[str] = []
    group = JobGroup(rack.context, plain, Faults(controller_dies_step=1.5), heard.append)
    group.play(BOUND_S)
    assert [(job.state, job.incarnation) for job in group.jobs] == [("done", 0), ("done", 0)]
    again = rack.log[rack.log.index("restart the controller, which takes over") :]
    assert again[1:5] == ["register A-10ms again", "register B-10ms again", "resume A-10ms", "resume B-10ms"]
    died, restarted = (e for e in read_events(rack.context.folder / NOTES) if e.kind in ("fault", "restarted"))
    assert died.t == pytest.approx(group.jobs[0].go_t + 1.5 * STEP_S, abs=2 * TICK_S)
    assert restarted["restart_s"] == pytest.approx(restarted.t - died.t)
    assert all(config.outlives_controller for team in rack.teams for config in team.configs.values())


@pytest.mark.parametrize(
    ("slow", "sentence"),
    [({2}, "rank 2 did not get ready within 60 s"), (set(), "rank 0 did not finish its program within 2 s")],
)
def test_who_is_late_is_named(rack: Rack, plain: list[JobPoint], slow: set[int], sentence: str) -> None:
    rack.slow |= slow
    with pytest.raises(AgentError, match=f"^the agent of {sentence}$"):
        JobGroup(rack.context, plain).play(2.0)
