"""A collaborative-learning job: how many clients each round needs, which clients fit, and for how many rounds."""

from __future__ import annotations

from dataclasses import dataclass

from railyard.errors import ConfigError
from workloads.edge.attributes import Attributes


@dataclass(frozen=True)
class EdgeJob:
    """One job.

    A round is complete when ``demand`` clients have delivered an update. A client fits if its public attributes meet
    ``bounds`` and its private size is at least ``private_bound``; only the client itself knows the latter.
    ``arrival_s`` is the real second at which the job registers, counted from the start of the run.
    """

    name: str
    demand: int
    bounds: Attributes
    private_bound: float
    rounds: int
    arrival_s: float = 0.0
    over_selection: float = 1.0

    def __post_init__(self) -> None:
        if self.demand < 1:
            raise ConfigError(f"must be at least 1, not {self.demand}", key=f"{self.name}.demand")
        if self.rounds < 1:
            raise ConfigError(f"must be at least 1, not {self.rounds}", key=f"{self.name}.rounds")
        if not self.over_selection >= 1:
            raise ConfigError(f"must be at least 1, not {self.over_selection:g}", key=f"{self.name}.over_selection")
        if not self.arrival_s >= 0:
            raise ConfigError(f"must be at least 0, not {self.arrival_s:g}", key=f"{self.name}.arrival_s")

    @property
    def selected(self) -> int:
        """The clients that a round asks for: the demand times the over-selection, rounded down."""
        return int(self.over_selection * self.demand + 1e-9)  # 1.1 × 10 is a little less than 11 in binary
