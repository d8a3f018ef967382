"""Shares of line rate, limits by ratio, and losses against chance."""

from __future__ import annotations

import pytest

from commands.bench import Measurement
from commands.bench.fabric import LOSSES, _loss_row, against, share_of_line


def test_share_counts_headers_of_the_mtu_in_use() -> None:
    assert share_of_line([100 * 8948 / 9014], 100.0) == pytest.approx([1.0])
    assert share_of_line([100 * 1448 / 1514], 100.0, 1500) == pytest.approx([1.0])


def test_limit_of_bring_up_is_for_the_ratio() -> None:
    assert against(Measurement("x", 2.0, "s"), 20.0, 10.0).ok is True
    assert against(Measurement("x", 2.1, "s"), 20.0, 10.0).ok is False
    missing = against(Measurement("x", 2.0, "s"), None, 10.0)
    assert (missing.limit, missing.ratio, missing.ok) == (10.0, None, None)


def test_a_value_is_better_by_being_less_or_more() -> None:
    assert against(Measurement("x", 2.0, "s"), 6.0).ratio == 3.0
    assert against(Measurement("x", 6.0, "Mb/s"), 2.0, more=True).ratio == 3.0
    assert against(Measurement("x", 0.0, "of median"), 2.0).ratio is None


@pytest.mark.parametrize(("arrived", "ok"), [(99_000, True), (98_910, True), (98_890, False), (99_110, False)])
def test_loss_is_judged_by_its_share_of_what_was_asked_for(arrived: int, ok: bool) -> None:
    row = _loss_row(1.0, arrived, 100_000)
    assert row.ok is ok
    assert row.value == pytest.approx((100_000 - arrived) / 1000)


def test_a_tenth_of_each_loss_is_more_than_three_standard_deviations_of_chance() -> None:
    for percent, packets in LOSSES.items():
        expected = packets * percent / 100
        assert 0.1 * expected > 3 * (expected * (1 - percent / 100)) ** 0.5
