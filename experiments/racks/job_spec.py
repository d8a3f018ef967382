"""A training job on a rack as it is rented: who is in it, what it does in a step, how its chips are watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controllers.engine.jobs import Detection
from experiments.failover.settings import Setting, TenantSection
from workloads.program import Program
from workloads.training.training_job import training_job


@dataclass(frozen=True)
class JobSpec:
    """A job as it is rented: ``members`` in ring order; times and bytes of ``tenant`` are real."""

    name: str
    members: tuple[int, ...]
    tenant: TenantSection
    setting: Setting
    steps: int
    lanes: int
    detection: Detection
    stages: tuple[tuple[str, float], ...] = ()
    seed: int = 1
    verify: bool = False
    ack_timeout_s: float = 30.0
    predicted_step_s: float = 1.0
    """What a step should take (wall-clock seconds)."""

    def program(self, members: Sequence[int], ranks: int) -> Program:
        """What everybody does in a step when ``members`` are in it."""
        tenant = self.tenant
        return training_job(members, round(tenant.gradient_bytes), tenant.compute_s, self.lanes, ranks, group=self.name)
