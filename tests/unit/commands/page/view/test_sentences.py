"""What happened at a moment, in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from measure.sentences import MARK_KINDS, MARKS, MOST_CHARACTERS, mark_kind, ranks_of, says
from railyard.timeline import Event

DEAD = {"job": "A", "number": 1, "dead": [1]}
SENTENCES: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "run fault",
        "fault",
        {"job": "A", "rank": 1, "what": "killed: links cut, agent ended"},
        "rank 1 of job A is made to fail: killed: links cut, agent ended",
    ),
    ("run fault", "fault", {"job": "", "rank": -1, "what": "the controller is killed"}, "the controller is killed"),
    ("run act", "act", {"act": "2s fail rail0:3", "late_s": 0.0}, "by the timetable: 2s fail rail0:3"),
    (
        "run undone",
        "refused",
        {"act": "2s fail rail0:3", "reason": "port 3 has failed already"},
        "not done: 2s fail rail0:3, as port 3 has failed already",
    ),
    ("run left", "left", {"what": "your controller left at 10 s"}, "your controller left at 10 s"),
    ("run launch", "launch", {"job": "A", "incarnation": 0, "members": [0, 1]}, "job A starts on ranks 0, 1"),
    (
        "run launch",
        "launch",
        {"job": "A", "incarnation": 1, "members": list(range(10))},
        "job A starts again (incarnation 1) on ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more",
    ),
    ("run cut", "lost", {"lines": 2}, "2 lines of a log not readable: cut short by a crash or a full disk, or changed"),
    ("run lost", "lost", {"events": 1}, "1 event missing in a file before this moment"),
    ("agent verified", "wrong", {"rank": 2, "step": 4, "wrong": 3}, "rank 2 computed 3 wrong elements in step 4"),
    (
        "controller failed",
        "failed",
        {"job": "", "rank": 3, "cause": "its agent missed 3 heartbeats of 0.25 s", "heard": 1.0},
        "rank 3 failed: its agent missed 3 heartbeats of 0.25 s",
    ),
    (
        "controller replaced",
        "replaced",
        {**DEAD, "replacements": [[1, 16]], "ports": [["rack0", n] for n in range(10)], "kept": 6},
        "rank 1 was replaced by rank 16: 10 ports changed, 6 circuits kept",
    ),
    (
        "controller replaced",
        "replaced",
        {**DEAD, "replacements": [[0, 8], [1, 9]], "ports": [], "kept": 1},
        "rank 1 failed, so these were replaced: rank 0 by rank 8, rank 1 by rank 9: no port changed, 1 circuit kept",
    ),
    ("controller stranded", "stranded", DEAD, "job A cannot go on: no spare replaces rank 1"),
    ("controller stranded", "stranded", {**DEAD, "reason": "all are in use"}, "job A cannot go on: all are in use"),
    ("controller port", "port", {"rail": "rack0", "port": 6, "state": "failed"}, "port 6 of rack0 failed"),
    ("controller port", "port", {"rail": "rack0", "port": 6, "state": "restored"}, "port 6 of rack0 works again"),
    (
        "controller refused",
        "refused",
        {"group": "dp.s0", "index": 0, "reason": "rank 3 has failed", "final": True},
        "the request of dp.s0 was refused: rank 3 has failed",
    ),
    (
        "controller manual",
        "manual",
        {"what": "rewire", "rail": "rail0", "circuits": [[1, 5], [2, 6]]},
        "somebody rewired rail0 over REST: 1-5, 2-6",
    ),
    (
        "controller manual",
        "manual",
        {"what": "rewire", "rail": "rail0", "circuits": []},
        "somebody rewired rail0 over REST: no circuit",
    ),
    (
        "controller manual",
        "manual",
        {"what": "gates", "rail": "rail0", "circuits": [[1, 2]]},
        "somebody set the gates of rail0 over REST: 1-2",
    ),
    (
        "controller manual",
        "manual",
        {"what": "fail", "rail": "rail0", "ports": [3]},
        "somebody made port 3 of rail0 fail over REST",
    ),
    (
        "controller manual",
        "manual",
        {"what": "restore", "rail": "rail0", "ports": [3, 4]},
        "somebody repaired ports 3, 4 of rail0 over REST",
    ),
    ("controller manual", "manual", {"what": "fail-chip", "rank": 7}, "somebody reported rank 7 as failed over REST"),
    (
        "switch left",
        "left",
        {"rail": "rail1"},
        "rail1 lost its connection to the controller; its circuits stay as they are",
    ),
    (
        "switch recovered",
        "recovered",
        {"rail": "rail1", "problem": "did not answer"},
        "rail1 has all its flows again: it did not answer",
    ),
    (
        "switch dropped",
        "lost",
        {"rail": "rail1", "packets": 1, "bytes": 90, "during": 4},
        "rail1 dropped 1 packet while its ports were dark",
    ),
    (
        "edge timeout",
        "refused",
        {"job": 2, "round": 0, "phase": "scheduling"},
        "round 0 of job 2 starts again: the time of its scheduling is over",
    ),
    (
        "edge cleared",
        "lost",
        {"job": 0, "round": 8, "count": 1, "clients": [0]},
        "1 update of round 8 of job 0 reached the root and no job",
    ),
    ("edge gone", "left", {"client": 4, "why": "no answer"}, "client 4 left: no answer"),
    (
        "edge push",
        "refused",
        {"client": 4, "job": 1, "round": 2, "bytes": 9, "outcome": "late"},
        "the update of client 4 for round 2 of job 1 was late",
    ),
    (
        "edge flush",
        "refused",
        {"leaf": 3, "job": 1, "round": 2, "count": 2, "clients": [1, 2], "outcome": "dropped"},
        "the sum of 2 updates from leaf 3 for round 2 of job 1 was dropped",
    ),
]


def event(name: str, fields: dict[str, Any]) -> Event:
    source, kind = name.split()
    return Event(1.0, source, kind, None, fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "mark", "fields", "sentence"), SENTENCES)
def test_every_mark_has_a_kind_and_one_sentence(name: str, mark: str, fields: dict[str, Any], sentence: str) -> None:
    assert (mark_kind(event(name, fields)), says(event(name, fields))) == (mark, sentence)


def test_the_cases_above_cover_every_mark() -> None:
    assert {tuple(name.split()) for name, *_ in SENTENCES} == set(MARKS)
    assert {mark for _, mark, *_ in SENTENCES} == set(MARK_KINDS)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("agent step", {"rank": 0, "step": 1}),
        ("agent verified", {"rank": 0, "step": 1, "wrong": 0}),
        ("controller refused", {"group": "g", "index": 0, "reason": "traffic", "final": False}),
        ("switch dropped", {"rail": "rail0", "packets": 0, "bytes": 0, "during": 1}),
        ("edge push", {"client": 1, "job": 1, "round": 1, "bytes": 5, "outcome": "acknowledged"}),
        ("edge refused", {"client": 1, "job": 1}),
    ],
)
def test_what_runs_as_it_should_is_no_mark(name: str, fields: dict[str, Any]) -> None:
    assert mark_kind(event(name, fields)) is None


@pytest.mark.parametrize("name", [f"{source} {kind}" for source, kind in MARKS])
@pytest.mark.parametrize("value", [None, [], {}, "x" * 5000, 2.5, [[1]]])
def test_fields_of_another_type_or_size_never_raise(name: str, value: object) -> None:
    names = {key for _, _, fields, _ in SENTENCES for key in fields}
    for fields in ({}, dict.fromkeys(names, value)):
        said = says(event(name, fields))
        assert said and len(said) <= MOST_CHARACTERS
        mark_kind(event(name, fields))
        ranks_of(event(name, fields))


def test_an_event_without_its_fields_is_named() -> None:
    assert says(event("controller failed", {})) == "controller failed, with fields that this version does not write"
    assert says(event("agent step", {})) == "agent step"


def test_a_mark_knows_its_ranks() -> None:
    assert ranks_of(event("controller replaced", {**DEAD, "replacements": [[1, 16], [0, 17]]})) == [0, 1, 16, 17]
    assert ranks_of(event("run fault", {"rank": -1})) == []
    assert ranks_of(event("run launch", {"members": [3, 2]})) == [2, 3]
