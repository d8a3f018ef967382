"""Predictions for jobs that share rails: each by itself, since no port is shared, and when each has its servers.

Jobs meet in the queue for servers alone: the model computes each as if it had the fabric to itself, and an arbiter like
that of a run hands servers out. A fault adds the outage, and the work since the last checkpoint once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controllers.allocation.leases import ServerLeases
from experiments.faults import Kill
from experiments.job_point import JobPoint
from experiments.racks.forecast import RELAUNCH_S, JobPrediction, JobWindow, deaths, detection_bounds, restart_parts
from experiments.racks.setting import FabricSetting
from experiments.rails.job import job_point
from experiments.shared_rails.arrivals import Stay, members_on, timetable
from experiments.shared_rails.settings import SharedJob
from measure.model.prediction import Prediction
from measure.model.simulated_control import Costs
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.catalog import Workload


def alone(job: SharedJob, workload: Workload, scale: Scale, costs: Costs | None = None) -> Prediction:
    """The job with the fabric to itself; ``workload`` is the one with all its ranks, or that of the model."""
    settings = job.alone
    point = job_point(settings, workload, settings.modes[0], settings.delays_ms[0], scale)
    return replace(point, steps=3, model_steps=3).prediction(point.fabric.plan(), scale, costs)


@dataclass(frozen=True)
class Forecast:
    """The prediction of a run: each job by itself, its stay, and the windows between faults."""

    jobs: Mapping[str, JobPrediction]
    stays: Mapping[str, Stay]
    windows: tuple[JobWindow, ...]

    @property
    def end_s(self) -> float:
        return max((stay.end_s for stay in self.stays.values()), default=0.0)


def forecast(
    jobs: Sequence[SharedJob],
    points: Mapping[str, JobPoint],
    setting: FabricSetting,
    leases: ServerLeases,
    kills: Sequence[Kill] = (),
    costs: Costs | None = None,
) -> Forecast:
    """The prediction of ``jobs`` on the fabric of ``setting``; None as ``costs``: an ideal machine.

    Jobs of one workload are computed once.
    """
    plan, scale = setting.plan, setting.scale
    computed: dict[int, JobPrediction] = {}
    for job in jobs:
        if id(job.modelled) not in computed:
            prediction = alone(job, job.modelled if costs is None else job.workload, scale, costs)
            steps = prediction.step_times_s
            computed[id(job.modelled)] = JobPrediction(steps[0], prediction.step_time_s, {})
    predicted = {job.name: computed[id(job.modelled)] for job in jobs}
    machine = costs or Costs()
    launch_s = 0.0 if costs is None else scale.real_s(RELAUNCH_S)

    def stay_s(name: str, members: tuple[int, ...]) -> float:
        model, point = predicted[name], points[name]
        whole = launch_s + model.first_step_s + (point.steps - 1) * model.step_time_s
        hits = [
            kill.step for kill in kills if kill.rank in members and kill.step is not None and kill.step < point.steps
        ]
        return whole + sum(_costs_s(point, step, model, plan, scale, machine) for step in hits)

    stays = timetable(jobs, leases, plan, stay_s)
    members = {job.name: members_on(job, stays[job.name].servers, plan.gpus_per_server) for job in jobs
               if job.name in stays}  # fmt: skip
    between = deaths(setting, list(points.values()), members, [kill.ranks(plan) for kill in kills])
    windows = tuple(JobWindow(ranks, dead, predicted, contended=False) for ranks, dead in between)
    return Forecast(predicted, stays, windows)


def _costs_s(point: JobPoint, step: float, model: JobPrediction, plan: FabricPlan, scale: Scale, costs: Costs) -> float:
    """Seconds that a kill after ``step`` steps adds: the outage less its first step, and the steps to repeat."""
    training = point.training
    assert training is not None
    every = training.checkpoint_every
    parts = restart_parts(point, plan, scale, costs, copies=1 if step >= every else None, first_step_s=0.0)
    detect = detection_bounds(training.detection, scale, costs).mean
    return detect + sum(parts.values()) + step % every * model.step_time_s
