"""All-to-alls for circuits: straight, in two hops, along a line; and with pairs that have different amounts to send."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from agents.machine_player import played
from hypothesis import given, settings
from hypothesis import strategies as st

from railyard.errors import VerifyError
from workloads.agent.transport import payload
from workloads.collectives.algorithms import line_all_to_all, straight_all_to_all, valiant_all_to_all
from workloads.collectives.catalog import schedule
from workloads.collectives.verify import verify
from workloads.rank.flows import Flow
from workloads.schedule import Schedule

FLOW = Flow(step=1, group=2, sequence=3)
Weights = list[list[int]]


@st.composite
def weights(draw: st.DrawFn) -> Weights:
    """Weights of 2 to 6 positions, many of them 0."""
    n = draw(st.integers(2, 6))
    entry = st.integers(0, 5) | st.just(0)
    rows = draw(st.lists(st.lists(entry, min_size=n, max_size=n), min_size=n, max_size=n))
    rows[0][1] += not any(map(any, rows))
    return rows


def shares(made: Schedule, elements: int) -> Counter[tuple[int, int]]:
    """Elements of each (sender, receiver)."""
    found: Counter[tuple[int, int]] = Counter()
    for chunk, (start, end) in enumerate(made.chunk_bounds(elements)):
        found[divmod(chunk, made.n)] += end - start
    return found


@given(n=st.integers(1, 16))
def test_straight_sends_each_chunk_once_and_to_the_next_first(n: int) -> None:
    made = straight_all_to_all(n)
    verify(made)
    assert made.rounds == (1 if n > 1 else 0) and made.weights == ()
    for src in range(n):
        mine = [t for t in made.transfers if t.src == src]
        assert [t.dst for t in mine] == [(src + turn) % n for turn in range(1, n)]
        assert [t.chunk for t in mine] == [src * n + t.dst for t in mine]


def test_in_one_piece_it_is_the_direct_one_by_another_name() -> None:
    assert replace(straight_all_to_all(6), algorithm="direct") == schedule("all_to_all", 6, "direct")


@given(n=st.integers(2, 14))
def test_two_hops_spread_each_pair_evenly_over_all_positions(n: int) -> None:
    made = valiant_all_to_all(n)
    verify(made)
    first, second = ([t for t in made.transfers if t.round == r] for r in (0, 1))
    everybody = {(a, b): n - 1 for a in range(n) for b in range(n) if a != b}
    assert Counter((t.src, t.dst) for t in first) == everybody
    assert Counter((t.src, t.dst) for t in second) == (dict.fromkeys(everybody, n - 2) if n > 2 else {})
    for pair in everybody:
        middles = [t.dst for t in first if (t.src, t.chunk // (n - 1) % n) == pair]
        assert sorted(middles) == [p for p in range(n) if p != pair[0]]


def test_two_hops_even_out_a_demand_that_is_all_for_one() -> None:
    """Position 0 has all its data for position 1: no circuit carries more than its share of both hops."""
    n = 8
    made = valiant_all_to_all(n, [[int((i, j) == (0, 1)) for j in range(n)] for i in range(n)])
    verify(made)
    assert Counter((t.src, t.dst) for t in made.transfers) == {
        **{(0, m): 1 for m in range(1, n)}, **{(m, 1): 1 for m in range(2, n)}}  # fmt: skip


@given(n=st.integers(1, 16))
def test_a_line_never_wraps_and_carries_most_in_the_middle(n: int) -> None:
    made = line_all_to_all(n)
    verify(made)
    for t in made.transfers:
        assert t.dst - t.src == (1 if t.lane == 0 else -1)
    links = Counter((t.src, t.dst) for t in made.transfers)
    for k in range(1, n):
        assert links[k - 1, k] == links[k, k - 1] == k * (n - k)


@given(matrix=weights(), elements=st.integers(1, 40), seed=st.integers(0, 99))
@settings(deadline=None)
def test_uneven_amounts_arrive_and_empty_pairs_send_nothing(matrix: Weights, elements: int, seed: int) -> None:
    n = len(matrix)
    for made in (straight_all_to_all(n, matrix), valiant_all_to_all(n, matrix)):
        verify(made)
        cut = made.chunks // n**2
        assert {(t.chunk // cut // n, t.chunk // cut % n) for t in made.transfers} == {
            (i, j) for i in range(n) for j in range(n) if i != j and matrix[i][j]
        }
        played(made, 4 * elements, seed)


@given(matrix=weights(), elements=st.integers(0, 400))
def test_a_pair_has_its_share_to_within_an_element(matrix: Weights, elements: int) -> None:
    n, whole = len(matrix), sum(map(sum, matrix))
    made = straight_all_to_all(n, matrix)
    found = shares(made, elements)
    assert sum(found.values()) == elements * n
    for i in range(n):
        for j in range(n):
            assert abs(found[i, j] - elements * n * matrix[i][j] / whole) < 1
            assert matrix[i][j] or not found[i, j]


def test_whole_shares_are_exact() -> None:
    made = straight_all_to_all(3, [[0, 2, 1], [4, 0, 0], [1, 1, 0]])
    assert shares(made, 30) == Counter({(0, 1): 20, (0, 2): 10, (1, 0): 40, (2, 0): 10, (2, 1): 10})


def test_the_check_of_payloads_sees_a_lost_chunk_among_uneven_ones() -> None:
    made = straight_all_to_all(3, [[0, 2, 1], [4, 0, 0], [1, 1, 0]])
    members = [0, 1, 2]
    buffer = payload.initial(1, FLOW, made, members, 0, 30)
    assert payload.wrong_elements(buffer, 1, FLOW, made, members, 0, 30) > 40
    for chunk in (3, 6):
        start, end = made.chunk_bounds(30)[chunk]
        buffer[start:end] = payload.total(1, FLOW, [chunk // 3], start, end)
    assert payload.wrong_elements(buffer, 1, FLOW, made, members, 0, 30) == 0
    assert np.count_nonzero(buffer) > 60


def test_the_proof_still_misses_a_chunk_that_is_not_empty() -> None:
    made = straight_all_to_all(3, [[0, 2, 1], [4, 0, 0], [1, 1, 0]])
    for lost in range(len(made.transfers)):
        with pytest.raises(VerifyError, match="ends without the contribution"):
            verify(replace(made, transfers=made.transfers[:lost] + made.transfers[lost + 1 :]))


def test_the_proof_names_weights_that_cannot_be() -> None:
    made = straight_all_to_all(2)
    for wrong in ((1, 2, 3), (0, 1, -1, 0), (0, 0, 0, 0)):
        with pytest.raises(VerifyError, match="straight all_to_all over 2: weights must be 4 numbers of 0 or more"):
            verify(replace(made, weights=wrong))
    with pytest.raises(VerifyError, match="only a schedule whose chunks keep their slots can have weights"):
        verify(replace(made, weights=(1, 1, 1, 1), scratch=1))
