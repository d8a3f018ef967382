"""Measurement points of a run with faults: the intervals without outages, in which jobs can be judged as usual.

Jobs are in a steady state before a fault, and again from the first new step of the job that lost a chip. The outage
between is the subject of ``experiments.racks.recovery``. Every job has one point for each incarnation and each
interval, made of the steps inside the interval, for ``measure.metrics.fidelity.judge``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from experiments.racks.forecast import JobWindow
from experiments.racks.incarnations import NEVER, JobIncarnation, read_incarnations
from experiments.racks.recovery import recoveries
from experiments.racks.row import FailoverRow
from experiments.racks.setting import JobSpec
from measure.metrics.checks import Limits, Verdict
from measure.metrics.fidelity import judge
from measure.metrics.metrics import PointMetrics, measure_point
from measure.metrics.point import Point
from railyard.timeline import Event

Interval = tuple[float, float]
"""Start and end on the event clock, in wall-clock seconds."""


@dataclass(frozen=True)
class IncarnationPoint:
    """One incarnation of a job in one interval; ``window`` is the number of chips that had died before."""

    job: str
    incarnation: int
    window: int
    point: Point
    events: list[Event]

    @property
    def metrics(self) -> PointMetrics:
        """Metrics of the point, measured from its events."""
        return measure_point(self.point, self.events)

    def judge(self, limits: Limits | None = None) -> Verdict:
        """The verdict of ``measure.metrics.fidelity`` on the point."""
        return judge(self.point, self.events, self.metrics, limits)


def points_of(
    events: Sequence[Event], specs: Sequence[JobSpec], windows: Sequence[JobWindow] = ()
) -> list[IncarnationPoint]:
    """The points of one run of ``specs`` on their fabric, in order of time and of jobs.

    ``windows`` are the model's predictions, by number of dead chips. A job without a complete step in an interval has
    no point there.
    """
    setting = specs[0].setting
    lives = [(spec, each) for spec in specs for each in read_incarnations(events, spec.name)]
    found: list[IncarnationPoint] = []
    intervals = undisturbed_intervals(recoveries(events, setting.scale))
    for number, interval in enumerate(intervals):
        window = windows[number] if number < len(windows) else None
        for spec, incarnation in lives:
            steps = incarnation.steps_in(*interval)
            if not steps:
                continue
            model = window.jobs.get(spec.name) if window else None
            point = Point(
                number=len(found),
                mode=f"{setting.name}-{spec.name}-{incarnation.number}",
                plan=setting.plan,
                groups=spec.program(incarnation.members).groups,
                scale=setting.scale,
                predicted_step_time_s=model.step_time_s if model else None,
                warmup_steps=int(steps[0] == incarnation.steps.complete[0]),
                operations_s=model.operations_s if model and setting.plan.links else {},
                cut_short=steps != incarnation.steps.complete or not _ended_well(incarnation),
                contended=bool(window and window.contended),
                part=True,
                switch_losses=len(intervals) == 1,
            )
            inside = _events(events, incarnation, steps, cut_short=point.cut_short)
            found.append(IncarnationPoint(spec.name, incarnation.number, number, point, inside))
    return found


def undisturbed_intervals(found: Iterable[FailoverRow]) -> list[Interval]:
    """The intervals without outages: up to the first fault, between faults, and from the last recovery on.

    There is one more than there are faults; an interval is empty (start = end) if a fault came before the recovery from
    the fault before. For a job that never resumed, the outage ends with that decision.
    """
    intervals, start = list[Interval](), 0.0
    for fault_t, restart_t in sorted((row.fault_t or 0.0, row.restart_t) for row in found):
        intervals.append((start, max(start, fault_t)))
        start = max(start, restart_t)
    return [*intervals, (start, NEVER)]


def _ended_well(incarnation: JobIncarnation) -> bool:
    """Whether every agent of the incarnation reached its end and recorded the counters of its sockets."""
    return {e["rank"] for e in incarnation.events if e.kind == "sockets"} == set(incarnation.members)


def _events(
    events: Sequence[Event], incarnation: JobIncarnation, steps: Sequence[int], *, cut_short: bool
) -> list[Event]:
    """Events of agents, controller, switches and counters during ``steps`` of ``incarnation``.

    Of each counter they begin with the last reading before the steps, and end with the first one after them.
    """
    start, end = incarnation.steps.job(steps[0])[0], incarnation.steps.job(steps[-1])[1]
    wanted, ranks = set(steps), {-1, *incarnation.members}
    found = [e for e in incarnation.events if e.get("step") in wanted or (e.kind == "sockets" and not cut_short)]
    found += [e for e in events if e.source in ("controller", "switch") and start <= e.t <= end]
    counters: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for e in events:
        if e.source == "link" and e.get("rank", -1) in ranks:
            counters[e.kind, e.get("interface"), e.get("switch")].append(e)
    for readings in counters.values():
        times = [e.t for e in readings]
        found += readings[max(0, bisect_right(times, start) - 1) : bisect_left(times, end) + 1]
    return sorted(found, key=lambda e: e.t)
