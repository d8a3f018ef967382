from __future__ import annotations

import random
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.stragglers.detector import MEMORY_STEPS, Detector, late_rank
from workloads.stragglers.injection import parse_injection

JITTER_S = 0.0005


def trace(text: str, n: int, steps: int, rank: int, seed: int) -> list[list[float]]:
    """Arrivals of every step under an injection, with the jitter that every rank has."""
    delays = parse_injection(text).delays(n, steps, rank, seed)
    jitter = random.Random(seed)
    return [[JITTER_S * jitter.random() + delays[r][step] for r in range(n)] for step in range(steps)]


def play(detector: Detector, arrivals: list[list[float]]) -> list[int]:
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


@given(n=st.integers(2, 16), before=st.lists(st.integers(0, 15), max_size=20), rank=st.integers(0, 15))
def test_follows_a_persistent_straggler_whatever_was_before(n: int, before: list[int], rank: int) -> None:
    detector = Detector(n)
    for late in before:
        detector.observe([0.3 * (r == late % n) for r in range(n)])
    for _ in range(5):
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
