"""The metrics of edge runs, from timelines written by hand and drawn at random."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.propius.metrics import EdgeMeter, edge_metrics
from railyard.timeline import Event


def event(kind: str, t: float, end: float | None = None, **fields: Any) -> Event:
    return Event(t, "edge", kind, end, fields)


def work(client: int, t: float, end: float, outcome: str = "acknowledged", job: int = 0, round: int = 0) -> list[Event]:
    """A client downloads for 1 s, trains, and uploads for 1 s."""
    of = {"client": client, "job": job, "round": round}
    return [
        event("get", t, t + 1, bytes=100, hit=True, **of),
        event("train", t + 1, end - 1, late_s=0.0, **of),
        event("push", end - 1, end, bytes=100, outcome=outcome, **of),
    ]


def done(t: float, end: float, clients: int, scheduling_s: float, job: int = 0, round: int = 0) -> Event:
    fields = {"job": job, "round": round, "clients": clients, "attempt": 0}
    return event("round", t, end, scheduling_s=scheduling_s, response_s=end - t - scheduling_s, **fields)


ONE_ROUND = [
    event("registered", 10, job=0),
    event("request", 10, job=0, round=0, demand=2, attempt=0),
    event("checkin", 11, client=1, offers=1),
    event("checkin", 11, client=2, offers=1),
    event("checkin", 12, client=3, offers=1),
    event("bound", 11, client=1, job=0, round=0),
    event("bound", 12, client=2, job=0, round=0),
    event("refused", 12, client=3, job=0),
    event("scheduled", 12, job=0, round=0, bound=2),
    *work(1, 12, 18),
    *work(2, 12, 20),
    done(10, 20, clients=2, scheduling_s=2),
    event("finished", 20, job=0),
]


def test_one_round_by_hand() -> None:
    metrics = edge_metrics(ONE_ROUND)
    assert metrics.length_s == 10
    assert metrics.jct_s == 10 and metrics.unfinished == ()
    assert metrics.utilisation == pytest.approx(14 / 20)
    assert metrics.active_share == pytest.approx(14 / 30)
    assert metrics.bindings_per_s == pytest.approx(0.2) and metrics.completed_clients_per_s == pytest.approx(0.2)
    assert (metrics.scheduling_s, metrics.response_s) == (2, 8)
    assert metrics.updates.acknowledged == 2 and metrics.updates.lost == 0


def test_a_job_that_does_not_finish_is_not_averaged_in() -> None:
    metrics = edge_metrics(
        [*ONE_ROUND, event("registered", 15, job=1), event("timeout", 95, job=1, round=0, phase="scheduling")]
    )
    assert metrics.jct_s == 10
    assert metrics.unfinished == (1,)
    assert [job.jct_s for job in metrics.jobs] == [10, None]
    assert metrics.length_s == 85


def test_a_round_that_was_repeated_counts_its_attempts() -> None:
    metrics = edge_metrics([*ONE_ROUND[:2], event("timeout", 15, job=0, round=0, phase="scheduling"), *ONE_ROUND[2:]])
    assert metrics.repeated == 1
    assert metrics.scheduling_s == 2 and metrics.scheduling_attempt_s == (5 + 2) / 2


def test_work_after_the_last_job_finished_does_not_count() -> None:
    metrics = edge_metrics([*ONE_ROUND, event("push", 16, 30, client=3, job=0, round=0, bytes=100, outcome="late")])
    assert metrics.length_s == 10
    assert metrics.active_share == pytest.approx((14 + 4) / 30)
    assert metrics.updates.late == 1


def flush(clients: list[int], outcome: str) -> Event:
    return event("flush", 18, 19, leaf=0, job=0, round=0, count=len(clients), clients=clients, outcome=outcome)


@pytest.mark.parametrize(
    ("flushes", "lost", "twice", "late"),
    [
        ([flush([1, 2], "acknowledged")], 0, 0, 0),
        ([flush([1], "acknowledged")], 1, 0, 0),
        ([flush([1], "acknowledged"), flush([2], "refused")], 1, 0, 0),
        ([flush([1], "acknowledged"), flush([2], "late")], 0, 0, 1),
        ([flush([1, 2], "acknowledged"), flush([2], "acknowledged")], 0, 1, 0),
    ],
)
def test_updates_are_followed_through_leaves(flushes: list[Event], lost: int, twice: int, late: int) -> None:
    counts = edge_metrics([*ONE_ROUND[:-2], *flushes, *ONE_ROUND[-2:]]).updates
    assert (counts.acknowledged, counts.lost, counts.twice, counts.late) == (2, lost, twice, late)


def test_the_order_of_a_sum_tells_what_it_holds() -> None:
    total = event("sum", 20, job=0, round=0, count=3, crc=0, order=[[1], [1, 2]])
    counts = edge_metrics([*ONE_ROUND[:-2], total, *ONE_ROUND[-2:]]).updates
    assert (counts.lost, counts.twice) == (0, 1)


def test_an_update_that_the_root_had_of_an_older_attempt_and_cleared_is_not_lost() -> None:
    cleared = event("cleared", 20, job=0, round=0, count=1, clients=[2])
    events = [*ONE_ROUND[:-2], flush([1], "acknowledged"), cleared, *ONE_ROUND[-2:]]
    assert edge_metrics(events).updates.lost == 0


def test_updates_of_an_attempt_that_timed_out_are_not_lost() -> None:
    again = [event("timeout", 20.5, job=0, round=0, phase="execution"), *work(3, 21, 29), done(10, 30, 1, 2)]
    counts = edge_metrics([*ONE_ROUND[:-2], *again]).updates
    assert (counts.acknowledged, counts.lost) == (3, 0)


def test_a_late_sum_of_the_attempt_before_hides_no_loss() -> None:
    timeout = event("timeout", 20, job=0, round=0, phase="execution")
    late = event("flush", 20, 21, leaf=0, job=0, round=0, attempt=0, count=1, clients=[1], outcome="late")
    again = [
        event(each.kind, each.t, each.end, **{**each.fields, "attempt": 1}) if each.kind == "push" else each
        for each in work(1, 21, 28)
    ]
    total = event("sum", 29, job=0, round=0, attempt=1, count=0, crc=0, order=[])
    counts = edge_metrics([*ONE_ROUND[:-2], timeout, late, *again, total, done(10, 30, 1, 2)]).updates
    assert (counts.acknowledged, counts.late, counts.lost) == (3, 1, 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(2.5, 20), st.floats(0, 9)), min_size=1, max_size=30))
def test_utilisation_is_at_most_one(works: list[tuple[int, float, float]]) -> None:
    """Clients work one thing after the other; the job ends before some of them do."""
    free = dict.fromkeys(range(4), 0.0)
    events = [event("registered", 0, job=0)]
    for client, length, pause in works:
        begin = free[client] + pause
        free[client] = begin + length
        events += work(client, begin, free[client])
    events.append(event("finished", 10, job=0))
    metrics = edge_metrics(events)
    assert metrics.utilisation is not None and 0 <= metrics.utilisation <= 1 + 1e-9


def test_events_of_other_sources_and_empty_runs_count_nothing() -> None:
    meter = EdgeMeter()
    meter.add(Event(0, "agent", "step", 1, {}))
    metrics = meter.result()
    assert metrics.jobs == () and metrics.utilisation is None and metrics.jct_s is None and metrics.length_s == 0


def test_a_response_that_timed_out_counts_as_long_as_it_was_waited_for() -> None:
    again = [event("timeout", 18, job=0, round=0, phase="execution"), *ONE_ROUND[-2:]]
    metrics = edge_metrics([*ONE_ROUND[:-2], *again])
    assert (metrics.response_s, metrics.response_attempt_s) == (8, (8 + 6) / 2)


def test_the_processor_time_of_a_check_in_is_that_of_all_managers() -> None:
    served = [event("served", 21, manager=m, checkins=n, processor_s=s) for m, n, s in ((0, 100, 0.1), (1, 300, 0.7))]
    assert edge_metrics([*ONE_ROUND, *served]).checkin_s == pytest.approx(0.002)
    assert edge_metrics(ONE_ROUND).checkin_s is None
