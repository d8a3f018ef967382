"""Every operation of the job channel, with good and with bad input; switches are told nothing and the test says when
they are tuned."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_player import Player
from fabric_plans import pip_plan, pipeline_groups, rail_plan
from refusals import refusals

from controllers.engine.actions import Action, Darken, Note, SlotEnds
from controllers.engine.engine import Engine
from controllers.engine.jobs import Detection, Job
from controllers.engine.request_queue import MAX_REWIRINGS
from controllers.northbound.messages import Alive, Restart, read_request
from controllers.northbound.operations import Operations
from controllers.openflow.datapaths import Datapaths
from railyard.errors import CircuitError, ConfigError, ControlError
from railyard.protocol import encode, to_json
from topos.plan import FabricPlan
from workloads.program import Group

PAIR, RING = "pp-s0-d0-r0", "dp-s0-r0"
"""Ranks 0 and 2, for which the circuits must change; ranks 0 and 1, whose circuits are up from the start."""
OK = {"ok": True}


class Caller:
    """A connection: what it was answered, by the id of its request."""

    def __init__(self, trusted: bool = True) -> None:
        self.trusted = trusted
        self.answers: dict[object, list[dict[str, Any]]] = {}

    def answer(self, request_id: object, answer: bytes) -> None:
        self.answers.setdefault(request_id, []).append(json.loads(answer))


class Desk(Player):
    """The operations between callers and an engine."""

    def __init__(self, plan: FabricPlan | None = None, *, joined: bool = True) -> None:
        self.plan = plan or rail_plan(4)
        super().__init__(Engine(self.plan), now=10.0)
        self.datapaths = Datapaths(self.plan)
        self.watched = 0
        self.people = Caller()
        self.numbers: Iterator[int] = iter(range(1000))
        if joined:
            for switch in self.plan.switches:
                self.datapaths.connect(switch, lambda data: True).filled = True
        self.operations = Operations(self.plan, self.engine, self.datapaths, self._watch)

    def _watch(self) -> None:
        self.watched += 1

    def request(self, op: str, caller: Caller | None = None, **fields: Any) -> list[dict[str, Any]]:
        """One request; the list that its answers are added to, now or later."""
        caller, number = caller or self.people, next(self.numbers)
        answers = caller.answers.setdefault(number, [])
        self.do(self.operations.execute(read_request(encode(number, op, **fields)), caller, self.now))
        return answers

    def do(self, actions: Iterable[Action]) -> None:
        """Take what the engine wants done, and hand out the answers."""
        replies = self.operations.pending_replies
        for action in actions:
            if isinstance(action, (Darken, Note)):
                super().do([action])
            elif not isinstance(action, SlotEnds):
                replies.report(action)
        answers, replies.answers = replies.answers, []
        for (caller, number), answer in answers:
            caller.answer(number, answer)

    def register(
        self,
        groups: tuple[Group, ...] | None = None,
        *,
        policy: str = "opus",
        delay_s: float = 0.5,
        detection: Detection | None = None,
    ) -> list[dict[str, Any]]:
        found = pipeline_groups(2, 2) if groups is None else groups
        return self.request("register", policy=policy, job=Job("j", found, "on-demand", delay_s, detection=detection))

    def close(self, caller: Caller) -> None:
        self.do(self.operations.closed(caller, self.now))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def job(desk: Desk) -> Desk:
    """A desk with job j, whose circuits are up."""
    assert desk.register() == []
    desk.settle()
    return desk


def granted(job: Desk, *callers: Caller) -> None:
    """Ranks 0 and 2 hold the circuit between them."""
    answers = [
        job.request("request", caller, rank=rank, group=PAIR, index=0)
        for rank, caller in zip((0, 2), callers, strict=True)
    ]
    job.settle()
    assert all(answer[0]["ok"] for answer in answers)


# ---- bad input -------------------------------------------------------------------------------------------------------


def read_and_change_nothing(**message: Any) -> None:
    job = Desk()
    job.register()
    job.settle()
    jobs, switches = job.request("jobs"), job.request("circuits")
    try:
        job.do(job.operations.execute(read_request(to_json({"id": "bad", **message})), job.people, job.now))
    finally:
        assert job.request("jobs") == jobs and job.request("circuits") == switches and not job.dark
        replies = job.operations.pending_replies
        assert "bad" not in job.people.answers and not (replies.waiting or replies.registrations)


test_refusals = refusals(
    Path(__file__).with_name("operations.yaml"),
    {
        "message that is wrong": read_and_change_nothing,
        "request that cannot be met": (read_and_change_nothing, ControlError),
        "circuits that cannot be": (read_and_change_nothing, CircuitError),
    },
)


# ---- register and finish ---------------------------------------------------------------------------------------------


def test_register_is_answered_when_the_starting_circuits_are_up(desk: Desk) -> None:
    answer = desk.register()
    assert answer == [] and len(desk.dark) == 1
    desk.settle()
    assert answer == [OK]


def test_register_is_refused_when_the_switch_does_not_take_the_circuits(desk: Desk) -> None:
    answer = desk.register()
    desk.refuse(reason="rail0 refused it (BUNDLE_FAILED)")
    assert answer == [{"ok": False, "error": "rail0 refused it (BUNDLE_FAILED)", "kind": "ControlError"}]
    assert desk.request("jobs") == [{"ok": True, "jobs": []}]


def test_no_job_starts_while_a_switch_is_missing() -> None:
    desk = Desk(rail_plan(2), joined=False)
    with pytest.raises(ControlError, match="rail0 has not joined the controller, so no job can start"):
        desk.register(())
    assert desk.engine.jobs == {}


def test_every_user_may_name_a_policy_of_the_catalog(desk: Desk) -> None:
    desk.people.trusted = False
    answer = desk.register((), policy="static")
    desk.settle()
    assert answer == [OK]


@pytest.mark.parametrize("name", ["some_module:Class", "some/file.py:Class", "unknown"])
def test_only_the_own_user_may_name_anything_else(desk: Desk, name: str) -> None:
    desk.people.trusted = False
    with pytest.raises(ConfigError) as caught:
        desk.register(policy=name)
    reason = f"policy: {name} names code to load, which only the user of the controller may; use one of opus, "
    assert str(caught.value).startswith(reason)
    assert desk.engine.jobs == {}


def test_the_own_user_may_name_code(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from controllers.policies.policy import Policy\n\nclass Mine(Policy):\n    pass\n")
    answer = desk.register(policy=f"{file}:Mine")
    assert answer == [OK], "it has no starting circuits"
    assert list(desk.engine.jobs) == ["j"]


def test_finish_is_answered_at_once_and_all_who_wait_for_the_job_are_told(job: Desk) -> None:
    agent, other = Caller(), Caller()
    waiting = [
        job.request("checkin", agent, rank=0, group=RING),
        job.request("request", other, rank=0, group=PAIR, index=0),
        job.request("watch", job="j"),
    ]
    assert waiting == [[], [], []]
    assert job.request("finish", job="j") == [OK]
    assert [(answer["ok"], answer["error"]) for (answer,) in waiting] == [
        (False, "job j was finished"),
        (False, "job j was finished"),
        (False, "job j was finished"),
    ]
    assert job.request("jobs") == [{"ok": True, "jobs": []}]


def test_a_job_that_is_finished_can_be_registered_again_and_its_connections_go_on(job: Desk) -> None:
    agent, other = Caller(), Caller()
    for rank, caller in ((0, agent), (1, other)):
        job.request("checkin", caller, rank=rank, group=RING)
    job.request("finish", job="j")
    assert job.register() == [OK], "its circuits are still up"
    answers = [job.request("checkin", caller, rank=rank, group=RING) for rank, caller in ((0, agent), (1, other))]
    assert [answer[0]["ok"] for answer in answers] == [True, True]


def test_finish_before_the_circuits_are_up_refuses_the_register(desk: Desk) -> None:
    answer = desk.register()
    assert desk.request("finish", job="j") == [OK]
    assert answer[0]["error"] == "job j was finished before its circuits were up"


# ---- agents ----------------------------------------------------------------------------------------------------------


def test_checkin_is_answered_when_all_members_are_here(job: Desk) -> None:
    first = job.request("checkin", Caller(), rank=0, group=RING)
    assert first == []
    second = job.request("checkin", Caller(), rank=1, group=RING)
    expected = {"ok": True, "domain": "scale-out", "asks": True, "paths": [], "rotates": False}
    assert first == second == [expected]


def test_checkin_tells_the_paths_of_a_group_that_does_not_ask() -> None:
    desk = Desk()
    desk.register(pipeline_groups(2, 1), policy="static")
    desk.settle()
    agent = Caller()
    answers = [desk.request("checkin", agent, rank=rank, group=RING) for rank in (0, 1)]
    assert answers[0] == answers[1] and answers[0][0]["asks"] is False
    assert answers[0][0]["paths"] == [[0, 1, 1, 0], [1, 1, 0, 0]]


def test_checkin_twice_is_refused_and_the_first_still_counts(job: Desk) -> None:
    agent = Caller()
    first = job.request("checkin", agent, rank=0, group=RING)
    with pytest.raises(ControlError, match="rank 0"):
        job.request("checkin", agent, rank=0, group=RING)
    job.request("checkin", Caller(), rank=1, group=RING)
    assert len(first) == 1 and first[0]["ok"]


def rotating() -> tuple[Desk, list[list[dict[str, Any]]]]:
    """Three ranks in the first slot of a rotation without slot times, and the answers that each has got."""
    desk = Desk(rail_plan(3, ports=1))
    registered = desk.register((Group("ep", "ep", (0, 1, 2)),), policy="rotor", delay_s=0.0)
    desk.settle()
    assert registered == [OK]
    answers = [desk.request("request", rank=rank, group="ep", index=0) for rank in (0, 1, 2)]
    desk.settle()
    return desk, answers


def numbers(answers: list[dict[str, Any]]) -> list[int]:
    """The slots that one rank was told of."""
    return [answer["slot_window"][0] for answer in answers]


def test_a_request_of_a_rotation_is_answered_for_each_slot_and_moved_never() -> None:
    desk, answers = rotating()
    assert [numbers(answer) for answer in answers] == [[0], [0], [0]]
    moved = [desk.request("moved", rank=rank, group="ep", index=0, slot=0) for rank in (0, 1, 2)]
    desk.settle()
    assert moved == [[], [], []] and [numbers(answer) for answer in answers] == [[0, 1], [0, 1], [0, 1]]


# ---- heartbeats ------------------------------------------------------------------------------------------------------

DETECTION = Detection(heartbeat_s=0.2, misses=3)


def test_alive_is_never_answered_and_begins_the_watch() -> None:
    desk, agent = Desk(), Caller()
    desk.register(detection=DETECTION)
    desk.settle()
    assert desk.engine.liveness.next_check() is None
    assert desk.request("alive", agent, job="j", rank=0) == []
    assert desk.watched == 1 and desk.engine.liveness.next_check() == pytest.approx(desk.now + 0.6)


def test_a_heartbeat_counts_only_from_the_connection_that_spoke_for_the_rank_and_once_it_is_watched() -> None:
    desk, agent = Desk(), Caller()
    desk.register(detection=DETECTION)
    desk.settle()
    beats, alive = desk.operations.take_heartbeat, Alive(op="alive", job="j", rank=1)
    assert not beats(alive, agent, desk.now)
    desk.request("alive", agent, job="j", rank=1)
    assert beats(alive, agent, desk.now + 0.1)
    assert desk.engine.liveness.last(1) == desk.now + 0.1
    assert not beats(alive, Caller(), desk.now + 0.2)
    assert not beats(Restart(op="restart", job="j"), agent, desk.now + 0.2)
    assert desk.engine.liveness.last(1) == desk.now + 0.1


# ---- faults, watch and restart ---------------------------------------------------------------------------------------


def test_failed_is_answered_at_once_and_the_cause_is_noted(job: Desk) -> None:
    assert job.request("failed", rank=3, cause="smoke comes out") == [OK]
    (note,) = (note for note in job.notes if note.kind == "failed")
    assert (note.fields["job"], note.fields["rank"], note.fields["cause"]) == ("j", 3, "smoke comes out")
    assert job.request("failed", rank=3) == [OK], "it is dead already"
    assert len([note for note in job.notes if note.kind == "failed"]) == 1


def test_watch_is_answered_when_there_is_news_beyond_what_was_seen(job: Desk) -> None:
    waiting = job.request("watch", job="j")
    assert waiting == []
    job.request("failed", rank=3)
    ((news,), (again,)) = waiting, job.request("watch", job="j", seen=0)
    assert news == again and (news["ok"], news["number"], news["state"], news["dead"]) == (True, 1, "stranded", [3])
    assert news["reason"] and news["members"][RING] == [0, 1]
    assert job.request("watch", job="j", seen=1) == [], "there is nothing beyond that"


def test_restart_is_answered_at_once_with_the_members(job: Desk) -> None:
    (answer,) = job.request("restart", job="j")
    assert (answer["ok"], answer["number"], answer["state"]) == (True, 0, "running")
    assert answer["members"] == {group.name: list(group.members) for group in pipeline_groups(2, 2)}


def test_after_a_restart_old_connections_mean_nothing_and_new_ones_begin_afresh(job: Desk) -> None:
    old, other = Caller(), Caller()
    granted(job, old, other)
    job.request("restart", job="j")
    for op, fields in (
        ("checkin", {"group": RING}),
        ("request", {"group": PAIR, "index": 0}),
        ("moved", {"group": PAIR, "index": 0, "slot": 0}),
        ("alive", {"job": "j"}),
    ):
        with pytest.raises(ControlError, match="open a new one"):
            job.request(op, old, rank=0, **fields)
    assert job.request("release", old, rank=0, group=PAIR, index=0) == [OK], "which lets go of nothing"
    granted(job, Caller(), Caller())


# ---- connections that end --------------------------------------------------------------------------------------------


def test_a_connection_that_ended_is_not_answered_any_more(job: Desk) -> None:
    staying, leaving = Caller(), Caller()
    answers = [
        job.request("request", caller, rank=rank, group=PAIR, index=0) for rank, caller in ((0, leaving), (2, staying))
    ]
    answers.append(job.request("watch", leaving, job="j"))
    job.close(leaving)
    job.settle()
    job.request("failed", rank=3)
    assert [len(answer) for answer in answers] == [0, 1, 0]


# ---- people and scripts ----------------------------------------------------------------------------------------------


def test_circuits_lists_every_switch_whether_it_is_connected_or_not() -> None:
    desk = Desk(rail_plan(2, gpus=2), joined=False)
    desk.datapaths.connect(desk.plan.switches[1], lambda data: True).filled = True
    (answer,) = desk.request("circuits")
    assert [(switch["name"], switch["connected"]) for switch in answer["switches"]] == [
        ("rail0", False),
        ("rail1", True),
    ]
    assert answer["switches"][0]["ports"] == dict.fromkeys(("1", "2", "3", "4"), "blocked")


def test_jobs_tells_the_members_and_the_delays(job: Desk) -> None:
    ((found,),) = (answer["jobs"] for answer in job.request("jobs"))
    assert (found["name"], found["state"], found["mode"], found["dead"]) == ("j", "running", "on-demand", [])
    assert (found["reconfiguration_delay_s"], found["link_recovery_s"], found["members"]) == (0.5, 0.0, [0, 1, 2, 3])
    assert [group["name"] for group in found["groups"]] == [group.name for group in pipeline_groups(2, 2)]


def test_rewire_is_answered_when_the_switch_is_tuned_after_the_delay_that_it_names(desk: Desk) -> None:
    answer = desk.request("rewire", switch="rail0", circuits=[[1, 4]], delay_s=0.25)
    assert answer == [] and [darken.delay_s for darken in desk.dark] == [0.25]
    desk.settle()
    assert answer == [OK] and desk.request("circuits")[0]["switches"][0]["circuits"] == [[1, 4]]


def test_only_so_many_rewirings_may_wait(desk: Desk) -> None:
    answers = [desk.request("rewire", switch="rail0", circuits=[[1, 4]], delay_s=600.0) for _ in range(MAX_REWIRINGS)]
    with pytest.raises(ControlError, match="64 rewirings wait for their turn already; wait until some are done"):
        desk.request("rewire", switch="rail0", circuits=[[1, 4]])
    assert not any(answers)


def test_rewire_without_a_delay_takes_that_of_the_job(job: Desk) -> None:
    job.request("rewire", switch="rail0", circuits=[[1, 8]])
    assert [darken.delay_s for darken in job.dark] == [0.5]


# ---- what people asked for -------------------------------------------------------------------------------------------


def test_what_a_stranger_asks_for_is_noted_before_what_follows_from_it(job: Desk) -> None:
    rest = Caller(trusted=False)
    job.notes.clear()
    job.request("rewire", rest, switch="rail0", circuits=[[1, 3]], update="overwrite")
    job.request("fault", rest, switch="rail0", port=5, state="failed")
    job.request("fault", rest, switch="rail0", port=5, state="restored")
    job.request("failed", rest, rank=1, cause="overheated")
    noted = [(note.kind, note.fields) for note in job.notes]
    manual = [fields for kind, fields in noted if kind == "manual"]
    assert [each.pop("what") for each in manual] == ["rewire", "fail", "restore", "fail-chip"]
    assert manual == [
        {"rail": "rail0", "circuits": ((1, 3),), "update": "overwrite"},
        {"rail": "rail0", "ports": [5]},
        {"rail": "rail0", "ports": [5]},
        {"rank": 1, "cause": "overheated"},
    ]
    kinds = [kind for kind, _ in noted]
    assert kinds.index("port") == 2, "the port of the second request"
    assert json.loads(job.notes[0].event().to_line())["circuits"] == [[1, 3]]


def test_questions_refusals_and_the_run_s_own_requests_are_not_noted(job: Desk) -> None:
    agents, rest = Caller(), Caller(trusted=False)
    granted(job, agents, agents)
    job.notes.clear()
    for op in ("circuits", "jobs"):
        job.request(op, rest)
    job.request("rewire", switch="rail0", circuits=[], update="overwrite")
    (answer,) = job.request("rewire", rest, switch="rail0", circuits=[], update="overwrite")
    assert not answer["ok"] and "has traffic on the ports of rail0" in answer["error"]
    with pytest.raises(CircuitError):
        job.request("fault", rest, switch="rail0", port=99, state="failed")
    job.request("fault", switch="rail0", port=7, state="failed")
    assert "manual" not in [note.kind for note in job.notes]


def test_a_rewiring_that_waits_and_is_then_refused_is_never_noted(job: Desk) -> None:
    agents, rest = Caller(), Caller(trusted=False)
    for rank in (0, 2):
        job.request("request", agents, rank=rank, group=PAIR, index=0)
    answer = job.request("rewire", rest, switch="rail0", circuits=[[2, 8]])
    assert answer == [], "the ports are tuning for the group"
    job.settle()
    assert "has traffic on the ports of rail0" in answer[0]["error"]
    assert "manual" not in [note.kind for note in job.notes]


def test_a_rewiring_that_waits_is_noted_when_it_begins(desk: Desk) -> None:
    rest = Caller(trusted=False)
    for pair in ([1, 2], [2, 3]):
        desk.request("rewire", rest, switch="rail0", circuits=[pair], delay_s=0.5)
    desk.settle()
    assert [(note.t, note.fields["circuits"]) for note in desk.notes if note.kind == "manual"] == [
        (10.0, ((1, 2),)),
        (10.5, ((2, 3),)),
    ]


def test_a_rewiring_that_was_begun_and_undone_is_noted_as_refused_too(desk: Desk) -> None:
    answer = desk.request("rewire", Caller(trusted=False), switch="rail0", circuits=[[1, 4]])
    desk.refuse(reason="rail0 did not answer")
    assert answer[0]["error"] == "rail0 did not answer"
    assert [(note.kind, note.fields.get("reason")) for note in desk.notes] == [
        ("manual", None),
        ("refused", "rail0 did not answer"),
    ]


def test_what_changes_nothing_is_refused_over_rest_and_not_noted(job: Desk) -> None:
    rest = Caller(trusted=False)
    with pytest.raises(ControlError, match=r"^port 7 of rail0 has not failed; only a port that has failed can be "):
        job.request("fault", rest, switch="rail0", port=7, state="restored")
    job.request("fault", rest, switch="rail0", port=7, state="failed")
    with pytest.raises(ControlError, match=r"^port 7 of rail0 has failed already$"):
        job.request("fault", rest, switch="rail0", port=7, state="failed")
    job.request("failed", rest, rank=1)
    with pytest.raises(ControlError, match=r"^rank 1 has failed already$"):
        job.request("failed", rest, rank=1)
    assert job.request("failed", rank=1) == [OK], "the supervisor of a job may tell again"
    standing = [list(pair) for pair in job.request("circuits")[0]["switches"][0]["circuits"]]
    assert job.request("rewire", rest, switch="rail0", circuits=standing, update="overwrite") == [OK]
    assert [note.fields["what"] for note in job.notes if note.kind == "manual"] == ["fail", "fail-chip"]


def test_who_failed_a_port_is_in_the_refusal_of_the_request_that_needs_it(job: Desk) -> None:
    job.request("fault", Caller(trusted=False), switch="rail0", port=2, state="failed")
    job.settle()
    answers = [job.request("request", rank=rank, group=PAIR, index=0) for rank in (0, 2)]
    assert {answer[0]["error"] for answer in answers} == {
        "port 2 of rail0 was failed over REST; the circuit it should hold cannot be set up"
    }


def test_a_person_is_not_named_for_a_port_that_fails_by_itself_later(job: Desk) -> None:
    for state in ("failed", "restored"):
        job.request("fault", Caller(trusted=False), switch="rail0", port=2, state=state)
    job.engine.port_failed("rail0", 2, job.now)
    job.settle()
    answers = [job.request("request", rank=rank, group=PAIR, index=0) for rank in (0, 2)]
    assert {answer[0]["error"] for answer in answers} == {
        "port 2 of rail0 has failed; the circuit it should hold cannot be set up"
    }


def test_a_reported_chip_keeps_its_links_and_one_of_no_job_keeps_its_circuits(desk: Desk) -> None:
    desk.register(pipeline_groups(2, 1))
    desk.request("rewire", switch="rail0", circuits=[[6, 8]])
    desk.settle()
    before = desk.request("circuits")[0]["switches"][0]
    assert desk.request("failed", Caller(trusted=False), rank=3, cause="smoke") == [OK]
    assert desk.request("circuits")[0]["switches"][0] == before and not desk.dark
    assert desk.engine.registry.dead == {3} and 3 not in desk.engine.registry.free()


def test_gates_of_a_mesh_are_noted_too() -> None:
    desk, rest = Desk(pip_plan(4)), Caller(trusted=False)
    desk.request("rewire", switch="rail0", circuits=[[1, 2], [3, 4]])
    desk.settle()
    gates = desk.request("circuits")[0]["switches"][0]["mesh"]["gates"]
    desk.request("rewire", switch="rail0", circuits=[[1, 3], [2, 4]], update="overwrite")
    desk.settle()
    desk.notes.clear()
    desk.request("gates", rest, switch="rail0", gates=gates)
    assert [note.fields for note in desk.notes] == [{"what": "gates", "rail": "rail0"}]


def test_only_the_user_of_the_controller_says_where_its_events_go() -> None:
    desk, told = Desk(), list[tuple[int | None, float, str | None]]()
    desk.operations.on_record = lambda *begun: told.append(begun)
    with pytest.raises(ControlError, match="only the user of the controller"):
        desk.request("record", Caller(trusted=False), point=3)
    assert desk.request("record", point=3, since=1.5)[0]["ok"] and desk.request("record")[0]["ok"]
    assert told == [(3, 1.5, None), (None, 0.0, None)]


# ---- members of one process ------------------------------------------------------------------------------------------


def test_members_that_ask_together_are_ready_when_each_was(job: Desk) -> None:
    process = Caller()
    answers = job.request("request", process, rank=2, group=PAIR, index=0, before=[[0, 0.25]])
    asked = job.now
    job.settle()
    assert [answer["ok"] for answer in answers] == [True], "one answer for both"
    (ack,) = (note.fields for note in job.notes if note.kind == "ack" and note.fields["group"] == PAIR)
    assert (ack["asked"], ack["ready"]) == (asked - 0.25, asked)
    assert job.request("release", process, rank=0, group=PAIR, index=0, before=[[2, 0.1]]) == [OK]


def test_a_rank_that_leaves_a_process_is_missed_by_those_that_wait_for_it(job: Desk) -> None:
    process = Caller()
    job.request("checkin", process, rank=2, group=PAIR)
    answers = job.request("request", process, rank=0, group=PAIR, index=0)
    job.request("leave", Caller(), job="j", rank=2)
    assert answers == [], "the process of another rank cannot tell that"
    job.request("leave", process, job="j", rank=2)
    assert [(answer["ok"], answer["kind"]) for answer in answers] == [(False, "PeerLost")]


def test_what_was_taken_of_members_that_ask_together_is_done_if_one_is_refused(job: Desk) -> None:
    answers = job.request("request", Caller(), rank=3, group=PAIR, index=0, before=[[0, 0.1], [2, 0.1]])
    assert [answer["ok"] for answer in answers] == [False]
    assert job.dark, "the two members are all of the group, which has its circuits"
    job.settle()
    agent = Caller()
    job.request("request", agent, rank=0, group=RING, index=0)
    job.request("request", agent, rank=1, group=RING, index=0)
    job.request("release", rank=0, group=PAIR, index=0)
    assert job.request("release", rank=0, group=PAIR, index=0, before=[[2, 0.1]])[0]["ok"] is False
    assert job.dark, "the ring, which waited for the release, gets its circuits"
    with pytest.raises(ConfigError, match="before: must name each rank once, and not rank itself"):
        job.request("checkin", Caller(), rank=0, group=PAIR, before=[[2, 0.1], [2, 0.2]])
