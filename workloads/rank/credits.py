"""Receiver credits that a rank was given: up to which round a receiver takes the data of a flow, and since when."""

from __future__ import annotations

from workloads.rank.flows import FlowKey
from workloads.rank.paths import PeerKey


class Credits:
    """The latest credit of each flow on each path."""

    def __init__(self) -> None:
        self._of: dict[FlowKey, dict[PeerKey, tuple[int, float]]] = {}

    def take(self, key: FlowKey, path: PeerKey, last_round: int, since: float) -> None:
        """Note that the receiver of flow ``key`` takes all rounds up to ``last_round`` by ``path``."""
        if last_round > self.of(key, path)[0]:
            self._of.setdefault(key, {})[path] = last_round, since

    def of(self, key: FlowKey, path: PeerKey) -> tuple[int, float]:
        """The last round that the receiver of flow ``key`` takes by ``path`` (-1: none yet), and since when."""
        return self._of.get(key, {}).get(path, (-1, 0.0))

    def forget(self, key: FlowKey) -> None:
        """Forget the credits of flow ``key``, which has ended."""
        self._of.pop(key, None)
