"""Heartbeats: who is silent, and when to look."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controllers.engine.liveness import Liveness


def test_nobody_is_watched_before_the_first_sign_of_life() -> None:
    liveness = Liveness()
    assert not liveness.heard(3, 1.0)
    assert liveness.next_check() is None and not liveness.silent(99.0) and liveness.last(3) is None


def test_silence_begins_exactly_when_the_patience_is_over() -> None:
    liveness = Liveness()
    liveness.watch(3, 0.3, 1.0)
    assert liveness.heard(3, 1.2)
    assert liveness.next_check() == 1.5
    assert not liveness.silent(1.4999)
    assert liveness.silent(1.5) == [(3, 1.2)]


def test_the_longest_silent_comes_first_and_the_next_look_is_for_the_first_to_be_silent() -> None:
    liveness = Liveness()
    liveness.watch(1, 1.0, 0.2)
    liveness.watch(2, 1.0, 0.1)
    liveness.watch(3, 0.1, 5.0)
    assert liveness.next_check() == 1.1
    assert liveness.silent(2.0) == [(2, 0.1), (1, 0.2)]


def test_whoever_is_forgotten_is_not_heard_any_more() -> None:
    liveness = Liveness()
    liveness.watch(1, 1.0, 0.0)
    liveness.forget([1, 7])
    assert not liveness.heard(1, 0.5) and liveness.next_check() is None and liveness.last(1) is None


@given(
    st.dictionaries(st.integers(0, 20), st.floats(0, 1e6, allow_nan=False), min_size=1),
    st.floats(1e-4, 100, allow_nan=False),
)
def test_a_look_at_the_moment_that_it_named_finds_somebody(beats: dict[int, float], patience_s: float) -> None:
    liveness = Liveness()
    for rank, heard in beats.items():
        liveness.watch(rank, patience_s, heard)
    moment = liveness.next_check()
    assert moment is not None and liveness.silent(moment)
