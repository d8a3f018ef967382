from __future__ import annotations

import pytest

from commands.bench.wide_area import LOSSES, _loss_row


@pytest.mark.parametrize(("arrived", "ok"), [(99_000, True), (98_910, True), (98_890, False), (99_110, False)])
def test_loss_is_judged_by_its_share_of_what_was_asked_for(arrived: int, ok: bool) -> None:
    row = _loss_row(1.0, arrived, 100_000)
    assert row.ok is ok
    assert row.value == pytest.approx((100_000 - arrived) / 1000)


def test_a_tenth_of_each_loss_is_more_than_three_standard_deviations_of_chance() -> None:
    for percent, packets in LOSSES.items():
        expected = packets * percent / 100
        assert 0.1 * expected > 3 * (expected * (1 - percent / 100)) ** 0.5
