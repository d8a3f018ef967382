"""The clients of a run: who they are, where they are, and how fast they compute and transfer.

A client's rank, from 0 to 1, gives all its public attributes, so bounds that grow together are nested. The authors'
traces are not public as text; shares and quantiles here are those that they published or that their code implies:
rank 0.25 just meets the bounds that 75 % of their clients meet, and so on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from statistics import NormalDist

from experiments.propius.data.attributes import Attributes
from measure.published import published
from topos.client_rates import client_rates, rate_at

BATCH = 20
STEPS = 20
TRAIN_PASSES = 3
"""Forward and backward together cost three times the forward pass whose time ``speed_ms`` is."""

ATTRIBUTES_AT = (
    (0.0, (1.0, 1.0, 200.0, 2.0)),
    (0.25, (3.0, 2.0, 400.0, 4.0)),
    (0.5, (6.0, 4.0, 800.0, 6.0)),
    (0.605, (7.0, 6.0, 900.0, 7.0)),
    (0.75, (9.0, 6.0, 1200.0, 8.0)),
    (1.0, (14.0, 12.0, 2400.0, 12.0)),
)
"""Attributes by rank, linear in between; the ends are ours."""

SPEED_MS_AT = ((0.0, 13.4), (0.25, 29.0), (0.5, 63.0), (0.75, 109.0), (1.0, 189.0))
"""Milliseconds per sample by quantile, logarithms linear in between; the ends continue the nearest slope."""

_SAMPLES = published("leaf-samples").values
PRIVATE_SIZE = NormalDist(_SAMPLES["mean"], _SAMPLES["deviation"])
"""Samples of a client: mean and deviation of FEMNIST's users (LEAF, arXiv 1812.01097), which the authors train on."""
LEAST_PRIVATE_SIZE = 20.0


@dataclass(frozen=True)
class ClientProfile:
    """One client: ``speed_ms`` is its milliseconds per sample, ``rate_mbps`` its access link in Mb/s both ways.

    ``private_size`` is the size of its own data, which no server learns. ``region`` counts from 0.
    """

    number: int
    region: int
    attributes: Attributes
    private_size: float
    speed_ms: float
    rate_mbps: float

    def train_s(self, batch: int = BATCH, steps: int = STEPS) -> float:
        """Real seconds of local training in one round: 3 × batch × steps × time per sample."""
        return TRAIN_PASSES * batch * steps * self.speed_ms / 1000


def stratified(count: int, regions: int, seed: int) -> list[ClientProfile]:
    """``count`` clients whose values are quantiles, so that each seed has the same shares of eligible clients.

    Client i is in region i % ``regions`` and has the rate of ``topos.client_rates``. The seed decides which clients of
    a region have which rank, private size and speed. Each run of ``regions`` neighbouring ranks has one client in each
    region, and private sizes and speeds are spread over the ranks evenly.
    """
    chance = random.Random(f"population {seed}")
    slots = [list(range(region, count, regions)) for region in range(regions)]
    for slot in slots:
        chance.shuffle(slot)
    by_rank: list[int] = []
    for row in range(-(-count // regions)):
        clients = [slot[row] for slot in slots if row < len(slot)]
        by_rank += chance.sample(clients, len(clients))
    rates = client_rates(count, regions)
    private, speed = chance.random(), chance.random()
    found = []
    for place, number in enumerate(by_rank):
        rank = (place + 0.5) / count
        sizes, speeds = (private + place * 0.7548776662) % 1, (speed + place * 0.5698402910) % 1
        found.append(_profile(number, number % regions, rank, sizes, speeds, rates[number]))
    return sorted(found, key=lambda profile: profile.number)


def drawn(count: int, seed: int, regions: int = 1) -> list[ClientProfile]:
    """``count`` clients drawn independently from the same distributions: for the authors' sizes."""
    chance = random.Random(f"population {seed}")
    return [
        _profile(number, number % regions, chance.random(), chance.random(), chance.random(), rate_at(chance.random()))
        for number in range(count)
    ]


def _profile(number: int, region: int, rank: float, sizes: float, speeds: float, rate_mbps: float) -> ClientProfile:
    speed_ms = exp(_between([(share, log(value)) for share, value in SPEED_MS_AT], speeds))
    cpu_f, ram, fp16_mem, os = (_between([(share, at[i]) for share, at in ATTRIBUTES_AT], rank) for i in range(4))
    private = max(LEAST_PRIVATE_SIZE, PRIVATE_SIZE.inv_cdf(min(max(sizes, 1e-6), 1 - 1e-6)))
    return ClientProfile(number, region, Attributes(cpu_f, ram, fp16_mem, os, speed_ms), private, speed_ms, rate_mbps)


def _between(points: Sequence[tuple[float, float]], share: float) -> float:
    for (low, first), (high, last) in pairwise(points):
        if share < high:
            return first + (share - low) / (high - low) * (last - first)
    return points[-1][1]
