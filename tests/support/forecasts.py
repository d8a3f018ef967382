"""Predictions of rail experiments, for tests that compare them."""

from __future__ import annotations

from experiments.rails.job import fabric_on, job_point
from experiments.rails.modes import Mode
from experiments.rails.settings import RailSettings
from measure.model.prediction import Prediction
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.catalog import Workload


def fabric_plan(settings: RailSettings, workload: Workload, mode: Mode, scale: Scale) -> FabricPlan:
    """The plan of the fabric of a mode."""
    return fabric_on(settings, workload, mode, scale).plan()


def forecast(settings: RailSettings, workload: Workload, mode: Mode, delay_ms: float, scale: Scale) -> Prediction:
    """The prediction of one point for an ideal machine."""
    return job_point(settings, workload, mode, delay_ms, scale).prediction(
        fabric_plan(settings, workload, mode, scale), scale
    )
