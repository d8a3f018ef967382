from __future__ import annotations

import pytest

from experiments.propius.data.jobs import WriteEvent
from experiments.propius.data.messages import Mode, RoundAttempt, SumId, UpdateId
from experiments.propius.data.servers import (
    Added,
    Answer,
    Closed,
    Fetch,
    Flush,
    LeafServer,
    Record,
    RefuseRequest,
    RootServer,
    Sealed,
    Started,
    as_bytes,
    crc,
    draw,
    expected,
)

FIRST = RoundAttempt(0, 0)


def update(client: int, stage: RoundAttempt = FIRST, job: int = 1) -> UpdateId:
    return UpdateId(job, stage, client)


def leaf(mode: Mode = "fixed") -> LeafServer:
    server = LeafServer(3, mode, idle_s=10)
    server.start(0)
    return server


@pytest.mark.parametrize(("mode", "fetches"), [("authors", 3), ("fixed", 1)])
def test_misses_at_once_fetch_each_or_together(mode: Mode, fetches: int) -> None:
    server = leaf(mode)
    asked = [action for token in "abc" for action in server.get(token, 1, 0, 0.0)]
    assert asked == [Fetch(number + 1, 1, 0) for number in range(fetches)]
    answers = [action for number in range(fetches) for action in server.fetched(number + 1, MODEL, 1.0)]
    assert answers == [Answer(token, {"hit": False}, MODEL) for token in "abc"]
    assert server.get("d", 1, 0, 2.0) == (Answer("d", {"hit": True}, MODEL),)
    assert server.get("e", 1, 1, 2.0) == (Fetch(fetches + 1, 1, 1),)


def test_a_model_that_is_not_there_yet_is_absent_and_one_that_was_is_over() -> None:
    server = leaf()
    server.get("a", 1, 4, 0.0)
    assert server.fetched(1, None, 1.0) == (Answer("a", {"hit": False, "absent": True}),)
    server.get("b", 1, 4, 2.0)
    assert server.fetched(2, None, 3.0, "the root is gone") == (RefuseRequest("b", "the root is gone"),)
    server.get("c", 1, 4, 4.0)
    server.fetched(3, MODEL, 5.0)
    assert server.get("d", 1, 3, 6.0) == (RefuseRequest("d", "round 3 of job 1 is over"),)


def test_a_sum_is_flushed_after_ten_idle_seconds() -> None:
    server = leaf()
    assert server.due() is None
    assert server.push("a", update(5), b"", 0.0) == (Added(update(5)), Answer("a", {"outcome": "acknowledged"}))
    server.push("b", update(2), b"", 4.0)
    assert server.due() == 14.0
    assert server.tick(13.9) == ()
    flush = Flush(SumId(3, 0, 0), 1, FIRST, (5, 2), None)
    assert server.tick(14.0) == (Sealed(flush.sum_id, 1), flush)
    fields = {"leaf": 3, "job": 1, "round": 0, "attempt": 0, "count": 2, "clients": [5, 2], "outcome": "late"}
    assert server.flushed(flush.sum_id, "late", 15.0) == (WriteEvent("flush", fields, 14.0), Closed(flush.sum_id))
    assert server.due() is None


def test_authors_let_updates_wait_for_a_flush_and_ignore_its_answer() -> None:
    server = leaf("authors")
    server.push("a", update(1), b"", 0.0)
    server.push("b", update(2, job=2), b"", 0.0)
    (first,) = server.tick(10.0)
    assert isinstance(first, Flush) and first.clients == (1,)
    assert server.push("c", update(3), b"", 11.0) == ()
    note, second = server.flushed(first.sum_id, "refused", 12.0)
    assert isinstance(note, WriteEvent) and note.fields["outcome"] == "refused"
    assert isinstance(second, Flush) and second.clients == (2,)
    note, answer = server.flushed(second.sum_id, None, 13.0)
    assert isinstance(note, WriteEvent) and note.fields["outcome"] == "dropped"
    assert answer == Answer("c", {"outcome": "acknowledged"})
    assert server.due() == 23.0


def test_fixed_takes_updates_beside_a_flush_and_sends_it_again_under_the_same_identity() -> None:
    server = leaf()
    server.push("a", update(1), b"", 0.0)
    _, flush = server.tick(10.0)
    assert isinstance(flush, Flush)
    assert server.push("b", update(2), b"", 11.0)[-1] == Answer("b", {"outcome": "acknowledged"})
    assert server.flushed(flush.sum_id, None, 12.0) == ()
    assert server.due() == 13.0
    assert server.tick(13.0) == (flush,)
    _, second = server.tick(21.0)
    assert isinstance(second, Flush) and second.clients == (2,) and second.sum_id != flush.sum_id


@pytest.mark.parametrize(("mode", "outcome", "older"), [("authors", "dropped", "refused"), ("fixed", "late", "late")])
def test_an_update_of_a_newer_round_ends_the_older_sum(mode: Mode, outcome: str, older: str) -> None:
    server = leaf(mode)
    server.push("a", update(1), b"", 0.0)
    notes = [
        action for action in server.push("b", update(2, RoundAttempt(1, 0)), b"", 1.0) if isinstance(action, WriteEvent)
    ]
    assert [(note.fields["clients"], note.fields["outcome"]) for note in notes] == [([1], outcome)]
    assert server.push("c", update(3), b"", 2.0) == (Answer("c", {"outcome": older}),)


def test_a_copy_of_an_update_is_acknowledged_and_not_added_also_by_the_next_incarnation() -> None:
    server = leaf()
    records: list[Record] = [Started(0), Added(update(1))]
    assert server.push("a", update(1), b"", 0.0)[:-1] == tuple(records[1:])
    assert server.push("b", update(1), b"", 1.0) == (Answer("b", {"outcome": "acknowledged"}),)
    second = LeafServer(3, "fixed", 10, records=records)
    assert second.start(5.0) == (Started(1),)
    assert second.push("c", update(1), b"", 6.0) == (Answer("c", {"outcome": "acknowledged"}),)
    assert second.due() == 15.0
    _, flush = second.tick(15.0)
    assert flush == Flush(SumId(3, 1, 0), 1, FIRST, (1,), None)
    third = LeafServer(3, "fixed", 10, records=[*records, Started(1), Sealed(SumId(3, 1, 0), 1)])
    assert third.start(20.0) == (Started(2), flush)


def test_each_attempt_of_a_round_has_a_sum_of_its_own_in_fixed_only() -> None:
    again = update(1, RoundAttempt(0, 1))
    for mode, clients in (("authors", (1, 1)), ("fixed", (1,))):
        server = LeafServer(3, mode, 10)  # type: ignore[arg-type]
        server.push("a", update(1), b"", 0.0)
        server.push("b", again, b"", 1.0)
        (flush,) = (action for action in server.tick(11.0) if isinstance(action, Flush))
        assert flush.clients == clients


def test_what_is_left_at_the_end_is_noted() -> None:
    server = leaf()
    server.push("a", update(1), b"", 0.0)
    (note,) = server.stop(1.0)
    assert isinstance(note, WriteEvent) and note.fields["clients"] == [1] and note.fields["outcome"] == "late"


JOB, SIZE = 2, 64
MODEL = bytes(SIZE)


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
