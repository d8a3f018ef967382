"""Specification of a training job on a rack: members, work of a step, and detection of dead chips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controllers.engine.jobs import Detection
from experiments.failover.settings import Setting, TenantSection
from workloads.program import Program
from workloads.training.training_job import training_job


@dataclass(frozen=True)
class JobSpec:
    """Specification of a job: ``members`` in ring order; times and bytes of ``tenant`` are real.

    ``lanes`` is the number of lanes of its all-reduce, ``stages`` the given durations of start-up stages.
    """

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
    """Predicted time of a step in wall-clock seconds."""

    def program(self, members: Sequence[int], ranks: int) -> Program:
        """The program of a step when ``members`` are in the job; ``ranks`` is the number of ranks of the fabric."""
        tenant = self.tenant
        return training_job(members, round(tenant.gradient_bytes), tenant.compute_s, self.lanes, ranks, group=self.name)
