"""Runs jobs with failures on a fabric that is brought up for them; every fault and every neighbour gives a row.

Jobs are in a steady state before a fault, and again from the first new step of the job that lost a chip. There every
job has one point for each incarnation and each interval, made of the steps inside the interval, for
``measure.metrics.fidelity.judge``. The outage between is the subject of ``experiments.racks.recovery``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from experiments.faults import NO_FAULTS, Faults, Kill
from experiments.job_group import Arrivals
from experiments.job_point import JobPoint
from experiments.job_supervisor import JobSupervisor
from experiments.racks.forecast import JobWindow, predict_recovery, windows
from experiments.racks.recovery import (
    NEVER,
    JobIncarnation,
    checksums_agree,
    neighbour_row,
    read_incarnations,
    recoveries,
)
from experiments.racks.requests import set_requests
from experiments.racks.row import FailoverRow, judge_together
from experiments.racks.setting import FabricSetting, Setting
from experiments.runner import GroupResult, Runner
from experiments.session import Session
from measure.metrics.checks import Verdict
from measure.metrics.critical import critical_paths
from measure.metrics.fidelity import JudgedPoint
from measure.metrics.point import Point
from measure.metrics.records import agents_check, controller_check, logs_check, sampler_check
from measure.metrics.timed_acts import timetable_checks
from railyard.timeline import Event
from workloads.agent.state import expected_checksums

_SLACK_S = 60.0
Interval = tuple[float, float]
"""Start and end on the event clock, in wall-clock seconds."""


@dataclass(frozen=True)
class IncarnationPoint(JudgedPoint):
    """One incarnation of a job in one interval; ``window`` is the number of chips that had died before."""

    job: str
    incarnation: int
    window: int


def _placed(point: IncarnationPoint) -> Verdict:
    """The verdict of a point, whose failed checks say on which side of a fault they failed."""
    side = f"after fault {point.window}" if point.window else "before the fault"
    checks = (c if c.ok else replace(c, says=f"{c.says}, {side}") for c in point.verdict.checks)
    return replace(point.verdict, checks=tuple(checks))


def points_of(
    events: Sequence[Event], setting: FabricSetting, jobs: Sequence[JobPoint], windows: Sequence[JobWindow] = ()
) -> list[IncarnationPoint]:
    """The points of one run of ``jobs`` on their fabric, in order of time and of jobs.

    ``windows`` are the model's predictions, by number of dead chips. A job without a complete step in an interval has
    no point there. A step of a pipeline lasts from the end of the one before, so one alone makes no point either.
    """
    lives = [(job, each) for job in jobs for each in read_incarnations(events, job.name)]
    owners = {
        name: job.name
        for job in jobs
        for name in (*job.program.groups, f"start of {job.name}", f"splice of {job.name}")
    }
    mine = {job.name: [e for e in events if owners.get(e.get("group", ""), job.name) == job.name] for job in jobs}
    found: list[IncarnationPoint] = []
    intervals = undisturbed_intervals(recoveries(events, setting.scale))
    for number, interval in enumerate(intervals):
        window = windows[number] if number < len(windows) else None
        for job, incarnation in lives:
            steps = incarnation.steps_in(*interval)
            program, plan = job.program_of(incarnation.members), setting.plan
            groups = program.groups
            pipelined = sum(not group.parent for group in groups.values()) > 1
            if not steps or (pipelined and len(steps) == 1):
                continue
            model = window.jobs.get(job.name) if window else None
            point = Point(
                number=len(found),
                mode=f"{setting.name}-{job.name}-{incarnation.number}",
                plan=plan,
                groups=groups,
                scale=setting.scale,
                reconfiguration_delay_s=job.reconfiguration_delay_s,
                link_recovery_s=job.link_recovery_s,
                predicted_step_time_s=model.step_time_s if model else None,
                warmup_steps=int(pipelined or steps[0] == incarnation.steps.complete[0]),
                critical=critical_paths(program, setting.scale, plan.ports_per_gpu, circuits=False)
                if plan.rack
                else {},
                operations_s=model.operations_s if model and plan.links else {},
                cut_short=steps != incarnation.steps.complete or not _ended_well(incarnation),
                contended=bool(window and window.contended),
                part=True,
                switch_losses=len(intervals) == 1,
            )
            inside = _events(mine[job.name], incarnation, steps, cut_short=point.cut_short)
            found.append(IncarnationPoint(point, inside, job.name, incarnation.number, number))
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
    found += [e for e in events if e.source == "run" and e.kind == "act" and e.t <= end]
    found += [e for e in events if e.source in ("controller", "switch") and start <= (e.end or e.t) and e.t <= end]
    counters: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for e in events:
        if e.source == "link" and e.get("rank", -1) in ranks:
            counters[(e.kind, *map(e.get, ("interface", "switch", "machine", "a", "b")))].append(e)
    for readings in counters.values():
        times = [e.t for e in readings]
        found += readings[max(0, bisect_right(times, start) - 1) : bisect_left(times, end) + 1]
    return sorted(found, key=lambda e: e.t)


@dataclass(frozen=True)
class RackResult(GroupResult):
    """Results of a run on one fabric: with the points, and the windows that the model predicted."""

    setting: FabricSetting
    kills: tuple[Kill, ...]
    windows: tuple[JobWindow, ...]
    points: tuple[IncarnationPoint, ...]
    seed: int

    def checksum_ok(self, job: JobSupervisor) -> bool | None:
        """Whether every step of every incarnation has the checksum of an undisturbed job; None without checksums.

        A job in several groups has no state whose checksum is known.
        """
        if job.name not in job.job.program.groups:
            return None
        incarnations = read_incarnations(self.events, job.name)
        states = [e["step"] for incarnation in incarnations for e in incarnation.events if e.kind == "state"]
        steps = 1 + max(states, default=-1)
        checksums = expected_checksums(job.job.program, job.name, self.seed, self.setting.scale, steps)
        return checksums_agree(incarnations, dict(enumerate(checksums)))

    def verdicts(self, tenant: str) -> list[Verdict]:
        """The verdicts of a job: of its points, and of the records of the whole run if it has points."""
        found = [_placed(point) for point in self.points if point.job == tenant]
        job = next(job for job in self.jobs if job.name == tenant)
        checks = [logs_check(self.events), controller_check(tenant, self.events), sampler_check(self.events)]
        last = read_incarnations(self.events, tenant)[-1:]
        if job.team is not None and job.team.finished.issuperset(job.members):
            checks += [agents_check(each.members, each.events) for each in last]
        checks += timetable_checks(self.events)
        return [*found, Verdict(all(check.ok for check in checks), tuple(checks))] if found else []

    def rows(self) -> list[FailoverRow]:
        """A row for every fault that hit a job, then one for every job that none hit; empty without such a fault."""
        jobs, scale = {job.name: job for job in self.jobs}, self.setting.scale
        hit = [
            (number, row)
            for number, row in enumerate(recoveries(self.events, scale))
            if row.tenant and row.state != "no member"
        ]
        for number, row in hit:
            self._complete(row, jobs[row.tenant], number)
        found = [row for _, row in hit]
        spared = [name for name in jobs if found and name not in {row.tenant for row in found}]
        for name in spared:
            row = neighbour_row(self.events, scale, found[0], name)
            row.predicted_step_time_before_s = self.windows[0].jobs[name].step_time_s
            if len(self.windows) > 1:
                row.predicted_step_time_after_s = self.windows[1].jobs[name].step_time_s
            found.append(row)
        for row in found:
            row.on(self.setting, self.seed)
            row.point = self.number
            row.checksum_ok = self.checksum_ok(jobs[row.tenant])
            judge_together(row, self.verdicts(row.tenant))
            row.count(self.delivered)
        return found

    def _complete(self, row: FailoverRow, job: JobSupervisor, number: int) -> None:
        """Set the fields of the model and of the job's restarts; ``number`` counts the faults of the run from 0."""
        if number + 1 < len(self.windows):
            before, after = self.windows[number : number + 2]
            stored, kill = row.checkpoint_s is not None, None if number else self.kills[0]
            predict_recovery(row, self.setting, job.job, before, after, stored=stored, kill=kill)
        if not number:
            set_requests(row, job.job, job.epoch, read_incarnations(self.events, job.name), self.setting.scale)
        row.kill = ",".join(map(str, self.kills))
        row.acknowledged_checkpoints = [step for step, _ in job.acknowledged]
        row.resumed = list(job.resumed)


def play(
    runner: Runner,
    setting: FabricSetting,
    jobs: Sequence[JobPoint],
    faults: Faults = NO_FAULTS,
    *,
    seen: Sequence[JobWindow],
    expected_s: float,
    arrivals: Arrivals | None = None,
    before: Callable[[Session], None] = lambda session: None,
) -> RackResult:
    """Bring the fabric of ``setting`` up anew and run ``jobs`` on it; events are saved also when an error ends it.

    ``seen`` are the predicted windows of the jobs, ``expected_s`` is the real time of a run without faults. ``before``
    is called when the fabric is up.
    """
    session = runner.session(setting.fabric, new=True)
    runner.progress.say(f"{setting.name} is {setting.system}, {session.plan.ranks} chips")
    step_s = {name: runner.scale.emulated_s(job.step_time_s) for name, job in seen[0].jobs.items()}
    jobs = [replace(job, expected_step_s=step_s[job.name]) for job in jobs]
    played = runner.play(
        jobs,
        setting.name,
        setting.name,
        runner.scale.emulated_s(expected_s),
        timeout_s(setting, jobs[0], expected_s, len(faults.kills)),
        faults=faults,
        arrivals=arrivals,
        before=lambda: before(session),
    )
    points = points_of(played.events, setting, jobs, seen)
    return RackResult(
        **vars(played),
        setting=setting,
        kills=faults.kills,
        windows=tuple(seen),
        points=tuple(points),
        seed=session.settings.seed,
    )


def timeout_s(setting: FabricSetting, job: JobPoint, expected_s: float, kills: int) -> float:
    """Timeout in wall-clock seconds: five times twice the expected (real) time, outages included, plus slack."""
    scale, training = setting.scale, job.training
    assert training is not None
    silent_s = scale.real_s(training.detection.heartbeat_s * training.detection.misses)
    copy_s = len(job.members) * training.state_bytes * 8 / (setting.front_end_gbps * 1e9)
    outage_s = silent_s + setting.delay_s + copy_s + sum(seconds for _, seconds in training.stages) + 20.0
    return 5 * scale.emulated_s(2 * expected_s + outage_s * (1 + kills)) + _SLACK_S


def play_racks(
    runner: Runner,
    setting: Setting,
    jobs: Sequence[JobPoint],
    faults: Faults = NO_FAULTS,
    *,
    before: Callable[[Session], None] = lambda session: None,
) -> RackResult:
    """``play`` on racks, whose jobs share links and are predicted together."""
    first, seen = jobs[0], windows(setting, jobs, [kill.ranks(setting.plan) for kill in faults.kills])
    slowest_s = max(window.jobs[first.name].step_time_s for window in seen)
    expected_s = max(slowest_s * first.steps, 0.0 if first.arrivals is None else first.arrivals.at_s[-1])
    return play(runner, setting, jobs, faults, seen=seen, expected_s=expected_s, before=before)
