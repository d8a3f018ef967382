"""The access rates of edge clients: the published distribution, one rate for each client. Pure."""

from __future__ import annotations

from bisect import bisect_right
from math import exp, log

PUBLISHED_MBPS = ((0.05, 1.1), (0.25, 2.9), (0.50, 6.1), (0.75, 14.2), (0.90, 32.7), (0.95, 54.7))
"""(share of clients, rate in Mb/s that they do not exceed), from the public code of Propius (arXiv 2510.19617)."""


def rate_at(share: float) -> float:
    """The rate in Mb/s that ``share`` (from 0 to 1) of the clients do not exceed.

    Between the published points the logarithm of the rate is linear in the share. Below the first and above the last
    point nothing was published; the rate there is that of the point.
    """
    shares = [point for point, _ in PUBLISHED_MBPS]
    place = bisect_right(shares, share)
    if place in (0, len(shares)):
        return PUBLISHED_MBPS[max(place - 1, 0)][1]
    (low, slow), (high, fast) = PUBLISHED_MBPS[place - 1], PUBLISHED_MBPS[place]
    along = (share - low) / (high - low)
    return exp(log(slow) + along * (log(fast) - log(slow)))


def client_rates(count: int, regions: int = 1, mbps: float | None = None) -> tuple[float, ...]:
    """The access rate of each client in Mb/s, by number; client i is in region i % ``regions``.

    The rates are the quantiles (k + 1/2) / ``count`` of the published distribution, dealt out so that the regions have
    like rates: they grow with the number of the client, but every other row of ``regions`` clients has its rates in
    descending order. With ``mbps`` all clients have that rate.
    """
    if mbps is not None:
        return (mbps,) * count
    rates = [rate_at((k + 0.5) / count) for k in range(count)]
    rows = [rates[first : first + regions] for first in range(0, count, regions)]
    return tuple(rate for number, row in enumerate(rows) for rate in (row[::-1] if number % 2 else row))
