"""Reports and predictions of experiments, as tests compare them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.experiment import Experiment
from experiments.rails.job import fabric_on, job_point
from experiments.rails.settings import Mode, RailSettings
from experiments.report import show
from measure.model.prediction import Prediction
from measure.results.manifest import build_manifest
from measure.results.results import Results
from measure.results.row import ResultRow, columns
from measure.results.summary import Summary
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.catalog import Workload


def printed(kind: type[Experiment[Any]], rows: Sequence[Mapping[str, Any]], width: int = 80, **settings: Any) -> str:
    """The report of rows on a terminal of ``width`` columns; ``settings`` are keys of the manifest's experiment."""
    out = io.StringIO()
    values = {**kind.Settings().model_dump(mode="json"), **settings}
    show(kind.report(), rows, values, packets=kind.packets, console=Console(file=out, width=width, no_color=True))
    return out.getvalue()


def results_of(folder: Path, experiment: str, kind: type[ResultRow], rows: Sequence[dict[str, Any]]) -> Results:
    """A results folder of computed rows, as the run of an experiment leaves it before it ends."""
    manifest = build_manifest(experiment={"experiment": experiment}, seed=1, scale=Scale(1.0), plans=[], groups={})
    results = Results.create(folder, manifest)
    results.write_rows(Summary(rows), columns(kind))
    return results


def fabric_plan(settings: RailSettings, workload: Workload, mode: Mode, scale: Scale) -> FabricPlan:
    """The plan of the fabric of a mode."""
    return fabric_on(settings, workload, mode, scale).plan()


def forecast(settings: RailSettings, workload: Workload, mode: Mode, delay_ms: float, scale: Scale) -> Prediction:
    """The prediction of one point for an ideal machine."""
    return job_point(settings, workload, mode, delay_ms, scale).prediction(
        fabric_plan(settings, workload, mode, scale), scale
    )
