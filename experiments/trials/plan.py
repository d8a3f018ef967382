"""How the trials of an experiment are run: how often, and at which scale."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.settings import Settings
from experiments.trials.trial import Trial
from railyard.scale import Scale


@dataclass(frozen=True)
class TrialPlan:
    """How cases are run: ``steps`` measured steps after one that warms up, at ``scale``."""

    experiment: str
    settings: Settings
    scale: Scale
    steps: int

    def rounds(self, trial: Trial) -> int:
        """Steps of ``trial``, the warm-up included."""
        return (trial.steps or self.steps) + 1
