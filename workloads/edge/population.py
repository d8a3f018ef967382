"""The clients of a run: who they are, where they are, and how fast they compute and transfer."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.edge.attributes import Attributes

BATCH = 20
STEPS = 20
TRAIN_PASSES = 3
"""Forward and backward together cost three times the forward pass whose time ``speed_ms`` is."""


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
    """``count`` clients whose attributes are quantiles, so that each seed has the same shares of eligible clients.

    Client ``i`` is in region ``i % regions``.
    """
    raise NotImplementedError


def drawn(count: int, seed: int, regions: int = 1) -> list[ClientProfile]:
    """``count`` clients drawn independently from the same distributions: for the authors' sizes."""
    raise NotImplementedError
