"""Runs a failover experiment: on every fabric real jobs, real kills; then what it cost, beside what it should cost."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from measure import calibrate
from measure.failover_row import fault_row, neighbour_row, prediction_row, with_ratios
from measure.life_points import LifePoint, points_of
from measure.lives import checksums_agree, lives_of, read_lives
from measure.manifest import build_manifest
from measure.neighbour import neighbour_effect
from measure.recovery import Recovery, recoveries
from measure.row import Row
from measure.sampler import Sampler, port_labels, queue_events, switch_events
from measure.timeline import Event
from railyard.crew import Crew
from railyard.errors import RailyardError
from railyard.failover import FailoverExperiment, Setting
from railyard.job_spec import JobSpec
from railyard.kill import Kill
from railyard.rack_forecast import Window, foresee, windows
from railyard.record import Record
from railyard.scale import Scale
from railyard.session import Session
from railyard.site import Site
from railyard.supervisor import Supervisor
from topos.plan import FabricPlan
from workloads.nursery import Nursery
from workloads.state import expected_checksums

_SLACK_S = 60.0
_ENDLESS = 10_000
"""Steps of a neighbour, which is ended when the job is over."""

Say = Callable[[str], None]


def specs_of(experiment: FailoverExperiment, setting: Setting, plan: FabricPlan, scale: Scale) -> list[JobSpec]:
    """The jobs on one fabric: the one that is struck, and its neighbour."""
    assert plan.rack is not None
    tenants = [experiment.job, *([experiment.neighbour] if experiment.neighbour is not None else [])]
    return [
        JobSpec(
            name=rented.name,
            members=rented.ranks,
            tenant=tenant,
            setting=setting,
            steps=_ENDLESS if number else experiment.steps,
            lanes=plan.ports_per_gpu if setting.photonic else 2,
            detection=experiment.detection.detection(scale),
            stages=tuple(experiment.stages.items()),
            seed=experiment.seed,
            verify=experiment.verify,
            ack_timeout_s=experiment.ack_timeout_s,
        )
        for number, (rented, tenant) in enumerate(zip(plan.rack.tenants, tenants, strict=False))
    ]


def foresee_rows(experiment: FailoverExperiment) -> list[Row]:
    """The predicted columns of every fabric, without a packet. No root."""
    scale, rows = experiment.scale.scale(), []
    for name in experiment.fabrics:
        setting = experiment.setting(name)
        plan = experiment.plan(setting, scale)
        specs = specs_of(experiment, setting, plan, scale)
        kills = experiment.kills(plan) or (experiment.random_kill(plan, 0),)
        seen = windows(specs, plan, scale, [kill.rank for kill in kills])
        for before, after, kill in zip(seen, seen[1:], kills, strict=False):
            spec = next((s for s in specs if kill.rank in before.members[s.name]), None)
            if spec is not None:
                found = foresee(spec, before, after, plan, scale, has_checkpoint=_stored(spec, kill))
                head = {"experiment": experiment.experiment, "system": setting.system, "fabric": name}
                rows.append(prediction_row(found, tenant=spec.name, plan=plan, **head))
    return with_ratios(rows)


def _stored(spec: JobSpec, kill: Kill) -> bool:
    """Whether a checkpoint is there when the chip dies (a later kill: if the job was so far at all)."""
    return kill.step is None or kill.step > spec.tenant.checkpoint_every


class FailoverRun:
    """One run of ``experiment`` into the folder ``out``; ``say`` hears what happens, in words."""

    def __init__(self, experiment: FailoverExperiment, out: Path, say: Say) -> None:
        self.record = Record(out)
        self.experiment = experiment
        self.scale = experiment.scale.scale()
        self._out = out
        self._say = say
        self._number = count()

    def run(self) -> None:
        """Measure every fabric; raises what ended the run, after saving what there is."""
        with Nursery.start() as nursery:
            try:
                for name in self.experiment.fabrics:
                    setting = self.experiment.setting(name)
                    plan = self.experiment.plan(setting, self.scale)
                    for kills in self._rounds(plan):
                        FabricRun(self, setting, plan, kills, nursery).measure()
            except BaseException as error:
                self.record.close(error)
                raise
        self.record.close(None)

    def _rounds(self, plan: FabricPlan) -> list[tuple[Kill, ...]]:
        """The kills of each bring-up of a fabric."""
        if not self.experiment.random_kills:
            return [self.experiment.kills(plan)]
        return [(self.experiment.random_kill(plan, number),) for number in range(self.experiment.random_kills)]

    def say(self, text: str) -> None:
        """Tell a person."""
        self._say(text)

    def opened(self, name: str, session: Session) -> None:
        """A fabric is up: it belongs into the manifest."""
        if not self.record.opened:
            datapath = session.net.yard.datapath
            calibration = calibrate.load()
            self.record.open(
                build_manifest(
                    experiment=self.experiment.model_dump(mode="json"),
                    seed=self.experiment.seed,
                    scale=self.scale,
                    plans=[],
                    groups={},
                    calibration=dataclasses.asdict(calibration) if calibration else None,
                    datapath="kernel" if datapath == "system" else datapath,
                )
            )
        self.record.add_plan(name, session.plan)

    def next_number(self) -> int:
        """Points of a run are counted."""
        return next(self._number)

    def add_rows(self, rows: Sequence[Row]) -> None:
        """Rows go out with what they are to the photonic ones."""
        self.record.rows[:] = with_ratios([*self.record.rows, *rows])
        self.record.results.write_rows(self.record.rows)


class FabricRun:
    """One bring-up of one fabric: jobs begin, chips die, jobs go on or stop."""

    def __init__(
        self, run: FailoverRun, setting: Setting, plan: FabricPlan, kills: tuple[Kill, ...], nursery: Nursery
    ) -> None:
        self._run = run
        self._setting = setting
        self._kills = kills
        self._nursery = nursery
        self._plan = plan
        specs = specs_of(run.experiment, setting, plan, run.scale)
        self._windows = windows(specs, plan, run.scale, [kill.rank for kill in kills])
        self._specs = [
            dataclasses.replace(s, foreseen_step_s=run.scale.emulated_s(self._windows[0].jobs[s.name].step_time_s))
            for s in specs
        ]

    def measure(self) -> None:
        """Everything on this fabric; its events and rows are on disk afterwards, whatever happened."""
        run, began = self._run, time.monotonic()
        topo = run.experiment.topology(self._setting, run.scale)
        with Session(run.experiment, topo) as session:
            run.opened(self._setting.name, session)
            run.say(f"{self._setting.name} ({self._setting.system}) is up, {session.plan.ranks} chips")
            folder = session.folder / "site"
            folder.mkdir(mode=0o700)
            site = Site(session, self._nursery, folder, run.scale)
            jobs = [Supervisor(site, spec) for spec in self._specs]
            crew = Crew(site, jobs, self._kills, lambda text: run.say(f"  {text}"), self._controller_dies_after_s)
            counters: list[Event] = []
            try:
                self._play(session, site, crew, counters)
            except RailyardError:
                run.record.keep_logs(session)
                raise
            finally:
                events = sorted([*site.events(), *counters], key=lambda e: e.t)
                point = {"point": run.next_number(), "mode": self._setting.name, "fabric": self._plan.fabric}
                run.record.add_events([Event(began, "run", "point", time.monotonic(), point), *events])
            self._keep_checkpoints(jobs)
        self._judge(events, jobs)

    @property
    def _controller_dies_after_s(self) -> float | None:
        after_ms = self._run.experiment.controller_dies_after_ms
        return None if after_ms is None else after_ms / 1e3

    def _play(self, session: Session, site: Site, crew: Crew, counters: list[Event]) -> None:
        """Run the jobs between two readings of all counters."""
        netns_fds = dict(enumerate(session.netns_fds()))

        def read() -> None:
            counters.extend(queue_events(netns_fds, session.plan))
            counters.extend(switch_events(session.net.yard.netns_fd, session.plan))

        read()
        pids = [session.net.yard.pids["ovs-vswitchd"]]
        log = site.folder / "sampler.jsonl"
        with ExitStack() as stack:
            stack.callback(read)
            stack.enter_context(Sampler(log, session.net.yard.netns_fd, port_labels(session.plan), pids))
            crew.run(self._timeout_s())

    def _timeout_s(self) -> float:
        """Five times what the job should take, outages included."""
        experiment, scale = self._run.experiment, self._run.scale
        slowest = max(w.jobs[self._specs[0].name].step_time_s for w in self._windows)
        outage = sum(experiment.stages.values()) + self._setting.delay_s + 20.0
        return 5 * scale.emulated_s(slowest * experiment.steps * 2 + outage * (1 + len(self._kills))) + _SLACK_S

    def _keep_checkpoints(self, jobs: Sequence[Supervisor]) -> None:
        """The checkpoints of jobs that stopped for good are worth more than the fabric."""
        for job in jobs:
            if job.state == "stranded":
                kept = job.keep_checkpoint(self._run.record.results.folder / "checkpoints")
                if kept is not None:
                    self._run.say(f"  its checkpoint of step {job.acknowledged[-1][0]} is kept in {kept}")

    # ---- what it cost --------------------------------------------------------------------------------------------

    def _judge(self, events: Sequence[Event], jobs: Sequence[Supervisor]) -> None:
        run, scale = self._run, self._run.scale
        found = recoveries(events, scale)
        points = self._points(events, scale)
        rows = []
        for number, recovery in enumerate(found):
            if recovery.job:
                rows.append(self._fault_row(recovery, number, events, jobs, points))
        struck = next((r for r in found if r.job and r.state != "no member"), None)
        if struck is not None:
            others = [job for job in jobs if job.spec.name not in {r.job for r in found}]
            rows += [self._neighbour_row(struck, job, events, points) for job in others]
        run.add_rows(rows)
        for row in rows:
            if row["event"] != "neighbour":
                run.say(f"  {_outcome(row)}")

    def _points(self, events: Sequence[Event], scale: Scale) -> list[LifePoint]:
        groups = {s.name: s.program(s.members, self._plan.ranks).groups for s in self._specs}
        predicted = {(name, w): found for w, window in enumerate(self._windows) for name, found in window.jobs.items()}
        contended = [(name, w) for w, window in enumerate(self._windows) if window.contended for name in window.jobs]
        mode = self._setting.name
        return points_of(events, self._plan, groups, scale, mode=mode, predicted=predicted, contended=contended)

    def _fault_row(
        self,
        recovery: Recovery,
        number: int,
        events: Sequence[Event],
        jobs: Sequence[Supervisor],
        points: Sequence[LifePoint],
    ) -> Row:
        job = next(job for job in jobs if job.spec.name == recovery.job)
        before, after = self._window(number), self._window(number + 1)
        stored = recovery.checkpoint_s is not None
        predicted = None
        if before is not None and after is not None:
            predicted = foresee(job.spec, before, after, self._plan, self._run.scale, has_checkpoint=stored)
        return fault_row(
            recovery,
            predicted,
            **self._head,
            checksum_ok=self._checksum_ok(job, events),
            verdicts=[point.judge() for point in points if point.job == recovery.job],
            kill=",".join(map(str, self._kills)),
            acknowledged_checkpoints=[step for step, _ in job.acknowledged],
            resumed=[list(pair) for pair in job.resumed],
            seed=self._run.experiment.seed,
            rate_scale=self._run.scale.rate,
            time_scale=self._run.scale.time,
        )

    def _neighbour_row(
        self, struck: Recovery, job: Supervisor, events: Sequence[Event], points: Sequence[LifePoint]
    ) -> Row:
        name, last = job.spec.name, self._window(1)
        return neighbour_row(
            neighbour_effect(events, self._run.scale, struck, name),
            **self._head,
            checksum_ok=self._checksum_ok(job, events),
            verdicts=[point.judge() for point in points if point.job == name],
            predicted_before_s=self._windows[0].jobs[name].step_time_s,
            predicted_after_s=last.jobs[name].step_time_s if last is not None else None,
            seed=self._run.experiment.seed,
            rate_scale=self._run.scale.rate,
            time_scale=self._run.scale.time,
        )

    @property
    def _head(self) -> dict[str, Any]:
        name, system = self._run.experiment.experiment, self._setting.system
        return {"experiment": name, "system": system, "fabric": self._setting.name, "plan": self._plan}

    def _window(self, number: int) -> Window | None:
        return self._windows[number] if number < len(self._windows) else None

    def _checksum_ok(self, job: Supervisor, events: Sequence[Event]) -> bool | None:
        """Whether every step of every life left the checksum that an undisturbed job would have."""
        spec = job.spec
        steps = 1 + max((e["step"] for e in events if e.kind == "state" and e["rank"] in job.members), default=-1)
        program = spec.program(spec.members, self._plan.ranks)
        checksums = expected_checksums(program, spec.name, spec.seed, self._run.scale, steps)
        return checksums_agree(lives_of(read_lives(events), spec.name), dict(enumerate(checksums)))


def _outcome(row: Mapping[str, Any]) -> str:
    """A row in words."""
    if row["outage_s"] is None:
        return f"{row['tenant']}: {row['state']}" + (f" ({row['reason']})" if row["reason"] else "")
    verdict = "faithful" if row["faithful"] else row["verdict"]
    return (
        f"{row['tenant']}: circuits up after {row['circuits_s']:.3f} s, out for {row['outage_s']:.2f} s, step "
        f"{row['step_time_before_s'] or 0:.3f} s before and {row['step_time_after_s'] or 0:.3f} s after; {verdict}"
    )
