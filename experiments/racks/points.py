"""The stretches of a run with faults in which its jobs can be judged as any other point.

A fault cuts the run: before it every job is in its usual state, and again from the first new step of the job that it
struck. What lies between is the outage, which ``experiments.racks.recovery`` reads. So every job has one point for each
life and each stretch, made of the steps that lie wholly in it, and ``measure.metrics.fidelity.judge`` reads it as it
is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from experiments.racks.incarnations import NEVER, JobIncarnation, incarnations_of, jobs_of, read_incarnations
from experiments.racks.job_prediction import JobPrediction
from experiments.racks.recovery import Recovery, recoveries
from measure.metrics.fidelity import Limits, Verdict, judge
from measure.metrics.metrics import PointMetrics, measure_point
from measure.metrics.point import Point
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.program import Group

Stretch = tuple[float, float]
"""Wall-clock start and end."""


@dataclass(frozen=True)
class IncarnationPoint:
    """One job in one stretch; ``window`` is the number of chips that had died by then."""

    job: str
    incarnation: int
    window: int
    point: Point
    events: list[Event]

    @property
    def metrics(self) -> PointMetrics:
        """Its numbers."""
        return measure_point(self.point, self.events)

    def judge(self, limits: Limits | None = None) -> Verdict:
        """The verdict of ``measure.metrics.fidelity`` on it."""
        return judge(self.point, self.events, self.metrics, limits)


def points_of(
    events: Sequence[Event],
    plan: FabricPlan,
    groups: Mapping[str, Mapping[str, Group]],
    scale: Scale,
    *,
    mode: str = "",
    predicted: Mapping[tuple[str, int], JobPrediction] | None = None,
    contended: Iterable[tuple[str, int]] = (),
) -> list[IncarnationPoint]:
    """The points of one run on ``plan``, in order of time and of jobs.

    ``groups`` are those of each job as it was first launched. ``predicted`` and ``contended`` are by job and number of
    chips dead: what the model says, and where links between switches are shared with another job, whose steps come and
    go (``Point.contended``). A job that did no whole step in a stretch has no point there.
    """
    incarnations, predicted, shared = read_incarnations(events), predicted or {}, set(contended)
    found: list[IncarnationPoint] = []
    for window, stretch in enumerate(quiet_stretches(recoveries(events, scale), scale)):
        for job in jobs_of(incarnations):
            own = incarnations_of(incarnations, job)
            for incarnation in own:
                steps = _steps_in(incarnation, stretch)
                if not steps:
                    continue
                model = predicted.get((job, window))
                point = Point(
                    number=len(found),
                    mode=f"{mode}-{job}-{incarnation.number}".lstrip("-"),
                    plan=plan,
                    groups=incarnation.groups(own[0], groups[job]),
                    scale=scale,
                    predicted_step_time_s=model.step_time_s if model else None,
                    warmup_steps=int(steps[0] == incarnation.steps.complete[0]),
                    operations_s=model.operations_s if model and plan.links else {},
                    cut_short=steps != incarnation.steps.complete or not _ended_well(incarnation),
                    contended=(job, window) in shared,
                )
                inside = _events(events, incarnation, steps, stretch, cut_short=point.cut_short)
                found.append(IncarnationPoint(job, incarnation.number, window, point, inside))
    return found


def quiet_stretches(found: Iterable[Recovery], scale: Scale) -> list[Stretch]:
    """The time without its outages: up to the first fault, between faults, and from the last recovery on.

    One more than there are faults; empty (start = end) where a fault struck before the one before it was mended. A job
    that never came back is out of the way when that was decided.
    """
    stretches, start = list[Stretch](), 0.0
    for recovery in sorted(found, key=lambda r: r.fault_t):
        stretches.append((start, max(start, recovery.fault_t)))
        reached = sum(seconds for name, seconds in recovery.breakdown if name != "first step")
        start = max(start, recovery.fault_t + scale.emulated_s(reached))
    return [*stretches, (start, NEVER)]


def _steps_in(incarnation: JobIncarnation, stretch: Stretch) -> tuple[int, ...]:
    start, end = stretch
    slack = 1e-6  # the stretch may begin with a step, found by sums of seconds
    return tuple(
        s
        for s in incarnation.steps.complete
        if start - slack <= incarnation.steps.job(s)[0] and incarnation.steps.job(s)[1] <= end
    )


def _ended_well(incarnation: JobIncarnation) -> bool:
    """Whether every agent of it came to its end and told what its sockets had counted."""
    return {e["rank"] for e in incarnation.events if e.kind == "sockets"} == set(incarnation.members)


def _events(
    events: Sequence[Event], incarnation: JobIncarnation, steps: Sequence[int], stretch: Stretch, *, cut_short: bool
) -> list[Event]:
    """What agents, controller, switches and counters said of ``steps`` of ``incarnation``."""
    start, end = incarnation.steps.job(steps[0])[0], incarnation.steps.job(steps[-1])[1]
    wanted = set(steps)
    mine = [e for e in incarnation.events if e.get("step") in wanted]
    if not cut_short:
        mine += [e for e in incarnation.events if e.kind == "sockets"]
    others = [e for e in events if start <= e.t <= end and e.source in ("controller", "switch")]
    return sorted([*mine, *others, *_counters(events, incarnation, (start, end), stretch)], key=lambda e: e.t)


def _counters(events: Sequence[Event], incarnation: JobIncarnation, inside: Stretch, stretch: Stretch) -> list[Event]:
    """Samples taken during the steps; and counters that are read now and then, if they were at both ends of them."""
    start, end = inside
    members = set(incarnation.members)
    found = []
    for kind in ("bytes", "cpu", "qdisc", "switch"):
        seen = [e for e in events if e.source == "link" and e.kind == kind and e.get("rank", -1) in {-1, *members}]
        if kind in ("bytes", "cpu"):
            found += [e for e in seen if start <= e.t <= end]
            continue
        rare = [e for e in seen if stretch[0] <= e.t <= stretch[1]]
        if rare and rare[0].t <= start and rare[-1].t >= end:
            found += rare
    return found
