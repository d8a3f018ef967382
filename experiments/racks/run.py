"""Runs jobs with failures on a fabric that is brought up for them; every fault and every neighbour gives a row.

Jobs are in a steady state before a fault, and again from the first new step of the job that lost a chip. There every
job has one point for each incarnation and each interval, made of the steps inside the interval, for
``measure.metrics.fidelity.judge``. The outage between is the subject of ``experiments.racks.recovery``.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from experiments.point_run import Counted, counted
from experiments.racks.forecast import JobWindow, predict_recovery, windows
from experiments.racks.recovery import (
    NEVER,
    JobIncarnation,
    checksums_agree,
    neighbour_row,
    read_incarnations,
    recoveries,
)
from experiments.racks.row import FailoverRow, judge_together
from experiments.racks.setting import JobSpec, Kill
from experiments.racks.supervisor import JobSupervisor, RunContext
from measure.live.delivery import Delivery
from measure.metrics.checks import Limits, Verdict
from measure.metrics.fidelity import judge
from measure.metrics.metrics import PointMetrics, measure_point
from measure.metrics.point import Point, point_event
from measure.metrics.records import agents_check, controller_check, logs_check, sampler_check
from measure.results.results import CHECKPOINTS
from railyard.errors import AgentError, ControlError, RailyardError
from railyard.loop import READ, Poller
from railyard.timeline import Event
from workloads.agent.state import expected_checksums

if TYPE_CHECKING:
    from experiments.runner import Runner
    from experiments.session import Session

STEPS_AFTER = 3
"""Complete steps that the other jobs must do after their last restart before the run may end."""
_TICK_S = 0.1
"""Longest time between two checks of timeouts, in seconds; messages are handled when they arrive."""
_PATIENCE_S = 1.0
"""Longest time from a controller's sockets closing to its end, in seconds."""


class _Pace(NamedTuple):
    """Progress of a job in its incarnation: steps done, start of the next step, duration of a step (0: none done)."""

    done: int
    since: float
    took: float


class JobGroup:
    """Several jobs on one fabric; the run is over when ``jobs[0]`` is.

    ``kills`` happen in order; ``report`` is called with progress lines. The controller is killed
    ``controller_dies_after_s`` real seconds after the first kill, unless that is None.
    """

    def __init__(
        self,
        context: RunContext,
        jobs: Sequence[JobSupervisor],
        kills: Sequence[Kill] = (),
        report: Callable[[str], None] = lambda text: None,
        controller_dies_after_s: float | None = None,
    ) -> None:
        self._context = context
        self._jobs = tuple(jobs)
        self._kills = list(kills)
        self._report = report
        self._kill_at: float | None = None
        self._last_kill: float | None = None
        self._controller_dies_after_s = controller_dies_after_s
        self._controller_dies_at: float | None = None
        self._pace: dict[str, _Pace] = {}
        """Progress of the running jobs, by name."""

    def run(self, timeout_s: float) -> None:
        """Run all jobs from their first incarnation to the end; every job is stopped in any case.

        ``AgentError`` when the jobs are not over within ``timeout_s`` (wall-clock); errors of a job are raised too.
        """
        end = self._context.clock() + timeout_s
        with ExitStack() as stack:
            for job in self._jobs:
                stack.callback(job.end, "done")
            for job in self._jobs:
                job.register()
            self._context.note_circuits()
            for job in self._jobs:
                job.begin()
            while not self._finished():
                self._poll()
                if self._context.clock() > end:
                    slow = next(job for job in self._jobs if not job.over)
                    raise AgentError(
                        f"job {slow.spec.name} was not over within {timeout_s:.0f} s: {slow.state} in incarnation "
                        f"{slow.incarnation}, {slow.steps_done} of {slow.spec.steps} steps done"
                    )
        for kill in self._kills:
            self._report(f"the kill {kill} was not executed: the run ended before")

    def _finished(self) -> bool:
        first, *others = self._jobs
        return first.over and all(job.over or self._has_resumed(job) for job in others)

    def _has_resumed(self, job: JobSupervisor) -> bool:
        if job.state != "running":
            return False
        return job.incarnation == 0 or job.steps_done - job.first_step >= STEPS_AFTER

    def _poll(self) -> None:
        now = self._context.clock()
        try:
            for job in self._jobs:
                job.poll(now)
            self._count_steps(now)
            self._kill_due(now)
            self._listen(self._next_event(now))
        except (ControlError, AgentError) as error:  # agents end when the controller does, and may be noticed first
            self._controller_gone(error)

    # ---- sockets -------------------------------------------------------------------------------------------------

    def _listen(self, wait_s: float) -> None:
        """Wait up to ``wait_s`` for messages of agents and controller, and handle them."""
        launcher = self._context.launcher
        channels = [(job.channel, job) for job in self._jobs if job.channel is not None]
        with Poller() as poller:
            poller.watch(launcher, READ)
            for channel, _ in channels:
                poller.watch(channel, READ)
            readable = {owner for owner, _ in poller.wait(inf, time.monotonic() + wait_s)}
        while launcher.listen(0.0):
            continue
        for channel, job in channels:
            if channel in readable and job.channel is channel:
                members, state = job.members, job.state
                job.handle_messages()
                self._report_change(job, members, state)

    def _report_change(self, job: JobSupervisor, members: tuple[int, ...], state: str) -> None:
        if job.state == "stranded" and state != "stranded":
            self._report(f"job {job.spec.name} stops: {job.reason}")
        elif job.members != members:
            new = [rank for rank in job.members if rank not in members]
            gone = [rank for rank in members if rank not in job.members]
            self._report(
                f"job {job.spec.name}: rank {', '.join(map(str, new))} replaces {', '.join(map(str, gone))}; "
                f"incarnation {job.incarnation} begins at step {job.first_step}"
            )

    def _next_event(self, now: float) -> float:
        times = [now + _TICK_S, self._kill_at, self._controller_dies_at]
        return max(0.0, min(t for t in times if t is not None) - now)

    # ---- kills ---------------------------------------------------------------------------------------------------

    def _count_steps(self, now: float) -> None:
        for job in self._jobs:
            name, done = job.spec.name, job.steps_done
            pace = self._pace.get(name)
            if job.state != "running":
                self._pace.pop(name, None)
            elif pace is None:
                self._pace[name] = _Pace(done, job.go_t, 0.0)
            elif done > pace.done:
                self._pace[name] = _Pace(done, now, (now - pace.since) / (done - pace.done))

    def _kill_due(self, now: float) -> None:
        if self._controller_dies_at is not None and now >= self._controller_dies_at:
            self._controller_dies_at = None
            self._kill_controller()
        if not self._kills:
            return
        kill = self._kills[0]
        job = next((job for job in self._jobs if kill.rank in job.members), self._jobs[0])
        if self._kill_at is None:
            self._kill_at = self._kill_time(kill, job)
        if self._kill_at is not None and now >= self._kill_at:
            self._kills.pop(0)
            self._kill_at = None
            self._kill(kill, job)

    def _kill_time(self, kill: Kill, job: JobSupervisor) -> float | None:
        """The time of a kill (event clock); None as long as it is not known."""
        if kill.after_s is not None:
            return None if self._last_kill is None else self._last_kill + self._context.scale.emulated_s(kill.after_s)
        pace = self._pace.get(job.spec.name)
        whole, share = divmod(kill.step or 0.0, 1)
        if pace is None or pace.done < whole:
            return None
        return pace.since + share * (pace.took or job.spec.predicted_step_s)

    def _kill(self, kill: Kill, job: JobSupervisor) -> None:
        member = kill.rank in job.members
        self._context.kill(kill.rank, job.spec.name if member else "", job.team if member else None)
        self._last_kill = self._context.clock()
        what = f"a member of job {job.spec.name}" if member else "a spare"
        self._report(f"rank {kill.rank} is killed, {what}, {job.steps_done} steps done")
        if self._controller_dies_after_s is not None:
            after_s = self._context.scale.emulated_s(self._controller_dies_after_s)
            self._controller_dies_at, self._controller_dies_after_s = self._last_kill + after_s, None

    # ---- the controller ------------------------------------------------------------------------------------------

    def _kill_controller(self) -> None:
        controller = self._context.session.controller
        assert controller is not None
        self._report("the controller is killed")
        self._context.note("fault", job="", rank=-1, what="the controller is killed")
        controller.process.kill()

    def _controller_gone(self, error: RailyardError) -> None:
        """Restart the controller and begin new incarnations; raises ``error`` if the controller has not ended."""
        session = self._context.session
        assert session.controller is not None
        try:
            session.check(_PATIENCE_S)
        except ControlError:
            pass
        else:
            raise error
        going = [job for job in self._jobs if not job.over]
        for job in going:
            job.interrupt()
        session.restart_controller()
        self._report("the controller was restarted; jobs resume from their last checkpoints")
        for job in going:
            job.register()
        for job in going:  # after all are registered, so that no job gets a spare that another job uses
            job.report_dead()
        for job in going:
            job.resume()


_SLACK_S = 60.0


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
        return measure_point(self.point, self.events)

    def judge(self, limits: Limits | None = None) -> Verdict:
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


@dataclass(frozen=True)
class RackResult:
    """Results of run ``number`` on one fabric: events, jobs and points, and the windows that the model predicted."""

    number: int
    kills: tuple[Kill, ...]
    windows: tuple[JobWindow, ...]
    jobs: tuple[JobSupervisor, ...]
    events: tuple[Event, ...]
    points: tuple[IncarnationPoint, ...]
    delivered: Delivery | None
    seed: int

    def checksum_ok(self, job: JobSupervisor) -> bool | None:
        """Whether every step of every incarnation has the checksum of an undisturbed job; None without checksums."""
        spec = job.spec
        incarnations = read_incarnations(self.events, spec.name)
        states = [e["step"] for incarnation in incarnations for e in incarnation.events if e.kind == "state"]
        steps = 1 + max(states, default=-1)
        checksums = expected_checksums(spec.program(), spec.name, self.seed, spec.setting.scale, steps)
        return checksums_agree(incarnations, dict(enumerate(checksums)))

    def verdicts(self, tenant: str) -> list[Verdict]:
        """The verdicts of a job: of its points, and of the records of the whole run if it has points."""
        found = [point.judge() for point in self.points if point.job == tenant]
        job = next(job for job in self.jobs if job.spec.name == tenant)
        checks = [logs_check(self.events), controller_check(tenant, self.events), sampler_check(self.events)]
        last = read_incarnations(self.events, tenant)[-1:]
        if job.team is not None and job.team.finished.issuperset(job.members):
            checks += [agents_check(each.members, each.events) for each in last]
        return [*found, Verdict(all(check.ok for check in checks), tuple(checks))] if found else []

    def rows(self) -> list[FailoverRow]:
        """A row for every fault that hit a job, then one for every job that none hit; empty without such a fault."""
        jobs = {job.spec.name: job for job in self.jobs}
        if not jobs:
            return []
        scale = self.jobs[0].spec.setting.scale
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
            row.on(jobs[row.tenant].spec.setting, self.seed)
            row.point = self.number
            row.checksum_ok = self.checksum_ok(jobs[row.tenant])
            judge_together(row, self.verdicts(row.tenant))
            row.count(self.delivered)
        return found

    def _complete(self, row: FailoverRow, job: JobSupervisor, number: int) -> None:
        """Set the fields of the model and of the job's restarts; ``number`` counts the faults of the run from 0."""
        if number + 1 < len(self.windows):
            before, after = self.windows[number : number + 2]
            predict_recovery(row, job.spec, before, after, stored=row.checkpoint_s is not None)
        row.kill = ",".join(map(str, self.kills))
        row.acknowledged_checkpoints = [step for step, _ in job.acknowledged]
        row.resumed = list(job.resumed)


def play(
    runner: Runner,
    specs: Sequence[JobSpec],
    kills: Sequence[Kill] = (),
    *,
    before: Callable[[Session], None] = lambda session: None,
    controller_dies_after_s: float | None = None,
) -> RackResult:
    """Bring the fabric of ``specs`` up anew and run its jobs to their end; events are saved also when an error ends it.

    ``before`` is called when the fabric is up. The controller is killed ``controller_dies_after_s`` real seconds after
    the first kill, unless that is None.
    """
    setting, scale = specs[0].setting, runner.scale
    seen = windows(specs, [kill.rank for kill in kills])
    predicted = {name: scale.emulated_s(found.step_time_s) for name, found in seen[0].jobs.items()}
    specs = [replace(spec, predicted_step_s=predicted[spec.name]) for spec in specs]
    session = runner.session(setting.fabric, new=True)
    runner.progress.say(f"{setting.name} is {setting.system}, {session.plan.ranks} chips")
    number = runner.next_number()
    folder = runner.record.point_folder(
        number,
        mode=setting.name,
        plan=setting.fabric.name,
        title=setting.name,
        delay_s=scale.emulated_s(setting.delay_s),
        steps=specs[0].steps,
        expected_s=specs[0].steps * specs[0].predicted_step_s,
    )
    context = RunContext(session, runner.launcher, folder, scale)
    jobs = tuple(JobSupervisor(context, spec) for spec in specs)
    job_group = JobGroup(context, jobs, kills, lambda text: runner.progress.say(f"  {text}"), controller_dies_after_s)
    counters, began, stopped = Counted(session), time.monotonic(), True
    try:
        session.record(number)
        before(session)
        sampled = counted(session, context.folder / "sampler.jsonl", counters)
        with sampled, runner.launcher.watching(counters.pids, counters.check):
            job_group.run(timeout_s(specs[0], seen, len(kills)))
        stopped = False
    finally:
        events = sorted([*context.events(), *counters.events], key=lambda e: e.t)
        interval = point_event(number, setting.name, session.plan.fabric, began, time.monotonic(), stopped=stopped)
        runner.record.add_events([interval, *events], folder)
    _keep_checkpoints(runner, jobs)
    points = points_of(events, specs, seen)
    seed = session.settings.seed
    return RackResult(number, tuple(kills), tuple(seen), jobs, tuple(events), tuple(points), counters.delivered, seed)


def timeout_s(spec: JobSpec, seen: Sequence[JobWindow], kills: int) -> float:
    """Timeout in wall-clock seconds: five times the expected time of the job, outages included, plus slack."""
    setting, scale = spec.setting, spec.setting.scale
    slowest = max(window.jobs[spec.name].step_time_s for window in seen)
    silent_s = scale.real_s(spec.detection.heartbeat_s * spec.detection.misses)
    copy_s = len(spec.members) * spec.tenant.state_bytes * 8 / (setting.front_end_gbps * 1e9)
    outage_s = silent_s + setting.delay_s + copy_s + sum(seconds for _, seconds in spec.stages) + 20.0
    return 5 * scale.emulated_s(slowest * spec.steps * 2 + outage_s * (1 + kills)) + _SLACK_S


def _keep_checkpoints(runner: Runner, jobs: Sequence[JobSupervisor]) -> None:
    """Copy the last checkpoints of stranded jobs into the results folder."""
    for job in jobs:
        kept = job.keep_checkpoint(runner.record.results.folder / CHECKPOINTS) if job.state == "stranded" else None
        if kept is not None:
            runner.progress.say(f"  its checkpoint of step {job.last_checkpoint} is kept in {kept}")
