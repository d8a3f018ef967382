"""Runs the points of an experiment into one results folder: fabrics, agents, counters, events, rows and manifest.

A fabric stays up for the next point if that needs the same one. Events are on disk after every point, so that
an error later loses no results.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any

from experiments.faults import NO_FAULTS, Faults
from experiments.job_group import Arrivals, JobGroup
from experiments.job_point import Fabric, JobPoint, as_typed, machine_costs
from experiments.job_supervisor import JobSupervisor
from experiments.point_run import PointRun
from experiments.progress import RunProgress
from experiments.record import Record, Recordable
from experiments.rest_access import RestAccess, reserved_address, rest_access
from experiments.script import UserScript
from experiments.session import Session
from experiments.settings import PacketSettings, RepeatedSettings
from experiments.spread.machines import Cluster
from measure.live.annotation import annotate, write_pcapng
from measure.live.calibration import this_machine
from measure.live.capture import Capture, Captured, taps_of
from measure.live.delivery import Delivery
from measure.metrics.explain import last_step
from measure.metrics.fidelity import JudgedPoint
from measure.metrics.point import Point, point_event
from measure.model.prediction import Prediction
from measure.results.manifest import REST
from measure.results.results import CAPTURES, CHECKPOINTS
from measure.results.row import ResultRow, Row
from railyard.errors import ConfigError
from railyard.ownership import make_folder
from railyard.scale import Scale
from railyard.signals import held_back
from railyard.timeline import Event
from topos.kernel.links import changing
from topos.kernel.transport import usable_transport
from workloads.agent.launcher import AgentLauncher
from workloads.program import Program
from workloads.pytorch.script_ranks import ScriptRanks
from workloads.stragglers.background import Background

_SLACK_S = 60.0
_OF_A_LAB = "controller", "datapath", "transport", "port_speed", "rest"
"""Settings that a fabric has from its start."""
_TIMEOUT_FACTOR = 5
"""A run that takes this many times the predicted time, plus ``_SLACK_S`` seconds, is ended."""


@dataclass(frozen=True)
class GroupResult:
    """The jobs of point ``number`` after it, its events, and the counters of the rails while they ran.

    ``began`` is when the jobs began, on the clock of the events.
    """

    number: int
    began: float
    jobs: tuple[JobSupervisor, ...]
    events: Sequence[Event]
    delivered: Delivery | None


@dataclass(frozen=True)
class Measured(JudgedPoint):
    """A measured point beside the prediction, and the counters of its rails.

    ``background_mbps`` is the rate of the other traffic, None without any.
    """

    prediction: Prediction
    delivered: Delivery | None
    background_mbps: float | None = None


class Runner:
    """Runs one experiment into the results folder ``out``, as a context manager; leaving it ends all that is up.

    ``progress`` shows what is being done. ``extra`` are further keys of the manifest, as is ``origin``
    (``commands.origin``), which it has from the start. ``standing`` is a fabric that is up and stays: all points run on
    it.
    """

    def __init__(
        self,
        experiment: Recordable,
        out: Path,
        progress: RunProgress | None = None,
        origin: Mapping[str, Any] | None = None,
        standing: Session | None = None,
    ) -> None:
        self._standing = standing
        self.experiment = experiment
        self.scale: Scale = experiment.scale
        self.progress = progress or RunProgress()
        self.record = Record(out.resolve(), experiment, self.scale, origin)
        self.extra: dict[str, Any] = {}
        self.scripts: ScriptRanks | None = None
        """What starts the ranks of a PyTorch script, for an experiment that runs one (``start_scripts``)."""
        self._stack = ExitStack()
        self._session: Session | None = None
        self._fabric: Fabric | None = None
        self._acted_on = False
        """Whether a timetable acted on the fabric that is up, so that no other point may have it."""
        self._rest_socket: socket.socket | None = None
        self._rest_line: str | None = None
        self._number = 0

    def __enter__(self) -> Runner:
        with ExitStack() as stack:
            settings = self.experiment.settings
            if isinstance(settings, PacketSettings):
                if settings.transport is not None and not getattr(settings, "cluster", ()):
                    usable_transport(settings.transport)
                self._rest_socket = stack.enter_context(reserved_address(settings))
            self.record.open()
            stack.enter_context(self.progress)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with held_back():
            try:
                with self._stack:
                    self.take_down()
            except BaseException as another:
                error = error or another
                raise
            finally:
                try:
                    self.record.close(error)
                except OSError:
                    if error is None:
                        raise

    # ---- rows ----------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> list[Row]:
        return self.record.rows

    def add(self, *rows: ResultRow) -> None:
        self.record.add(rows)

    def replace(self, rows: Sequence[ResultRow]) -> None:
        """Write the summary with these rows, in place of all that were added."""
        self.record.replace(rows)

    # ---- fabrics -------------------------------------------------------------------------------------------------

    @cached_property
    def _cluster(self) -> Cluster:
        """The machines of the settings, which are connected when they are first needed, or this one alone."""
        return self._stack.enter_context(Cluster(getattr(self.experiment.settings, "cluster", ())))

    @cached_property
    def launcher(self) -> AgentLauncher:
        """The launcher of agents on all machines, started when it is first needed."""
        machines = self._cluster.machines
        return self._stack.enter_context(AgentLauncher(machines) if machines else AgentLauncher.start())

    def start_scripts(self, script: UserScript) -> None:
        """Start what runs the ranks of ``script``; early, as it must hold no descriptors of a fabric."""
        self.scripts = self._stack.enter_context(script.start())

    @cached_property
    def _rest(self) -> RestAccess | None:
        """The access to the REST interface, with one token for all fabrics of the run."""
        return rest_access(self.experiment.settings, self._rest_socket, self.record.results.folder)

    def session(self, fabric: Fabric, *, new: bool = False) -> Session:
        """The session on ``fabric``: the current one if that is equal and not to be ``new``."""
        if self._session is not None and self._fabric == fabric and not (new or self._acted_on):
            return self._session
        if self._standing is not None:
            return self._stand(self._standing, fabric)
        self.take_down()
        launcher = self.launcher  # made before the fabric is up, so that it holds none of its descriptors
        settings, topo = self.experiment.settings, fabric.topology()
        if "rate=" in getattr(settings, "events", ""):
            changing(topo)
        places = self.record.results.folder, self._rest, self.progress.say, self._cluster
        session = Session(settings, topo, *places, self.scale.rate)
        launcher.machine_of = session.machine_of
        session.__enter__()
        return self._begin(session, fabric)

    def check_standing(self, fabrics: Mapping[str, Fabric]) -> None:
        """Raise ``ConfigError`` if the fabric that is up, if one is, is not that of every mode, each with its own."""
        if self._standing is None:
            return
        plan = self._standing.plan
        served = [mode for mode, fabric in fabrics.items() if fabric.is_up(plan)]
        if len(served) == len(fabrics):
            return
        if served:
            modes = f"{' and '.join(served)}: add --modes {','.join(served)}"
            raise ConfigError(f"the lab is {plan.fabric}; of the modes asked for it serves {modes}")
        wanted = min(fabrics.values(), key=lambda fabric: fabric.name != plan.fabric)
        given = {key.replace("_", "-"): as_typed(value) for key, value in wanted.options.items() if value}
        words = " ".join(f"--{key} {'/'.join(map(str, v)) if isinstance(v, list) else v}" for key, v in given.items())
        how = f"; up rails {words} makes it" if words else ""
        raise ConfigError(f"the lab has another fabric than {wanted.name} of this job{how}")

    def _stand(self, session: Session, fabric: Fabric) -> Session:
        """Take the fabric that is up for ``fabric``; ``ConfigError`` if it is another one."""
        self.check_standing({fabric.name: fabric})
        for key in _OF_A_LAB:
            value = getattr(self.experiment.settings, key)
            if value != getattr(session.settings, key):
                raise ConfigError(
                    f"is {getattr(session.settings, key)} on this lab, not {value}; leave it out", key=key
                )
        if getattr(self.experiment.settings, "events", ()):
            raise ConfigError("would leave the lab changed; railyard at does it beside the job", key="events")
        session.settings, session.results = self.experiment.settings, self.record.results.folder
        self.launcher.machine_of = session.machine_of
        return self._begin(session, fabric)

    def _begin(self, session: Session, fabric: Fabric) -> Session:
        self._session, self._fabric = session, fabric
        self.record.describe(**self.extra)
        rest = {} if session.rest_address is None else {REST: session.rest_address}
        self.record.add_plan(fabric.name, session.plan, session.described | rest)
        self.progress.fabric(fabric.name, session.datapath)
        if session.rest_line not in (None, self._rest_line):
            self._rest_line = session.rest_line
            self.progress.say(str(self._rest_line))
        return session

    def take_down(self) -> None:
        if self._session is not None:
            session, self._session, self._fabric, self._acted_on = self._session, None, None, False
            if session is not self._standing:
                session.__exit__(None, None, None)

    @property
    def number(self) -> int:
        return self._number

    def next_number(self) -> int:
        """The number of the next point of the run, from 0."""
        self._number += 1
        return self._number - 1

    # ---- points --------------------------------------------------------------------------------------------------

    def measure(self, job: JobPoint, title: str, faults: Faults = NO_FAULTS) -> Measured:
        """Run one job, with its prediction; an error is raised after the events are saved."""
        session = self.session(job.fabric)
        plan = job.predicted_on or session.plan
        at_work = min(job.program.ranks_at_work, session.most_hosts)
        costs = machine_costs(at_work, this_machine(), session.datapath)
        added = {"control_s": costs.control_s + session.control_s, "settle_s": costs.settle_s + session.control_s}
        costs = replace(costs, **added)
        prediction = job.prediction(job.predicted_on or session.model_plan, self.scale, costs)
        job = replace(job, expected_step_s=self.scale.emulated_s(prediction.step_time_s))
        point = job.point(self.next_number(), plan, self.scale, prediction)
        kept = prediction.events if job.each_step else last_step(prediction.events)
        self.record.add_prediction(point, job.fabric.name, kept)
        steps = prediction.step_times_s if job.each_step else (prediction.step_time_s,) * job.steps
        expected_s = inf if job.script else self.scale.emulated_s(sum(steps))
        known = (None, None) if job.script else (expected_s, job.steps)
        self.progress.begin(title, *known)
        background_mbps = list[float | None]()

        @contextmanager
        def beside(folder: Path) -> Iterator[None]:
            with ExitStack() as stack:
                sent = self._background(job, session, stack)
                captured = self._captured(session, folder, stack)
                yield
                background_mbps.append(sent())
                self._write_capture(captured(), point, job.program)

        timeout_s = expected_s * _TIMEOUT_FACTOR + _SLACK_S
        number = point.number
        played = self.play([job], point.mode, title, expected_s, timeout_s, number=number, faults=faults, beside=beside)
        return Measured(point, played.events, prediction, played.delivered, *background_mbps)

    def play(
        self,
        jobs: Sequence[JobPoint],
        mode: str,
        title: str,
        expected_s: float,
        timeout_s: float,
        *,
        number: int | None = None,
        faults: Faults = NO_FAULTS,
        arrivals: Arrivals | None = None,
        before: Callable[[], None] = lambda: None,
        beside: Callable[[Path], AbstractContextManager[None]] = lambda folder: nullcontext(),
    ) -> GroupResult:
        """Run jobs as one point on their fabric, through its faults; an error is raised after the events are saved.

        With ``arrivals`` the jobs come and go (``JobGroup``). ``mode`` is the point's name in events and ``number`` is
        that of the point, if it has one. ``before`` is called before the jobs are registered; ``beside`` gets the
        folder of the point, and lasts until their agents end.
        """
        if self._standing is not None and faults != NO_FAULTS:
            raise ConfigError("a job on a lab has no failures of its own; railyard fail makes them beside it")
        first, number = jobs[0], self.next_number() if number is None else number
        delays = {"delay_s": first.reconfiguration_delay_s, "link_recovery_s": first.link_recovery_s}
        delays = {name: self.scale.emulated_s(seconds) for name, seconds in delays.items()}
        begun: dict[str, Any] = {
            "delay_s": delays["delay_s"],
            "steps": sum(job.steps for job in jobs) if arrivals else first.steps,
            "expected_s": expected_s,
        }
        if first.script is not None:  # it ends when it wants, or after a time-out of its own
            begun, timeout_s = begun | {"steps": None, "expected_s": None}, inf
        with self.recording(first.fabric, mode, title, number, ended=delays, **begun) as run:
            say = self.progress.say
            if isinstance(self.experiment.settings, RepeatedSettings):
                faults = replace(faults, acts=self.experiment.settings.acts(run.session.plan, first.steps))
                self._acted_on = bool(faults.acts)
            group = JobGroup(run, jobs, faults, lambda text: say(f"  {text}"), self.progress.step, arrivals)
            try:
                if any(job.training is not None for job in jobs):
                    run.record()
                before()
                group.play(timeout_s, beside(run.folder))
            finally:
                run.began, run.ended = group.began, group.ended
        for job in group.jobs:
            kept = job.keep_checkpoint(self.record.results.folder / CHECKPOINTS) if job.state == "stranded" else None
            if kept is not None:
                self.progress.say(f"  its checkpoint of step {job.last_checkpoint} is kept in {kept}")
        return GroupResult(number, group.began, group.jobs, run.recorded, run.counted.delivered)

    @contextmanager
    def recording(
        self,
        fabric: Fabric,
        mode: str,
        title: str,
        number: int | None = None,
        *,
        ended: Mapping[str, float] = {},
        **begun: Any,
    ) -> Iterator[PointRun]:
        """A point on ``fabric`` while the block runs; its events are saved at the end, also after an error.

        ``begun`` and ``ended`` are further fields of its first event and of its interval, which is that of the block
        unless the block sets another.
        """
        session = self.session(fabric)
        number = self.next_number() if number is None else number
        folder = self.record.point_folder(number, mode=mode, plan=fabric.name, title=title, **begun)
        gc.collect()  # here, and not in the point; by itself it waits until a long run has grown by a quarter
        run, stopped = PointRun(session, self.launcher, folder, self.scale, number), True
        run.scripts, run.say = self.scripts, self.progress.say
        try:
            yield run
            stopped = False
        finally:
            run.recorded = run.events()
            end = run.clock() if run.ended is None else run.ended
            interval = point_event(number, mode, session.plan.fabric, run.began, end, stopped=stopped, **ended)
            self.record.add_events([interval, *run.recorded], folder)
            self.progress.done()

    def _background(self, job: JobPoint, session: Session, beside: ExitStack) -> Callable[[], float | None]:
        """Start the point's background traffic; returns a function that ends it and returns its rate in Mb/s."""
        if job.background is None:
            return lambda: None
        rank, share = job.background
        traffic = beside.enter_context(Background.on(session.plan, dict(enumerate(session.netns_fds())), rank, share))
        return lambda: traffic.stop().mbps(session.plan.goodput_share)

    def _captured(self, session: Session, folder: Path, beside: ExitStack) -> Callable[[], Captured | None]:
        """Start the capture, if one is wanted, before connections are made; returns a function that ends it."""
        if not session.settings.pcap:
            return lambda: None
        taps = taps_of(session.plan, dict(enumerate(session.netns_fds())))
        return beside.enter_context(Capture(folder / "packets.spool", taps)).stop

    def _write_capture(self, captured: Captured | None, point: Point, program: Program) -> None:
        """Write a file to ``captures/`` of the results folder, with the content of each packet as a comment."""
        if captured is None:
            return
        if captured.full or captured.missed:
            why = f"{captured.missed} packets were missed" if captured.missed else "it reached its size limit"
            self.progress.say(f"  the capture of {point.mode} is incomplete: {why}")
        folder = self.record.results.folder / CAPTURES
        make_folder(folder)
        comments = annotate(captured.packets, program, point.plan)
        interfaces = [p.interface for rail in point.plan.network("rail") for p in rail.ports]
        path = folder / f"{point.number:03d}-{point.mode}.pcapng"
        write_pcapng(path, captured.packets, comments, interfaces=interfaces)
