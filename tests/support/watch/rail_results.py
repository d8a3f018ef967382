"""A results folder of the experiment rails whose points are synthetic jobs: each number in it is known by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from synthetic_job import Job, build_point

from experiments.rails.row import RailRow
from experiments.runner import Measured
from measure.metrics.metrics import measure_point
from measure.metrics.point import Point
from measure.model.prediction import Prediction
from measure.results.manifest import build_manifest
from measure.results.results import Results
from measure.results.row import columns
from measure.results.summary import Summary
from railyard.timeline import Event

MODES = (("electrical", 0.0), ("on-demand", 0.0), ("on-demand", 0.2), ("provisioned", 0.0), ("provisioned", 0.2))
"""(mode, reconfiguration delay in seconds) of each point."""
START_PAIRS = [[2, 3], [6, 7]]
"""Circuits of every rail before the first step: those of the groups that gather."""


def rail_results(
    folder: Path,
    modes: Sequence[tuple[str, float]] = MODES,
    *,
    saturated: Sequence[str] = ("on-demand",),
    steps: int = 3,
    longer: float = 1.0,
    names: str = "{}",
    **manifest: Any,
) -> Path:
    """Write a folder with a point for each of ``modes``; those of the modes ``saturated`` ran on a busy machine.

    ``longer`` is by how much measured steps are longer than those of the synthetic job, as a factor, and ``names`` a
    pattern for the names of operations.
    """
    points = [build_point(mode, delay, number=number) for number, (mode, delay) in enumerate(modes)]
    plans = {point.plan.fabric: point.plan for point in points}
    given = {"experiment": {"experiment": "rails"}, "seed": 1, "ended": "complete", "planned": len(points), **manifest}
    written = build_manifest(scale=points[0].scale, plans=plans.values(), groups=points[0].groups, **given)
    results, rows, start = Results.create(folder, written), [], 100.0
    for point in points:
        job = stretched(Job(point, steps, start), longer, names)
        job.with_samples(busy=1.0 if point.mode in saturated else 0.4)
        events = job.timeline()
        results.write_point(point.number, [point.event(job.start, job.end), *begun(point, job.start, steps), *events])
        alone = measure_point(point, events)
        point = dataclasses.replace(point, predicted_step_time_s=1.02 * (alone.step_time_s or 1.0) / longer)
        rows.append(row_of(point, events))
        start = job.end + 1
    results.write_rows(Summary([row.to_json() for row in rows]), columns(RailRow))
    results.free()
    return folder


def stretched(job: Job, factor: float, names: str = "{}") -> Job:
    """The job with all its times after the start longer by a factor, and with other names of operations."""

    def later(t: float) -> float:
        return job.start + (t - job.start) * factor

    def renamed(event: Event) -> dict[str, Any]:
        name = {"name": names.format(event["name"])} if "name" in event.fields else {}
        return {**event.fields, **name, **({"asked": later(event["asked"])} if "asked" in event.fields else {})}

    job.events = [
        dataclasses.replace(e, t=later(e.t), end=None if e.end is None else later(e.end), fields=renamed(e))
        for e in job.events
    ]
    job.end = job.t = later(job.end)
    return job


def begun(point: Point, t: float, steps: int) -> Iterator[Event]:
    fields = {"point": point.number, "mode": point.mode, "plan": point.plan.fabric, "title": point.title}
    fields |= {"delay_s": point.scale.emulated_s(point.reconfiguration_delay_s), "steps": steps}
    yield Event(t - 0.4, "run", "begun", None, {**fields, "expected_s": float(steps)})
    for switch in point.plan.switches:
        if switch.kind == "ocs":
            circuits = {"rail": switch.name, "circuits": START_PAIRS, "failed": []}
            yield Event(t - 0.3, "controller", "circuits", None, circuits)
    yield Event(t, "run", "started", None, {"point": point.number})


def row_of(point: Point, events: Sequence[Event]) -> RailRow:
    row = RailRow(
        workload="smoke",
        fabric=point.plan.fabric,
        mode=point.mode,
        policy="opus",
        reconfiguration_delay_ms=point.reconfiguration_delay_s * 1e3,
        link_recovery_ms=0.0,
        predicted_step_time_s=point.predicted_step_time_s,
    )
    row.at(point.scale, 1)
    row.take(Measured(point, events, cast(Prediction, None), None))
    return row
