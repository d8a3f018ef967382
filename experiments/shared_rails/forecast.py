"""Predictions for jobs that share rails: each by itself, since no port is shared, and when each has its servers.

Jobs meet in the queue for servers alone: the model computes each as if it had the fabric to itself, and an arbiter like
that of a run hands servers out. A fault adds the outage, and the work since the last checkpoint once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from controllers.allocation.leases import ServerLeases
from controllers.policies.policy import Policy
from experiments.faults import Kill
from experiments.job_point import JobPoint
from experiments.racks.forecast import RELAUNCH_S, JobPrediction, JobWindow, detection_bounds, predicted_parts
from experiments.rails.job import job_point
from experiments.shared_rails.arrivals import Stay, members_on, timetable
from experiments.shared_rails.settings import SharedJob
from measure.model.prediction import Prediction
from measure.model.simulated_control import Costs
from measure.model.wires import checkpoint_seconds
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.catalog import Workload
from workloads.program import Group


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
    plan: FabricPlan,
    leases: ServerLeases,
    scale: Scale,
    kills: Sequence[Kill] = (),
    costs: Costs | None = None,
) -> Forecast:
    """The prediction of ``jobs`` on ``plan``, whose rates are those at ``scale``; None as ``costs``: an ideal machine.

    Jobs of one workload are computed once.
    """
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
    return Forecast(predicted, stays, tuple(_windows(members, plan, predicted, kills)))


def _windows(
    members: Mapping[str, tuple[int, ...]], plan: FabricPlan, jobs: Mapping[str, JobPrediction], kills: Sequence[Kill]
) -> Iterator[JobWindow]:
    """The windows before the first of ``kills`` and after each, as long as a spare server is left."""
    free = list(plan.spares)
    yield JobWindow(members, frozenset(), jobs, contended=False)
    for number, kill in enumerate(kills, 1):
        hit = next((name for name, ranks in members.items() if kill.rank in ranks), None)
        if hit is not None:
            group = Group(hit, "dp", members[hit])
            moved = Policy(plan).replace([group], kill.rank, free)
            if not moved:
                return
            free = [rank for rank in free if rank not in moved.values()]
            members = {**members, hit: tuple(moved.get(rank, rank) for rank in members[hit])}
        yield JobWindow(members, frozenset(each.rank for each in kills[:number]), jobs, contended=False)


def _costs_s(point: JobPoint, step: float, model: JobPrediction, plan: FabricPlan, scale: Scale, costs: Costs) -> float:
    """Seconds that a kill after ``step`` steps adds: the outage less its first step, and the steps to repeat."""
    training = point.training
    assert training is not None
    stages = dict(training.stages)
    if step >= training.checkpoint_every:
        stages["checkpoint"] = checkpoint_seconds(training.state_bytes, plan, scale, 1)
    timing = {"rewire_s": point.reconfiguration_delay_s, "launch_s": scale.real_s(RELAUNCH_S), "first_step_s": 0.0}
    parts = predicted_parts(stages, scale, costs, **timing)
    again = step - step // training.checkpoint_every * training.checkpoint_every
    detect = detection_bounds(training.detection, scale, costs).mean
    return detect + sum(parts.values()) + again * model.step_time_s
