from __future__ import annotations

from typing import Any

from edge.jobs import edge_job

from experiments.propius.data.jobs import (
    TEN_JOBS,
    EndRequest,
    FinishJob,
    JobRounds,
    Poll,
    Put,
    RegisterJob,
    RequestClients,
    Sleep,
    WriteEvent,
)


def rounds(demand: int = 10, over: float = 1.2, count: int = 2) -> JobRounds:
    """A job that is told its clients unasked, after REGISTER and the first REQUEST at second 0."""
    tested = JobRounds(edge_job(demand=demand, rounds=count, over_selection=over))
    assert tested.start(0.0) == (RegisterJob(),)
    assert tested.registered(4, 0.0) == (RequestClients(0, int(over * demand), 0), Sleep(100.0))
    return tested


def event(kind: str, round: int, began: float | None = None, **fields: Any) -> WriteEvent:
    return WriteEvent(kind, {"job": 4, "round": round, **fields}, began)


def done(round: int, began: float, scheduling_s: float, response_s: float, attempt: int) -> WriteEvent:
    times = {"scheduling_s": scheduling_s, "response_s": response_s}
    return event("round", round, began, **times, clients=12, attempt=attempt)


def executing(tested: JobRounds, now: float) -> None:
    tested.bound(tested.job.selected, now)
    tested.put(now)


def test_a_job_goes_from_request_to_put_to_polls_and_finishes_after_its_last_round() -> None:
    tested = rounds()
    assert tested.bound(11, 5.0) == ()
    assert tested.bound(12, 8.0) == (
        event("scheduled", 0, bound=12),
        Put(0, 0),
        Sleep(500.0),
    )
    assert tested.put(9.0) == (Sleep(5.0),)
    assert tested.woke(14.0) == (Poll(0), Sleep(494.0)), "a root that hangs does not hold up the timer"
    assert tested.polled(9, 14.1) == (Sleep(5.0),)
    ended, request, _ = tested.polled(14, 20.0)
    assert ended == done(0, 0.0, 8.0, 12.0, 0)
    assert request == RequestClients(1, 12, 0)
    executing(tested, 30.0)
    assert tested.polled(10, 40.0) == (
        done(1, 20.0, 10.0, 10.0, 0),
        FinishJob(),
    )
    assert tested.woke(41.0) == tested.polled(10, 41.0) == tested.forgotten(41.0) == ()


def test_the_scheduling_timer_ends_the_request_and_enough_clients_are_enough() -> None:
    tested = rounds()
    assert tested.woke(100.0) == (EndRequest(0),)
    assert tested.ended(10, 100.1) == (
        event("scheduled", 0, bound=10),
        Put(0, 0),
        Sleep(500.0),
    )


def test_with_too_few_clients_the_round_starts_again() -> None:
    tested = rounds()
    tested.woke(100.0)
    assert tested.ended(9, 100.0) == (
        event("timeout", 0, phase="scheduling"),
        RequestClients(0, 12, 1),
        Sleep(100.0),
    )
    executing(tested, 130.0)
    ended, *_ = tested.polled(10, 150.0)
    assert ended == done(0, 0.0, 30.0, 20.0, 1), "it began with the first attempt"


def test_the_execution_timer_starts_the_round_again() -> None:
    tested = rounds()
    executing(tested, 10.0)
    assert tested.polled(3, 508.0) == (Sleep(2.0),), "never beyond the timer"
    assert tested.woke(510.0) == (
        event("timeout", 0, phase="execution"),
        RequestClients(0, 12, 1),
        Sleep(100.0),
    )
    assert tested.polled(12, 511.0) == (), "an answer to the attempt before comes too late"


def test_a_job_that_the_manager_has_forgotten_registers_anew_and_repeats_its_round() -> None:
    tested = rounds()
    executing(tested, 10.0)
    tested.polled(12, 20.0)
    assert tested.forgotten(21.0) == (RegisterJob(),)
    assert tested.registered(9, 22.0) == (RequestClients(1, 12, 1), Sleep(100.0))
    assert tested.number == 9


def test_timers_are_those_of_the_job_and_scale() -> None:
    tested = JobRounds(TEN_JOBS[0], 0.5)
    assert tested.registered(0, 0.0)[1] == Sleep(200.0)
    assert tested.bound(TEN_JOBS[0].selected, 0.0)[2] == Sleep(200.0)
    assert tested.put(0.0) == (Sleep(2.5),)
