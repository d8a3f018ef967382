"""Everybody meets everybody exactly once, in as few turns as can be."""

from __future__ import annotations

from itertools import combinations, permutations

from hypothesis import example, given
from hypothesis import strategies as st

from controllers.circuits.matchings import cyclic_shifts, one_factorization

sizes = st.integers(2, 65)


@given(sizes)
@example(32)
def test_each_pair_meets_once_and_nobody_twice_in_a_turn(n: int) -> None:
    """PIP, arXiv 2501.18136, has n = 32: 31 matchings of 16 circuits."""
    turns = one_factorization(n)
    assert len(turns) == (n - 1 if n % 2 == 0 else n)
    assert sorted(pair for slot_window in turns for pair in slot_window) == list(combinations(range(n), 2))
    for slot_window in turns:
        positions = [position for pair in slot_window for position in pair]
        assert len(slot_window) == n // 2
        assert len(set(positions)) == len(positions)


@given(sizes.filter(lambda n: n % 2 == 1))
def test_of_an_odd_number_each_has_one_bye(n: int) -> None:
    byes = [set(range(n)) - {p for pair in slot_window for p in pair} for slot_window in one_factorization(n)]
    assert byes == [{r} for r in range(n)]


@given(sizes.filter(lambda n: n % 2 == 0))
def test_turn_r_joins_the_last_to_r_and_mirrors_the_others_around_it(n: int) -> None:
    for r, slot_window in enumerate(one_factorization(n)):
        for a, b in slot_window:
            assert (b == n - 1 and a == r) or (a + b - 2 * r) % (n - 1) == 0


@given(sizes)
def test_shifts_bring_each_to_each_once(n: int) -> None:
    shifts = cyclic_shifts(n)
    assert len(shifts) == n - 1
    assert sorted((i, p[i]) for p in shifts for i in range(n)) == list(permutations(range(n), 2))
    assert all(sorted(p) == list(range(n)) for p in shifts)
