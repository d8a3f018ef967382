"""Bounds against the closed forms and the tables of the StragglAR paper (arXiv 2505.23523)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.metrics.critical import (
    RoundBytes,
    bound_s,
    round_bytes,
    rounds_after_straggler,
    rounds_before_straggler,
)
from workloads.collectives.catalog import schedule
from workloads.schedule import Schedule, Transfer

# n: ring, ideal, worst, T_RS, T_crit in units of buffer time (paper, costs with alpha = 0)
COEFFICIENTS = {
    4: (1.5, 1.333, 2.0, 0.667, 0.500),
    8: (1.75, 1.286, 2.143, 0.857, 0.393),
    16: (1.875, 1.2, 2.133, 0.933, 0.258),
    64: (1.969, 1.079, 2.064, 0.984, 0.095),
    256: (1.992, 1.027, 2.024, 0.996, 0.031),
}


def whole(n: int) -> int:
    """Bytes that n and n - 1 chunks divide."""
    return 4 * n * (n - 1)


@pytest.mark.parametrize("n", COEFFICIENTS)
def test_the_coefficients_of_the_paper(n: int) -> None:
    size = whole(n)
    late = schedule("all_reduce", n, "stragglar", straggler=1)
    ring = bound_s(schedule("all_reduce", n, "ring"), size, 0, size)
    ideal = bound_s(rounds_after_straggler(late), size, 0, size)
    t_rs = bound_s(rounds_before_straggler(late), size, 0, size)
    worst = bound_s(late, size, 0, size)
    found = (ring, ideal, worst, t_rs, worst - ring)
    assert found == pytest.approx(COEFFICIENTS[n], abs=0.0006)


@pytest.mark.parametrize(
    ("n", "ring", "phase_2", "t_rs", "t_crit"),
    [(4, 0.372, 0.328, 0.164, 0.120), (8, 1.008, 0.738, 0.492, 0.222), (16, 2.310, 1.476, 1.148, 0.314)],
)
def test_the_seconds_at_the_scale_of_the_emulator(
    n: int, ring: float, phase_2: float, t_rs: float, t_crit: float
) -> None:
    """Chunks of 1 MB, ports of 100 Mb/s, alpha 2 ms."""
    link = ((n - 1) * 1_000_000, 0.002, 12.5e6)
    late = schedule("all_reduce", n, "stragglar")
    assert bound_s(schedule("all_reduce", n, "ring"), *link) == pytest.approx(ring, abs=0.0006)
    assert bound_s(rounds_after_straggler(late), *link) == pytest.approx(phase_2, abs=0.0006)
    assert bound_s(rounds_before_straggler(late), *link) == pytest.approx(t_rs, abs=0.0006)
    assert bound_s(late, *link) - ring == pytest.approx(t_crit, abs=0.0006)


@given(n=st.integers(2, 48), parts=st.integers(1, 5))
def test_closed_forms(n: int, parts: int) -> None:
    size, levels = whole(n) * 4 * parts, (n - 1).bit_length()
    per_s = float(size)
    assert bound_s(schedule("all_reduce", n, "ring"), size, 1, per_s) == pytest.approx(2 * (n - 1) * (1 + 1 / n))
    assert bound_s(schedule("all_gather", n, "direct"), size, 1, per_s) == pytest.approx(1 + (n - 1) / n)
    assert bound_s(schedule("all_reduce", n, "direct"), size, 1, per_s) == pytest.approx(1 + n - 1)
    assert bound_s(schedule("all_reduce", n, "tree"), size, 1, per_s) == pytest.approx(4 * levels)
    assert bound_s(schedule("all_to_all", n, "pairwise"), size, 1, per_s) == pytest.approx((n - 1) * (1 + 1 / n))
    late = rounds_after_straggler(schedule("all_reduce", n, "straggler-direct", straggler=n // 2))
    assert bound_s(late, size, 1, per_s) == pytest.approx(2 * levels)
    if n & (n - 1) == 0:
        halving = schedule("all_reduce", n, "recursive-halving-doubling")
        assert bound_s(halving, size, 1, per_s) == pytest.approx(2 * levels + 2 * (n - 1) / n)


@given(n=st.integers(2, 32))
def test_two_rings_take_half_the_time_on_two_ports(n: int) -> None:
    both, size = schedule("all_reduce", n, "bidirectional-ring"), 8 * n
    assert bound_s(both, size, 0, size, ports=2) == pytest.approx((n - 1) / n)
    assert bound_s(both, size, 0, size, ports=1) == pytest.approx(2 * (n - 1) / n)


def test_the_scale_up_network_has_a_rate_of_its_own() -> None:
    made, size = schedule("all_reduce", 8, "hierarchical", gpus_per_server=4), 32 * 100
    assert bound_s(made, size, 0, size) == pytest.approx(2 * 1 / 2 / 4)
    assert bound_s(made, size, 0, size, scale_up_bytes_per_s=2 * size) == pytest.approx(1 / 4 + 2 * 3 / 4 / 2)


def test_uneven_chunks_and_copies_inside_a_position() -> None:
    moves = (Transfer(0, 0, 1, 0, "copy"), Transfer(0, 0, 1, 1, "copy"), Transfer(1, 1, 1, 0, "copy", to=1))
    plan = Schedule("by-hand", "broadcast", 2, 2, (0, 0), moves[:2])
    assert round_bytes(plan, 3) == (RoundBytes(12, 0),)
    inside = Schedule("by-hand", "broadcast", 2, 2, (0, 0), moves)
    assert round_bytes(inside, 3) == (RoundBytes(16, 0),)
