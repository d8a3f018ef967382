from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.live.probe import dark_time

TICK = 0.0003


def _train(count: int) -> list[float]:
    return [5.0 + n * TICK for n in range(count)]


def test_a_rewired_circuit() -> None:
    seen = dark_time(_train(100), {"old": range(30), "new": range(70, 100)}, "old", "new")
    assert seen.seconds == pytest.approx(40 * TICK)
    assert seen.first_lost_t == pytest.approx(5.0 + 30 * TICK)
    assert seen.up_t == pytest.approx(5.0 + 70 * TICK)
    assert (seen.lost, seen.strays, seen.misdelivered) == (40, 0, 0)


def test_a_swap_that_loses_nothing() -> None:
    seen = dark_time(_train(10), {"old": range(5), "new": range(5, 10)}, "old", "new")
    assert (seen.first_lost_t, seen.up_t, seen.seconds, seen.lost) == (None, None, 0.0, 0)


def test_light_that_never_comes_back() -> None:
    seen = dark_time(_train(10), {"old": range(4)}, "old", "new")
    assert seen.seconds == math.inf and seen.up_t is None and seen.lost == 6


def test_one_stray_loss_is_not_the_dark_time() -> None:
    arrived = [n for n in range(100) if n != 10 and not 50 <= n < 60]
    seen = dark_time(_train(100), {"old": arrived})
    assert (seen.lost, seen.strays) == (10, 1)
    assert seen.first_lost_t == pytest.approx(5.0 + 50 * TICK)


def test_what_comes_out_at_the_old_end_after_the_change_is_misdelivered() -> None:
    received = {"old": [*range(5), 12, 15], "new": range(8, 20)}
    assert dark_time(_train(20), received, "old", "new").misdelivered == 2
    assert dark_time(_train(20), received).misdelivered == 0


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 40), st.randoms())
def test_any_single_gap_is_found_whatever_the_order(before: int, gap: int, after: int, random: object) -> None:
    received = {"old": list(range(before)), "new": list(range(before + gap, before + gap + after))}
    for numbers in received.values():
        random.shuffle(numbers)  # type: ignore[attr-defined]
    seen = dark_time(_train(before + gap + after), received, "old", "new")
    assert seen.lost == gap and seen.misdelivered == 0
    assert seen.seconds == pytest.approx(gap * TICK)
