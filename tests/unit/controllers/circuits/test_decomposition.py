"""Turns of circuits for a demand: everything is served, no port is used twice, and it takes no longer than it must."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.circuits.decomposition import (
    Choice,
    DemandSlot,
    _heaviest,
    _in_demand_unit,
    _largest_first,
    _slots_by,
    _to_integers,
    birkhoff_von_neumann,
    check_demand,
    covering_matchings,
)
from controllers.circuits.matchings import one_factorization
from railyard.errors import ConfigError

Matrix = list[list[float]]
whole, fractions = st.integers(0, 9), st.floats(0, 1e12) | st.just(0.0)


def slots_by(choice: Choice) -> Callable[[Sequence[Sequence[float]]], tuple[DemandSlot, ...]]:
    """One of the methods that ``covering_matchings`` compares."""

    def make(matrix: Sequence[Sequence[float]]) -> tuple[DemandSlot, ...]:
        demand, unit = _to_integers(check_demand(matrix, len(matrix)))
        return _in_demand_unit(list(_slots_by(demand, choice)), unit)

    return make


greedy_matchings, optimal_matchings = slots_by(_largest_first), slots_by(_heaviest)
undirected = [greedy_matchings, optimal_matchings, covering_matchings]


@st.composite
def demands(draw: st.DrawFn, entries: st.SearchStrategy[float] = whole, most: int = 7) -> Matrix:
    """Demands of 2 to ``most`` positions, of which at least one demands something."""
    n = draw(st.integers(2, most))
    rows = draw(st.lists(st.lists(entries, min_size=n, max_size=n), min_size=n, max_size=n))
    for i in range(n):
        rows[i][i] = 0
    if not any(map(any, rows)):
        rows[n - 1][0] = draw(entries) or 1
    return rows


def line_sums(matrix: Matrix) -> list[float]:
    return [sum(line) for line in (*matrix, *zip(*matrix, strict=True))]


def partners(matrix: Matrix) -> int:
    """The most others that a position sends to, or receives from."""
    return int(max(line_sums([[entry > 0 for entry in row] for row in matrix])))


def served(turns: Sequence[DemandSlot], both_ways: bool) -> dict[tuple[int, int], float]:
    """How long each (sender, receiver) has a circuit."""
    found: dict[tuple[int, int], float] = defaultdict(float)
    for share in turns:
        assert share.length > 0 and share.pairs
        for a, b in share.pairs:
            found[a, b] += share.length
            if both_ways:
                found[b, a] += share.length
    return found


def covers(turns: Sequence[DemandSlot], matrix: Matrix, both_ways: bool) -> bool:
    time_of = served(turns, both_ways)
    return all(time_of[i, j] >= entry * (1 - 1e-12) for i, row in enumerate(matrix) for j, entry in enumerate(row))


def total(turns: Sequence[DemandSlot]) -> float:
    return sum(share.length for share in turns)


def check_directed(turns: Sequence[DemandSlot], matrix: Matrix) -> None:
    for share in turns:
        senders, receivers = zip(*share.pairs, strict=True)
        assert len(set(senders)) == len(senders) and len(set(receivers)) == len(receivers)
        assert all(matrix[i][j] > 0 for i, j in share.pairs), "a circuit for nothing"
    assert covers(turns, matrix, both_ways=False)


@given(demands() | demands(fractions))
@settings(deadline=None)
def test_as_many_permutations_as_it_takes_last_as_long_as_the_busiest_port(matrix: Matrix) -> None:
    turns = birkhoff_von_neumann(matrix)
    check_directed(turns, matrix)
    assert total(turns) == pytest.approx(max(line_sums(matrix)))
    assert len(turns) <= len(matrix) ** 2 - 2 * len(matrix) + 2


@given(demands() | demands(fractions), st.integers(0, 12))
@settings(deadline=None)
def test_bounded_permutations_still_serve_everything(matrix: Matrix, more: int) -> None:
    most = partners(matrix) + more
    turns = birkhoff_von_neumann(matrix, most)
    check_directed(turns, matrix)
    assert len(turns) <= most
    assert total(turns) >= max(line_sums(matrix)) * (1 - 1e-12)


@given(demands())
def test_too_few_slots_are_refused_with_the_least_that_work(matrix: Matrix) -> None:
    least = partners(matrix)
    assert len(birkhoff_von_neumann(matrix, least)) <= least
    if least > 1 and len(birkhoff_von_neumann(matrix)) > least - 1:
        with pytest.raises(ConfigError, match=f"most_slots: {least - 1} slots cannot.*at least {least} slots work"):
            birkhoff_von_neumann(matrix, least - 1)


def test_a_uniform_demand_becomes_n_1_equal_turns() -> None:
    matrix = [[0 if i == j else 5 for j in range(8)] for i in range(8)]
    for most in (0, 7, 100):
        turns = birkhoff_von_neumann(matrix, most)
        assert [share.length for share in turns] == [5.0] * 7
        assert sorted(pair for share in turns for pair in share.pairs) == [
            p for p in product(range(8), repeat=2) if p[0] != p[1]
        ]


def test_longest_first_and_only_as_long_as_something_is_left() -> None:
    matrix = [[0, 9, 1], [0, 0, 9], [9, 0, 0]]
    assert birkhoff_von_neumann(matrix) == (
        DemandSlot(((0, 1), (1, 2), (2, 0)), 9.0),
        DemandSlot(((0, 2),), 1.0),
    )


def test_one_slot_is_enough_for_a_permutation_whatever_it_demands() -> None:
    matrix = [[0, 1, 0], [0, 0, 8], [3, 0, 0]]
    assert birkhoff_von_neumann(matrix, 1) == (DemandSlot(((0, 1), (1, 2), (2, 0)), 8.0),)


def test_numbers_that_differ_in_everything_are_decomposed_exactly() -> None:
    matrix = [[0, 1e300, 1e-300], [0.1, 0, 0.2], [5e-324, 0.3, 0]]
    turns = birkhoff_von_neumann(matrix)
    assert covers(turns, matrix, both_ways=False)
    assert total(turns) == 1e300


def test_a_decomposition_for_32_ports_takes_a_moment() -> None:
    matrix: Matrix = [[0 if i == j else 1 + (i * 7919 + j * 104729) % 1000 for j in range(32)] for i in range(32)]
    began = time.process_time()
    turns = birkhoff_von_neumann(matrix, 40)
    assert time.process_time() - began < 20
    assert len(turns) <= 40 and covers(turns, matrix, both_ways=False)
    assert total(turns) < 1.5 * max(line_sums(matrix))


def test_more_slots_come_nearer_to_the_busiest_port() -> None:
    rng = random.Random(16)
    matrix: Matrix = [[0 if i == j else round(1e6 * rng.lognormvariate(0, 1)) for j in range(16)] for i in range(16)]
    lengths = [total(birkhoff_von_neumann(matrix, most)) / max(line_sums(matrix)) for most in (15, 24, 32, 64, 0)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] < 1.4 and lengths[2] < 1.1 and lengths[3] < 1.01


@pytest.mark.parametrize("make", undirected)
@given(matrix=demands() | demands(fractions))
@settings(deadline=None)
def test_matchings_serve_both_directions_of_each_pair_once(make: object, matrix: Matrix) -> None:
    turns: tuple[DemandSlot, ...] = make(matrix)  # type: ignore[operator]
    pairs = [pair for share in turns for pair in share.pairs]
    assert len(set(pairs)) == len(pairs)
    assert all(a < b and (matrix[a][b] or matrix[b][a]) for a, b in pairs)
    for share in turns:
        positions = [p for pair in share.pairs for p in pair]
        assert len(set(positions)) == len(positions)
        assert share.length == max(max(matrix[a][b], matrix[b][a]) for a, b in share.pairs)
    assert covers(turns, matrix, both_ways=True)
    assert total(turns) >= max(line_sums(matrix)) * (1 - 1e-12)


@given(demands(), st.integers(0, 4))
@settings(deadline=None)
def test_the_best_of_what_is_known(matrix: Matrix, more: int) -> None:
    best = covering_matchings(matrix)
    assert total(best) <= min(total(greedy_matchings(matrix)), total(optimal_matchings(matrix)))
    most = len(one_factorization(len(matrix))) + more
    assert len(covering_matchings(matrix, most)) <= most


def weight(matrix: Matrix, pairs: Sequence[tuple[int, int]]) -> float:
    return sum(matrix[a][b] + matrix[b][a] for a, b in pairs)


@given(demands(most=6))
@settings(deadline=None)
def test_no_matching_is_heavier_than_the_optimal_one(matrix: Matrix) -> None:
    def heaviest(free: tuple[int, ...]) -> float:
        if len(free) < 2:
            return 0
        first, rest = free[0], free[1:]
        joined = (matrix[first][p] + matrix[p][first] + heaviest(tuple(q for q in rest if q != p)) for p in rest)
        return max(heaviest(rest), *joined)

    assert weight(matrix, optimal_matchings(matrix)[0].pairs) == heaviest(tuple(range(len(matrix))))


def test_greedy_takes_the_largest_pair_where_the_optimal_takes_two_others() -> None:
    matrix = [[0, 5, 0, 0], [0, 0, 6, 0], [0, 0, 0, 5], [0, 0, 0, 0]]
    assert optimal_matchings(matrix) == (DemandSlot(((0, 1), (2, 3)), 5.0), DemandSlot(((1, 2),), 6.0))
    assert greedy_matchings(matrix) == (DemandSlot(((1, 2),), 6.0), DemandSlot(((0, 1), (2, 3)), 5.0))


@pytest.mark.parametrize("n", [2, 3, 6, 7, 16])
def test_a_uniform_demand_takes_no_more_turns_than_a_rotor(n: int) -> None:
    matrix = [[0 if i == j else 5 for j in range(n)] for i in range(n)]
    assert len(covering_matchings(matrix)) == len(one_factorization(n))
    assert len(covering_matchings(matrix, len(one_factorization(n)))) == len(one_factorization(n))


def test_entries_too_large_to_be_added_up_are_named() -> None:
    with pytest.raises(ConfigError, match=r"^demand: has entries too large to be added up"):
        check_demand([[0, 10**400, 0], [0, 0, 0], [0, 0, 0]], 3)


def test_every_decomposition_checks_its_demand() -> None:
    for make in (*undirected, birkhoff_von_neumann):
        with pytest.raises(ConfigError, match=r"^demand: "):
            make([[0, -1], [0, 0]])
    for bounded in (birkhoff_von_neumann, covering_matchings):
        with pytest.raises(ConfigError, match=r"^most_slots: must be 0"):
            bounded([[0, 1], [0, 0]], -1)


@given(demands())
def test_a_demand_is_returned_as_floats(matrix: Matrix) -> None:
    checked = check_demand(matrix, len(matrix))
    assert checked == tuple(tuple(row) for row in matrix)
    assert all(isinstance(entry, float) for row in checked for entry in row)
