"""Runs jobs with failures on a fabric that is brought up for them; every fault and every neighbour gives a row."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from experiments.point_run import Counted, counted
from experiments.racks.forecast import JobWindow, predict_recovery, windows
from experiments.racks.incarnations import checksums_agree, read_incarnations
from experiments.racks.job_group import JobGroup
from experiments.racks.kill import Kill
from experiments.racks.neighbour import neighbour_row
from experiments.racks.points import IncarnationPoint, points_of
from experiments.racks.recovery import recoveries
from experiments.racks.row import FailoverRow, judge_together
from experiments.racks.run_context import RunContext
from experiments.racks.setting import JobSpec
from experiments.racks.supervisor import JobSupervisor
from measure.live.delivery import Delivery
from measure.metrics.checks import Verdict
from measure.metrics.records import agents_check, controller_check, logs_check, sampler_check
from measure.results.results import CHECKPOINTS
from railyard.timeline import Event
from workloads.agent.state import expected_checksums

if TYPE_CHECKING:
    from experiments.runner import Runner
    from experiments.session import Session

_SLACK_S = 60.0


@dataclasses.dataclass(frozen=True)
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
    specs = [dataclasses.replace(spec, predicted_step_s=predicted[spec.name]) for spec in specs]
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
    counters, began = Counted(session), time.monotonic()
    try:
        before(session)
        sampled = counted(session, context.folder / "sampler.jsonl", counters)
        with sampled, runner.launcher.watching(counters.pids, counters.check):
            job_group.run(timeout_s(specs[0], seen, len(kills)))
    finally:
        events = sorted([*context.events(), *counters.events], key=lambda e: e.t)
        point = {"point": number, "mode": setting.name, "fabric": session.plan.fabric}
        runner.record.add_events([Event(began, "run", "point", time.monotonic(), point), *events], folder)
    _keep_checkpoints(runner, jobs)
    runner.record.remove(folder)
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
