"""How many spares: the dynamic program against counting every outcome, and the paper's numbers."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.policies.spares import at_least_failed, draw_probabilities, spares_needed

GOLDEN = [
    (64, 0.00, 0.01, 2),
    (64, 0.01, 0.03, 4),
    (64, 0.03, 0.05, 6),
    (16, 0.00, 0.01, 2),
    (16, 0.01, 0.03, 2),
    (16, 0.03, 0.05, 3),
]
"""Groups, lowest and highest probability, K at SLO 95 %: MORPHLUX, arXiv 2508.03674 (64 chips, 16 servers)."""


@given(st.lists(st.floats(0, 1), max_size=7))
def test_z_is_what_counting_every_outcome_gives(probabilities: list[float]) -> None:
    tails = at_least_failed(probabilities)
    assert len(tails) == len(probabilities) + 1
    for least, tail in enumerate(tails):
        counted = sum(
            prod(p if fails else 1 - p for p, fails in zip(probabilities, outcome, strict=True))
            for outcome in product((True, False), repeat=len(probabilities))
            if sum(outcome) >= least
        )
        assert tail == pytest.approx(counted, abs=1e-12)


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0, 0.999))
def test_as_many_spares_as_needed_and_not_one_more(probabilities: list[float], slo: float) -> None:
    spares, z = spares_needed(probabilities, slo), at_least_failed(probabilities)
    assert z[spares] <= 1 - slo or spares == len(probabilities)
    assert spares == 0 or z[spares - 1] > 1 - slo


@pytest.mark.parametrize(("groups", "low", "high", "spares"), GOLDEN)
def test_the_papers_numbers(groups: int, low: float, high: float, spares: int) -> None:
    """For the mean over all draws exactly (Z is linear in each probability), and for nine draws of ten and more."""
    assert spares_needed([(low + high) / 2] * groups, 0.95) == spares
    drawn = [spares_needed(draw_probabilities(groups, low, high, seed), 0.95) for seed in range(200)]
    assert drawn.count(spares) >= 180


def test_draws_are_of_their_seed_and_range() -> None:
    drawn = draw_probabilities(64, 0.01, 0.03, seed=7)
    assert drawn == draw_probabilities(64, 0.01, 0.03, seed=7) != draw_probabilities(64, 0.01, 0.03, seed=8)
    assert all(0.01 <= p <= 0.03 for p in drawn) and max(drawn) - min(drawn) > 0.01


def test_groups_that_always_fail_need_a_spare_each_and_no_more() -> None:
    assert spares_needed([1.0] * 5, 0.99) == 5
    assert spares_needed([0.0] * 5, 0.99) == 1
    assert spares_needed([], 0.99) == 0
