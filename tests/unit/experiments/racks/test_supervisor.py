"""A job led through its lives: when it starts, what it remembers, where it goes on, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_rack import Rack

from experiments.racks.supervisor import GO_S, LAUNCH_S, JobSupervisor
from railyard.errors import AgentError
from workloads.agent.launcher import Failure


def running(rack: Rack, **changes: object) -> JobSupervisor:
    """Job A on ranks 0 to 3 in its first life, under way."""
    job = rack.job(**changes)
    rack.team.get_ready()
    job.poll(rack.now)
    assert job.state == "running"
    return job


def lose(rack: Rack, job: JobSupervisor, rank: int) -> None:
    """A member dies, the controller says who stands in or that nobody does."""
    rack.context.kill(rank, job.spec.name, job.team)
    rack.controller.fail(rank)
    job.handle_messages()


def members_of(job: JobSupervisor) -> set[int]:
    return set(job.members)


# ---- start -------------------------------------------------------------------------------------------------------


def test_it_says_go_when_all_members_are_ready(rack: Rack) -> None:
    job = rack.job()
    assert (job.state, job.incarnation) == ("starting", 0)
    rack.team.ready.update({0, 1, 2})
    job.poll(rack.now)
    assert (job.state, rack.team.go_t) == ("starting", None)
    rack.team.ready.add(3)
    job.poll(rack.now)
    assert job.state == "running" and rack.team.go_t == job.go_t == rack.now + GO_S


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
    job.poll(rack.now)
    assert "failed A 2" not in rack.log
    rack.now += 0.01
    job.poll(rack.now)
    job.poll(rack.now)
    assert rack.log.count("failed A 2") == 1
    job.handle_messages()
    assert members_of(job) == {0, 1, 3, 16} and job.incarnation == 1


def test_an_agent_that_never_gets_ready_ends_the_run(rack: Rack) -> None:
    job = rack.job(stages=(("data", 10.0),))
    rack.team.pids.update(dict.fromkeys(range(4), 1))
    rack.team.ready.update({0, 2, 3})
    rack.now += 39.0  # the stage, and more
    job.poll(rack.now)
    rack.now += 2.0
    with pytest.raises(AgentError, match="rank 1 of job A did not get ready in incarnation 0"):
        job.poll(rack.now)


# ---- checkpoints -------------------------------------------------------------------------------------------------


def test_a_checkpoint_counts_when_all_members_have_the_same(rack: Rack) -> None:
    job = running(rack)
    rack.team.store(2, [0, 1, 2])
    job.poll(rack.now)
    assert job.acknowledged == []
    rack.team.store(2, [3], checksum=7)  # another one than theirs
    job.poll(rack.now)
    assert job.acknowledged == []
    rack.team.store(2, [3])
    rack.team.store(4)
    job.poll(rack.now)
    job.poll(rack.now)
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
    job.poll(rack.now)
    for rank in (1, 2, 3):  # all who stored it are gone before there is another one
        lose(rack, job, rank)
        if rank != 3:
            rack.team.get_ready()
            job.poll(rack.now)
    assert members_of(job) == {16, 17, 18, 19}
    assert rack.team.incarnation(19).copy_from in {16, 17, 18}


def test_where_the_last_holder_is_dead_the_run_ends_in_one_sentence(rack: Rack) -> None:
    job = running(rack)
    rack.team.store(2)
    rack.context.dead.update({0, 1, 2, 3})
    rack.controller.fail(0)
    with pytest.raises(AgentError, match="no host that holds the checkpoint of job A is left"):
        job.handle_messages()


def test_old_hosts_that_only_serve_a_checkpoint_hold_no_step_back(rack: Rack) -> None:
    job = running(rack)
    rack.team.steps = dict.fromkeys(range(4), 3)
    rack.team.store(2)
    job.poll(rack.now)
    rack.controller.members["A"][:] = [16, 17, 18, 19]  # a migration: everybody moves
    rack.controller.number["A"] = 1
    rack.controller.tell_watchers()
    job.handle_messages()
    team = rack.team
    assert set(team.configs) > {16, 17, 18, 19} and job.members == (16, 17, 18, 19)
    servers = set(team.configs) - {16, 17, 18, 19}
    assert all(team.incarnation(rank).heartbeat_s == 0 and team.incarnation(rank).copy_to for rank in servers)
    assert all(team.incarnation(rank).copy_from in servers for rank in job.members)
    team.get_ready()
    job.poll(rack.now)
    team.steps.update(dict.fromkeys(job.members, 5))
    assert job.steps_done == 5


# ---- how it ends -------------------------------------------------------------------------------------------------


def test_it_is_done_when_all_members_are_and_the_controller_hears_it_first(rack: Rack) -> None:
    job = running(rack)
    rack.team.finished.update({0, 1, 2})
    job.poll(rack.now)
    assert job.state == "running"
    rack.team.finished.add(3)
    job.poll(rack.now)
    assert job.state == "done" and job.over and job.channel is None and rack.channels[0].closed
    assert rack.log[-2:] == ["finish A", "stop A"]


def test_nobody_stands_in(rack: Rack, tmp_path: Path) -> None:
    job = running(rack)
    rack.spares.clear()
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
    rack.spares[:] = [16]
    rack.controller.fail(1)  # the answer is under way
    rack.controller.fail(2)  # and now nobody is left
    job.handle_messages()
    assert job.state == "running" and job.team is None and rack.teams[0].stopped
    job.poll(rack.now)
    job.handle_messages()
    assert job.state == "stranded" and "rank 2" in job.reason and len(rack.teams) == 1


def test_an_agents_own_fault_ends_the_run_in_its_words(rack: Rack) -> None:
    job = running(rack)
    rack.team.failures.append(Failure(2, "rank 2 lost rank 1", consequence=True))
    job.poll(rack.now)
    rack.team.failures.append(Failure(1, "rank 1 cannot store its checkpoint: the disk is full"))
    with pytest.raises(AgentError, match=r"^rank 1 cannot store its checkpoint: the disk is full$"):
        job.poll(rack.now)


def test_while_a_member_is_dead_nothing_that_agents_say_is_a_fault(rack: Rack) -> None:
    job = running(rack)
    rack.context.dead.add(1)
    rack.team.failures += [Failure(1, "the agent of rank 1 was killed"), Failure(0, "rank 0 was refused")]
    job.poll(rack.now)
    assert job.state == "running"
    rack.controller.fail(1)
    job.handle_messages()
    rack.team.failures.append(Failure(0, "rank 0 has a fault of its own"))
    with pytest.raises(AgentError, match="a fault of its own"):
        job.poll(rack.now)


def test_a_job_ends_without_its_controller_too(rack: Rack) -> None:
    job = running(rack)
    rack.controller.gone = True
    job.end("done")
    assert job.state == "done" and rack.team.stopped and rack.channels[0].closed
