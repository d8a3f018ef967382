"""Agents of a launch that hang: which one is named, and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from railyard.liveness import stall_limit_s
from workloads.agent.launcher import MISSES, Hang, HangWatch

EVERY_S = 2.0
ALL_SILENT = Hang(-1, "the process that starts the agents hangs", "no agent has sent a heartbeat for 6.0 s")


def beaten(watch: HangWatch, until: float, hung: int, stopped: int, since: float) -> tuple[float, Hang]:
    """Let three ranks beat until one is complained about: ``hung`` answers no more, ``stopped`` is silent ``since``."""
    for beat in range(int(until / EVERY_S)):
        now = beat * EVERY_S
        while (moment := watch.next_check()) <= now:
            if (found := watch.complaint(moment)) is not None:
                return moment, found
        for rank in range(3):
            if rank != stopped or now < since:
                answers = beat if rank != hung or now < since else int(since / EVERY_S)
                watch.heard(rank, EVERY_S, answers, now)
    raise AssertionError("nobody is complained about")


def test_nobody_is_complained_about_before_its_first_heartbeat() -> None:
    watch = HangWatch()
    assert watch.next_check() == float("inf") and watch.complaint(1e9) is None


def test_a_rank_whose_loop_stands_still_is_named_and_not_those_that_wait_for_it() -> None:
    moment, (rank, _, what) = beaten(HangWatch(), 100.0, hung=1, stopped=-1, since=20.0)
    assert rank == 1 and what == "its loop has stood still for 4.7 s, perhaps for a disk that takes no data"
    assert moment <= 20.0 + MISSES * EVERY_S + 1.0


def test_a_rank_that_was_stopped_is_named() -> None:
    moment, (rank, _, what) = beaten(HangWatch(), 100.0, hung=-1, stopped=2, since=20.0)
    assert (rank, what) == (2, "it has sent no heartbeat for 6.0 s")
    assert moment <= 20.0 + MISSES * EVERY_S + 1.0


def test_one_that_has_ended_is_not_named() -> None:
    watch = HangWatch()
    watch.heard(0, EVERY_S, 0, 0.0)
    watch.ended(0)
    assert watch.next_check() == float("inf")


def test_silence_of_all_is_not_the_fault_of_one() -> None:
    watch = HangWatch()
    for rank in range(3):
        watch.heard(rank, EVERY_S, 0, 0.0)
    assert watch.complaint(stall_limit_s(EVERY_S, MISSES)) is None
    assert watch.next_check() == 6.0
    assert watch.complaint(6.0) == (
        -1,
        "the process that starts the agents hangs",
        "no agent has sent a heartbeat for 6.0 s",
    )


def test_agents_that_fall_silent_one_after_another_within_an_interval_fall_silent_together() -> None:
    watch = HangWatch()
    for rank, heard in enumerate((0.0, 0.7, 1.9)):
        watch.heard(rank, EVERY_S, 0, heard)
    while (found := watch.complaint(watch.next_check())) is None:
        assert watch.next_check() < 10.0
    assert found == ALL_SILENT
    assert watch.next_check() >= 1.9 + MISSES * EVERY_S


def test_loops_that_all_stand_still_are_not_the_fault_of_the_launcher() -> None:
    watch = HangWatch()
    for beat in range(5):
        for rank in range(2):
            watch.heard(rank, EVERY_S, 0, beat * EVERY_S)
    found = watch.complaint(watch.next_check())
    assert found is not None and found[:2] == (-1, "all 2 agents hang")
    assert found.what.startswith("their loops have stood still for 4.7 s, perhaps")


@given(st.floats(0.2, 1e4))
def test_a_check_that_is_late_itself_waits_for_heartbeats_that_are_late_too(late_s: float) -> None:
    watch = HangWatch()
    watch.heard(0, EVERY_S, 0, 0.0)
    now = watch.next_check() + late_s
    assert watch.complaint(now) is None
    assert now < watch.next_check() < now + 1.0
    if late_s % 1 < 0.5:
        watch.heard(0, EVERY_S, 1, now + 0.1)
    complaint = watch.complaint(now + 0.5)
    assert (complaint is None) == (late_s % 1 < 0.5 or now + 0.5 < 3 * EVERY_S)
