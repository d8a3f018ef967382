"""Heartbeats: who is silent, and when to look."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.liveness import STALL_S, Liveness, stall_limit_s


def test_nobody_is_watched_before_the_first_sign_of_life() -> None:
    liveness = Liveness()
    assert not liveness.heard(3, 1.0)
    assert liveness.next_check() is None and not liveness.silent(99.0) and liveness.last(3) is None


def test_silence_begins_exactly_when_the_patience_is_over() -> None:
    liveness = Liveness()
    liveness.watch(3, 0.1, 3, 1.0)
    assert liveness.heard(3, 1.2)
    assert liveness.next_check() == pytest.approx(1.5)
    assert not liveness.silent(1.4999)
    (silence,) = liveness.silent(1.5001)
    assert silence == (3, 1.2, False, 0.1, 3)
    assert silence.cause(1.5) == "its agent missed 3 heartbeats of 0.1 s"


def test_the_longest_silent_comes_first_and_the_next_look_is_for_the_first_to_be_silent() -> None:
    liveness = Liveness()
    liveness.watch(1, 1.0, 1, 0.2)
    liveness.watch(2, 1.0, 1, 0.1)
    liveness.watch(3, 0.1, 1, 5.0)
    assert liveness.next_check() == 1.1
    assert [silence[:2] for silence in liveness.silent(2.0)] == [(2, 0.1), (1, 0.2)]


def test_whoever_is_forgotten_is_not_heard_any_more() -> None:
    liveness = Liveness()
    liveness.watch(1, 1.0, 1, 0.0)
    liveness.forget([1, 7])
    assert not liveness.heard(1, 0.5) and liveness.next_check() is None and liveness.last(1) is None


@given(
    st.dictionaries(st.integers(0, 20), st.floats(0, 1e6, allow_nan=False), min_size=1),
    st.floats(1e-4, 100, allow_nan=False),
)
def test_a_look_at_the_moment_that_it_named_finds_somebody(beats: dict[int, float], patience_s: float) -> None:
    liveness = Liveness()
    for rank, heard in beats.items():
        liveness.watch(rank, patience_s, 1, heard)
    moment = liveness.next_check()
    assert moment is not None and liveness.silent(moment)


EVERY_S, MISSES = 0.25, 3


def test_a_loop_that_answers_no_more_hangs_though_heartbeats_come() -> None:
    liveness, now = Liveness(), 10.0
    for beat in range(20):
        liveness.watch(1, EVERY_S, MISSES, now, 0) if not beat else liveness.heard(1, now, min(beat, 4))
        liveness.watch(2, EVERY_S, MISSES, now, 0) if not beat else liveness.heard(2, now, beat)
        liveness.watch(3, EVERY_S, MISSES, now) if not beat else liveness.heard(3, now)
        silent = liveness.silent(now + EVERY_S)
        if silent:
            break
        now += EVERY_S
    (silence,) = silent
    assert (silence.rank, silence.hangs, silence.since) == (1, True, 11.0)
    assert liveness.next_check() == 11.0 + stall_limit_s(EVERY_S, MISSES) <= now + EVERY_S
    assert "its loop has stood still for" in silence.cause(now)


@pytest.mark.parametrize("misses", [1, 2, 3, 5])
def test_a_hanging_loop_is_named_within_as_many_heartbeats_as_a_silent_one_and_a_second(misses: int) -> None:
    # it stops right after an answer, which the next heartbeat tells
    assert EVERY_S + stall_limit_s(EVERY_S, misses) <= max(misses, 2) * EVERY_S + 1.0
    assert stall_limit_s(EVERY_S, misses) >= EVERY_S + STALL_S, "a loop may be late by a piece of work"


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=40))
def test_only_who_has_not_answered_for_long_enough_hangs(beats: list[tuple[float, bool]]) -> None:
    liveness, now, answers = Liveness(), 0.0, 0
    liveness.watch(1, EVERY_S, MISSES, now, answers)
    heard = answered = now
    for gap_s, answers_it in beats:
        now += gap_s
        late = now >= heard + EVERY_S * MISSES
        stalled = heard > answered and now >= answered + stall_limit_s(EVERY_S, MISSES)
        assert [silence.hangs for silence in liveness.silent(now)] == ([not late] if late or stalled else [])
        moment = liveness.next_check(now)
        assert moment is not None and (late or stalled or moment > now), "a check that finds nobody is not repeated"
        answers, answered = (answers + 1, now) if answers_it else (answers, answered)
        liveness.heard(1, now, answers)
        heard = now


def test_one_that_falls_silent_right_after_an_answer_has_the_time_of_all_its_heartbeats() -> None:
    liveness = Liveness()
    liveness.watch(1, 10.0, 3, 0.0, 0)
    assert liveness.next_check() == stall_limit_s(10.0, 3) < 30.0
    assert not liveness.silent(29.9) and liveness.next_check(29.9) == 30.0
    (silence,) = liveness.silent(30.0)
    assert not silence.hangs


def test_one_that_has_missed_all_heartbeats_but_one_is_overdue_and_never_one_of_a_single_heartbeat() -> None:
    liveness = Liveness()
    liveness.watch(1, 0.25, 3, 1.0)
    liveness.watch(2, 0.25, 3, 1.2)
    liveness.watch(3, 0.25, 1, 0.0)
    assert liveness.overdue([1, 2, 3, 4], 1.5) == [1]
    assert liveness.overdue([1, 2, 3, 4], 1.7) == [1, 2]
