from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.stragglers.detector import MEMORY_STEPS, Detector, late_rank
from workloads.stragglers.injection import parse_injection

JITTER_S = 0.0005


class Predictor(Protocol):
    def observe(self, arrivals: Sequence[float]) -> None: ...

    def predict(self) -> int: ...


class LastLate:
    """A rival: who was late last is late again."""

    def __init__(self, n: int) -> None:
        self._last = n - 1

    def observe(self, arrivals: Sequence[float]) -> None:
        late = late_rank(arrivals)
        self._last = late[0] if late else self._last

    def predict(self) -> int:
        return self._last


class MeanLateness:
    """A rival: the highest exponential mean of the lateness, with hysteresis."""

    def __init__(self, n: int, weight: float = 0.25, hysteresis: float = 1.2) -> None:
        self._means = [0.0] * n
        self._predicted = n - 1
        self._weight, self._hysteresis = weight, hysteresis

    def observe(self, arrivals: Sequence[float]) -> None:
        usual = statistics.median(arrivals)
        pairs = zip(self._means, arrivals, strict=True)
        self._means = [(1 - self._weight) * mean + self._weight * (t - usual) for mean, t in pairs]
        highest = max(range(len(arrivals)), key=self._means.__getitem__)
        if self._means[highest] > self._hysteresis * self._means[self._predicted]:
            self._predicted = highest

    def predict(self) -> int:
        return self._predicted


def trace(text: str, n: int, steps: int, rank: int, seed: int) -> list[list[float]]:
    """Arrivals of every step under an injection, with the jitter that every rank has."""
    delays = parse_injection(text).delays(n, steps, rank, seed)
    jitter = random.Random(seed)
    return [[JITTER_S * jitter.random() + delays[r][step] for r in range(n)] for step in range(steps)]


def play(detector: Predictor, arrivals: list[list[float]]) -> list[int]:
    """What is predicted before each step."""
    predicted = []
    for step in arrivals:
        predicted.append(detector.predict())
        detector.observe(step)
    return predicted


def right(predicted: list[int], arrivals: list[list[float]]) -> float:
    """Share of the steps with a late rank in which it was predicted."""
    late = [late_rank(step) for step in arrivals]
    return statistics.fmean(guess == who[0] for guess, who in zip(predicted, late, strict=True) if who)


def changes(predicted: list[int]) -> int:
    return sum(a != b for a, b in pairwise(predicted))


@given(
    n=st.integers(2, 16),
    before=st.lists(st.integers(0, 15), max_size=20),
    rank=st.integers(0, 15),
    memory=st.integers(1, 20),
    margin=st.integers(1, 20),
)
def test_follows_a_persistent_straggler_whatever_was_before(
    n: int, before: list[int], rank: int, memory: int, margin: int
) -> None:
    margin = min(margin, memory)
    detector = Detector(n, memory=memory, margin=margin)
    for late in before:
        detector.observe([0.3 * (r == late % n) for r in range(n)])
    for _ in range((memory + margin + 1) // 2):
        detector.observe([0.3 * (r == rank % n) for r in range(n)])
    assert detector.predict() == rank % n
    assert detector.gap_s == pytest.approx(0.3)


@pytest.mark.parametrize("p", [0.77, 0.9, 0.98])
@pytest.mark.parametrize("gaps", ["persistent:0.3", "lognormal:7ms,0.78"])
def test_is_right_in_about_the_share_of_steps_that_can_be_known(p: float, gaps: str) -> None:
    shares = []
    for seed in range(20):
        arrivals = trace(f"{gaps}@{p}", 8, 300, seed % 8, seed)
        late = [late_rank(step) for step in arrivals]
        known = sum(who is not None and who[0] == seed % 8 for who in late) / len(late)
        shares.append(right(play(Detector(8), arrivals), arrivals) - known)
    assert -0.02 <= statistics.fmean(shares) <= 0.01, "as good as knowing the persistent rank, less a short start"


@pytest.mark.parametrize("rival", [LastLate, MeanLateness])
@pytest.mark.parametrize("p", [0.77, 0.9])
def test_is_better_and_calmer_than_its_rivals(rival: Callable[[int], Predictor], p: float) -> None:
    ours, theirs, our_changes, their_changes = 0.0, 0.0, 0, 0
    for seed in range(20):
        arrivals = trace(f"lognormal:7ms,0.78@{p}", 8, 200, seed % 8, seed)
        mine, other = play(Detector(8), arrivals), play(rival(8), arrivals)
        ours, theirs = ours + right(mine, arrivals) / 20, theirs + right(other, arrivals) / 20
        our_changes, their_changes = our_changes + changes(mine), their_changes + changes(other)
    assert ours > theirs + 0.01, f"{ours:.3f} against {theirs:.3f}"
    assert our_changes * 2 < their_changes, f"{our_changes} against {their_changes}"


@given(seed=st.integers(0, 200), p=st.sampled_from([0.9, 0.98]))
def test_does_not_flap_once_it_knows(seed: int, p: float) -> None:
    predicted = play(Detector(8), trace(f"persistent:0.3@{p}", 8, 200, seed % 8, seed))
    assert changes(predicted[MEMORY_STEPS:]) <= 2


def test_two_ranks_that_take_turns_do_not_take_the_prediction_in_turns() -> None:
    arrivals = [[0.3 * (r == 2 + step % 2) for r in range(6)] for step in range(40)]
    assert changes(play(Detector(6), arrivals)) <= 1


def test_chance_is_no_vote() -> None:
    detector = Detector(4, first=1, least_s=0.001)
    for _ in range(10):
        detector.observe([0.0, 0.0, 0.0, 0.0005])
    assert detector.predict() == 1 and detector.gap_s == 0.0
    detector.observe([0.0, 0.0, 0.0, 0.002])
    assert detector.predict() == 3


def test_late_rank_is_measured_against_the_one_before() -> None:
    assert late_rank([0.1, 0.7, 0.4]) == (1, pytest.approx(0.3))
    assert late_rank([0.1, 0.1]) is None and late_rank([0.1]) is None
    assert late_rank([0.1, 0.7, 0.4], least_s=0.31) is None
