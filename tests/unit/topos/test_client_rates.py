from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topos.client_rates import PUBLISHED_MBPS, client_rates, rate_at


def test_rates_are_the_published_ones_at_the_published_shares() -> None:
    for share, mbps in PUBLISHED_MBPS:
        assert rate_at(share) == pytest.approx(mbps)
    assert rate_at(0.0) == 1.1 and rate_at(1.0) == 54.7
    assert rate_at(0.375) == pytest.approx((2.9 * 6.1) ** 0.5)  # halfway in share is halfway in logarithm


@given(count=st.integers(1, 300), regions=st.integers(1, 20))
def test_dealing_changes_the_order_and_no_rate(count: int, regions: int) -> None:
    dealt = client_rates(count, regions)
    assert sorted(dealt) == sorted(client_rates(count)) == list(client_rates(count))
    assert all(1.1 <= mbps <= 54.7 for mbps in dealt)


def test_regions_get_a_like_mix() -> None:
    rates = client_rates(48, 4)
    totals = [sum(rates[region::4]) for region in range(4)]
    assert max(totals) / min(totals) < 1.1
    assert sorted(rates)[23] < 6.1 < sorted(rates)[24]


def test_one_rate_for_all() -> None:
    assert client_rates(3, 2, 20.0) == (20.0, 20.0, 20.0)
