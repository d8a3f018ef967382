from __future__ import annotations

import pytest

from experiments.propius.data.messages import Mode, RoundAttempt, SumId, UpdateId
from experiments.propius.data.servers import Answer, RefuseRequest, RootServer, WriteEvent
from experiments.propius.data.update import as_bytes, crc, draw, expected

JOB, SIZE = 2, 64
MODEL = bytes(SIZE)
FIRST = RoundAttempt(0, 0)


def root(mode: Mode, demand: int = 3) -> RootServer:
    server = RootServer(mode)
    assert server.put("job", JOB, FIRST, demand, MODEL, 0.0) == (Answer("job", {}),)
    return server


def outcome(server: RootServer, number: int, clients: list[int], stage: RoundAttempt = FIRST) -> str:
    (answer,) = server.push_sum(None, SumId(0, 0, number), JOB, stage, clients, MODEL, 1.0)
    assert isinstance(answer, Answer)
    return str(answer.fields["outcome"])


def test_a_model_is_absent_then_there_then_over() -> None:
    server = root("fixed")
    assert server.get("a", 9, 0, 0.0) == (Answer("a", {"hit": False, "absent": True}),)
    assert server.get("a", JOB, 1, 0.0) == (Answer("a", {"hit": False, "absent": True}),)
    assert server.get("a", JOB, 0, 0.0) == (Answer("a", {"hit": True}, MODEL),)
    server.put("job", JOB, RoundAttempt(1, 0), 3, MODEL, 1.0)
    assert server.get("a", JOB, 0, 0.0) == (RefuseRequest("a", "round 0 of job 2 is over"),)


def test_sums_come_in_lumps_so_the_count_may_be_above_the_demand() -> None:
    server = root("fixed")
    assert outcome(server, 0, [4, 1]) == "acknowledged"
    assert server.job_get("j", JOB, 0, 2.0) == (Answer("j", {"count": 2, "ready": False}),)
    assert outcome(server, 1, [2, 7]) == "acknowledged"
    note, answer = server.job_get("j", JOB, 0, 3.0)
    assert note == WriteEvent(
        "sum", {"job": JOB, "round": 0, "attempt": 0, "count": 4, "order": [[4, 1], [2, 7]], "crc": None}
    )
    assert answer == Answer("j", {"count": 4, "ready": True}, MODEL)
    assert server.job_get("j", JOB, 0, 4.0) == (answer,)


@pytest.mark.parametrize(("mode", "counted"), [("authors", 2), ("fixed", 1)])
def test_a_sum_that_is_sent_again_counts_once_in_fixed_only(mode: Mode, counted: int) -> None:
    server = root(mode, demand=1)
    for _ in range(2):
        assert outcome(server, 0, [4]) == "acknowledged"
    (note, _) = server.job_get("j", JOB, 0, 2.0)
    assert isinstance(note, WriteEvent) and note.fields["count"] == counted


def test_a_copy_is_acknowledged_also_when_its_round_is_over() -> None:
    server = root("fixed", demand=1)
    outcome(server, 0, [4])
    server.job_get("j", JOB, 0, 2.0)
    assert outcome(server, 1, [5]) == "late"
    server.put("job", JOB, RoundAttempt(1, 0), 1, MODEL, 3.0)
    assert outcome(server, 0, [4]) == "acknowledged"
    assert outcome(server, 2, [6]) == "late"


def test_authors_add_updates_after_the_answer_and_refuse_those_of_other_rounds() -> None:
    server = root("authors", demand=1)
    outcome(server, 0, [4])
    server.job_get("j", JOB, 0, 2.0)
    assert outcome(server, 1, [5]) == "acknowledged"
    note, _ = server.put("job", JOB, RoundAttempt(1, 0), 1, MODEL, 3.0)
    assert note == WriteEvent("cleared", {"job": JOB, "round": 0, "attempt": 0, "count": 1, "clients": [5]})
    assert outcome(server, 2, [6]) == "refused"


def test_updates_of_a_later_attempt_wait_for_its_model() -> None:
    server = root("fixed", demand=2)
    later = RoundAttempt(0, 2)
    assert outcome(server, 0, [4]) == "acknowledged"
    assert outcome(server, 1, [4, 5], later) == "acknowledged"
    assert server.put("job", JOB, later, 2, MODEL, 3.0)[0] == WriteEvent(
        "cleared", {"job": JOB, "round": 0, "attempt": 0, "count": 1, "clients": [4]}
    )
    assert server.put("job", JOB, later, 2, MODEL, 3.5) == (Answer("job", {}),)
    assert outcome(server, 2, [6]) == "late"
    note, _ = server.job_get("j", JOB, 0, 4.0)
    assert isinstance(note, WriteEvent) and (note.fields["order"], note.fields["attempt"]) == ([[4, 5]], 2)


def test_without_leaf_servers_each_update_is_a_sum_of_one() -> None:
    server = RootServer("fixed", verify=True)
    server.put("job", JOB, FIRST, 3, MODEL, 0.0)
    for client in (8, 3, 5):
        payload = as_bytes(draw(1, JOB, 0, client, SIZE))
        server.push(None, UpdateId(JOB, FIRST, client), payload, 1.0)
    note, answer = server.job_get("j", JOB, 0, 2.0)
    assert isinstance(note, WriteEvent) and note.fields["order"] == [[8], [3], [5]]
    total = expected(note.fields["order"], 1, JOB, 0, SIZE)
    assert note.fields["crc"] == crc(total)
    assert isinstance(answer, Answer) and answer.payload == total.tobytes()
