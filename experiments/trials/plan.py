"""Parameters that all trials of an experiment share: number of steps and scale."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.settings import Settings
from experiments.trials.trial import Trial
from railyard.scale import Scale


@dataclass(frozen=True)
class TrialPlan:
    """Parameters of all trials of an experiment: ``steps`` measured steps after one warm-up step, at ``scale``."""

    experiment: str
    settings: Settings
    scale: Scale
    steps: int

    def total_steps(self, trial: Trial) -> int:
        """Number of steps of ``trial``, including the warm-up."""
        return (trial.steps or self.steps) + 1
