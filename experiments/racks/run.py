"""Runs jobs with failures on racks, one fabric after the other, and writes one results folder."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from experiments.failover.settings import FailoverExperiment, Setting
from experiments.racks.forecast import JobWindow, windows
from experiments.racks.incarnations import checksums_agree, incarnations_of, read_incarnations
from experiments.racks.job_group import JobGroup
from experiments.racks.job_spec import JobSpec
from experiments.racks.kill import Kill
from experiments.racks.points import IncarnationPoint, points_of
from experiments.racks.recovery import Recovery, recoveries
from experiments.racks.run_context import RunContext
from experiments.racks.supervisor import JobSupervisor
from experiments.record import Record, run_manifest
from experiments.session import Session
from measure.live.sampler import Sampler, host_interfaces, queue_events, switch_events
from measure.results.row import Row
from railyard.errors import RailyardError
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.agent.launcher import AgentLauncher
from workloads.agent.state import expected_checksums

_SLACK_S = 60.0

Say = Callable[[str], None]
Before = Callable[[Session], None]
"""Callback for a fabric that is up, before its jobs begin."""


@dataclasses.dataclass(frozen=True)
class RackResult:
    """Results of a run on one fabric: events, jobs, recoveries and points, and the windows that the model predicted."""

    setting: Setting
    plan: FabricPlan
    kills: tuple[Kill, ...]
    windows: tuple[JobWindow, ...]
    jobs: tuple[JobSupervisor, ...]
    events: tuple[Event, ...]
    recoveries: tuple[Recovery, ...]
    points: tuple[IncarnationPoint, ...]
    scale: Scale

    def window(self, number: int) -> JobWindow | None:
        """The predicted window after ``number`` failures; None if the model did not reach it."""
        return self.windows[number] if number < len(self.windows) else None

    def checksum_ok(self, job: JobSupervisor) -> bool | None:
        """Whether every step of every incarnation has the checksum of an undisturbed job; None without checksums."""
        spec = job.spec
        incarnations = incarnations_of(read_incarnations(self.events), spec.name)
        steps = 1 + max(
            (e["step"] for incarnation in incarnations for e in incarnation.events if e.kind == "state"), default=-1
        )
        program = spec.program(spec.members, self.plan.ranks)
        checksums = expected_checksums(program, spec.name, spec.seed, self.scale, steps)
        return checksums_agree(incarnations, dict(enumerate(checksums)))


class RackRun:
    """A run on racks as a context manager; ``experiment`` gives controller and scale of the fabrics.

    ``say`` is called with progress lines.
    """

    def __init__(self, experiment: FailoverExperiment, out: Path, say: Say) -> None:
        self.record = Record(out)
        self.experiment = experiment
        self.scale = experiment.scale.scale()
        self.say = say
        self._launcher: AgentLauncher | None = None
        self._number = 0

    def __enter__(self) -> RackRun:
        self._launcher = AgentLauncher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: object) -> None:
        assert self._launcher is not None
        self._launcher.close()
        self.record.close(error)

    def play(
        self,
        setting: Setting,
        plan: FabricPlan,
        specs: Sequence[JobSpec],
        kills: Sequence[Kill] = (),
        before: Before = lambda session: None,
    ) -> RackResult:
        """Bring a fabric up and run its jobs to their end; events are saved also when an error ends the run."""
        seen = windows(specs, plan, self.scale, [kill.rank for kill in kills])
        predicted = [self.scale.emulated_s(seen[0].jobs[spec.name].step_time_s) for spec in specs]
        specs = [dataclasses.replace(s, predicted_step_s=step) for s, step in zip(specs, predicted, strict=True)]
        assert self._launcher is not None
        began, counters = time.monotonic(), list[Event]()
        with Session(self.experiment, self.experiment.topology(setting, self.scale)) as session:
            self._opened(setting.name, session)
            self.say(f"{setting.name} ({setting.system}) is up, {session.plan.ranks} chips")
            context = RunContext(session, self._launcher, session.folder / "jobs", self.scale)
            jobs = tuple(JobSupervisor(context, spec) for spec in specs)
            job_group = JobGroup(
                context, jobs, kills, lambda text: self.say(f"  {text}"), self._controller_dies_after_s
            )
            try:
                before(session)
                self._run(context, job_group, counters, self._timeout_s(specs[0], setting, seen, len(kills)))
            except RailyardError:
                self.record.keep_logs(session)
                raise
            finally:
                events = sorted([*context.events(), *counters], key=lambda e: e.t)
                point = {"point": self._number, "mode": setting.name, "fabric": plan.fabric}
                self._number += 1
                self.record.add_events([Event(began, "run", "point", time.monotonic(), point), *events])
            self._keep_checkpoints(jobs)
        found = tuple(recoveries(events, self.scale))
        points = self._points(events, setting, plan, specs, seen)
        return RackResult(setting, plan, tuple(kills), tuple(seen), jobs, tuple(events), found, points, self.scale)

    def add_rows(self, rows: Sequence[Row], revise: Callable[[list[Row]], list[Row]] = lambda rows: rows) -> None:
        """Add ``rows`` and write the summary; ``revise`` may change all rows so far."""
        self.record.rows[:] = revise([*self.record.rows, *rows])
        self.record.results.write_rows(self.record.rows)

    # ---- inside --------------------------------------------------------------------------------------------------

    @property
    def _controller_dies_after_s(self) -> float | None:
        after_ms = self.experiment.controller_dies_after_ms
        return None if after_ms is None else after_ms / 1e3

    def _opened(self, name: str, session: Session) -> None:
        if not self.record.opened:
            self.record.open(run_manifest(self.experiment, self.scale, session.net.yard.datapath))
        self.record.add_plan(name, session.plan)

    def _run(self, context: RunContext, job_group: JobGroup, counters: list[Event], timeout_s: float) -> None:
        """Run the jobs, with readings of all counters before and after."""
        session = context.session
        netns_fds, yard = dict(enumerate(session.netns_fds())), session.net.yard

        def read() -> None:
            counters.extend(queue_events(netns_fds, session.plan))
            counters.extend(switch_events(yard.netns_fd, session.plan))

        read()
        with ExitStack() as stack:
            stack.callback(read)
            log = context.folder / "sampler.jsonl"
            stack.enter_context(Sampler(log, yard.netns_fd, host_interfaces(session.plan), [yard.pids["ovs-vswitchd"]]))
            job_group.run(timeout_s)

    def _timeout_s(self, spec: JobSpec, setting: Setting, seen: Sequence[JobWindow], kills: int) -> float:
        """Timeout in wall-clock seconds: five times the expected time of the job, outages included, plus slack."""
        slowest = max(window.jobs[spec.name].step_time_s for window in seen)
        silent_s = self.scale.real_s(spec.detection.heartbeat_s * spec.detection.misses)
        copy_s = len(spec.members) * spec.tenant.state_bytes * 8 / (self.experiment.front_end_gbps * 1e9)
        outage_s = silent_s + setting.delay_s + copy_s + sum(seconds for _, seconds in spec.stages) + 20.0
        return 5 * self.scale.emulated_s(slowest * spec.steps * 2 + outage_s * (1 + kills)) + _SLACK_S

    def _keep_checkpoints(self, jobs: Sequence[JobSupervisor]) -> None:
        """Copy the last checkpoints of stranded jobs into the results folder."""
        for job in jobs:
            if job.state == "stranded":
                kept = job.keep_checkpoint(self.record.results.folder / "checkpoints")
                if kept is not None:
                    self.say(f"  its checkpoint of step {job.acknowledged[-1][0]} is kept in {kept}")

    def _points(
        self,
        events: Sequence[Event],
        setting: Setting,
        plan: FabricPlan,
        specs: Sequence[JobSpec],
        seen: Sequence[JobWindow],
    ) -> tuple[IncarnationPoint, ...]:
        groups = {spec.name: spec.program(spec.members, plan.ranks).groups for spec in specs}
        predicted = {(name, w): found for w, window in enumerate(seen) for name, found in window.jobs.items()}
        shared = [(name, w) for w, window in enumerate(seen) if window.contended for name in window.jobs]
        return tuple(
            points_of(events, plan, groups, self.scale, mode=setting.name, predicted=predicted, contended=shared)
        )
