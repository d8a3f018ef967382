"""The run of a rail experiment: for every mode and delay, real agents on a real fabric, measured and judged.

Points that share a fabric share one bring-up. After each point its events and row are on disk, so that what was
measured stays whatever happens later.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from measure import calibrate
from measure.fidelity import Verdict, judge
from measure.manifest import build_manifest
from measure.metrics import PointMetrics, measure_point
from measure.point import Point, within
from measure.results import Results, check_folder
from measure.row import Row, stall_law_step_time_s, summary_row
from measure.sampler import Sampler, port_labels, queue_events, switch_events
from measure.timeline import Event, read_events
from railyard.errors import ControlError, RailyardError
from railyard.experiment import Experiment, Mode
from railyard.forecast import costs, fabric_plan, forecast, policy_name
from railyard.layout import check_floors, port_gbps, smallest_transfer
from railyard.scale import Scale
from railyard.session import Session
from workloads.agent_config import AgentConfig
from workloads.catalog import Workload
from workloads.nursery import Nursery

_START_AFTER_S = 0.2
"""From go to the first step: every agent must have heard by then."""
_SLACK_S = 60.0


class Listener(Protocol):
    """Who wants to know how the run goes."""

    def fabric(self, name: str, datapath: str) -> None:
        """A fabric is up."""

    def point(self, mode: Mode, delay_ms: float, expected_s: float) -> None:
        """A point begins and should take ``expected_s`` of wall-clock time."""

    def step(self, done: int, steps: int) -> None:
        """``done`` steps are behind all ranks."""

    def measured(self, row: Row) -> None:
        """A point is done."""


class QuietListener:
    """A listener that listens to nothing."""

    def fabric(self, name: str, datapath: str) -> None:
        """Not said."""

    def point(self, mode: Mode, delay_ms: float, expected_s: float) -> None:
        """Not said."""

    def step(self, done: int, steps: int) -> None:
        """Not said."""

    def measured(self, row: Row) -> None:
        """Not said."""


def resolve_scale(experiment: Experiment, workload: Workload, calibration: calibrate.Calibration | None) -> Scale:
    """The scale of a run: the one asked for, or the best this machine carries; ``ConfigError`` below a floor."""
    ground = calibration or calibrate.default()
    least = smallest_transfer(workload)
    if experiment.scale.rate == "auto":
        scale = calibrate.pick_scale(
            workload.servers * workload.gpus_per_server * experiment.fabric.ports_per_gpu,
            port_gbps(experiment, workload),
            least.bytes if least else 0,
            calibration=ground,
            time=experiment.scale.time,
            mtu_bytes=experiment.fabric.mtu,
        )
    else:
        scale = Scale(experiment.scale.rate, experiment.scale.time)
    check_floors(experiment, workload, scale, ground.floors())
    return scale


class RailRun:
    """One run of ``experiment``; ``rows`` are the points measured so far."""

    def __init__(self, experiment: Experiment, workload: Workload, out: Path, listener: Listener) -> None:
        check_folder(out)
        self.experiment = experiment
        self.workload = workload
        self.calibration = calibrate.load()
        self.scale = resolve_scale(experiment, workload, self.calibration)
        self.rows: list[Row] = []
        self._listener = listener
        self._out = out
        self._points = experiment.points()
        self._results: Results | None = None
        self._manifest: dict[str, Any] = {}

    def run(self) -> Results:
        """Measure every point; returns the results folder. Raises what ended the run, after saving what there is."""
        with Nursery.start() as nursery:
            try:
                for fabric, points in itertools.groupby(
                    enumerate(self._points), key=lambda item: self.experiment.fabric_of(item[1][0])
                ):
                    self._run_fabric(fabric, list(points), nursery)
            except BaseException as error:
                self._note_end(error)
                raise
        self._note_end(None)
        assert self._results is not None
        return self._results

    def _run_fabric(self, fabric: str, points: Sequence[tuple[int, tuple[Mode, float]]], nursery: Nursery) -> None:
        with Session(self.experiment, self.workload, fabric, self.scale) as session:
            datapath = session.net.yard.datapath
            if self._results is None:
                self._open_results(datapath)
            self._listener.fabric(fabric, datapath)
            try:
                for number, (mode, delay_ms) in points:
                    self._run_point(session, nursery, number, mode, delay_ms)
            except RailyardError:
                self._keep_logs(session)
                raise

    def _run_point(self, session: Session, nursery: Nursery, number: int, mode: Mode, delay_ms: float) -> None:
        experiment = self.experiment
        prediction = forecast(
            experiment, self.workload, mode, delay_ms, self.scale, session.plan, costs(self.calibration)
        )
        point = Point(
            number,
            mode,
            session.plan,
            self.workload.program.groups,
            self.scale,
            delay_ms / 1e3,
            experiment.link_recovery_ms / 1e3,
            prediction.step_time_s,
        )
        expected_s = self.scale.emulated_s(prediction.step_time_s) * experiment.steps
        self._listener.point(mode, delay_ms, expected_s)
        attempt = _Attempt(session, nursery, point, self._agent_configs(session, point))
        try:
            attempt.register()
            attempt.play(expected_s * 5 + _SLACK_S, self._listener, experiment.steps)
        finally:
            events = attempt.events()
            assert self._results is not None
            self._results.add_events([point.event(attempt.began, attempt.ended), *events])
        self._add_row(point, events)

    def _add_row(self, point: Point, events: Sequence[Event]) -> None:
        metrics, verdict = measured(point, events)
        row = summary_row(
            point,
            metrics,
            verdict,
            experiment=self.experiment.experiment,
            workload=self.workload.name,
            seed=self.experiment.seed,
        )
        row["policy"] = policy_name(self.experiment, point.mode)  # type: ignore[arg-type]
        baseline = next((r for r in self.rows if r["mode"] in ("electrical", "native")), None)
        if baseline is not None and point.mode in ("on-demand", "provisioned"):
            row["stall_law_step_time_s"] = stall_law_step_time_s(row, baseline)
        self.rows.append(row)
        assert self._results is not None
        self._results.write_rows(self.rows)
        self._listener.measured(row)

    def _agent_configs(self, session: Session, point: Point) -> list[AgentConfig]:
        template = AgentConfig(
            rank=0,
            job=point.name,
            mode=point.mode,  # type: ignore[arg-type]
            program=self.workload.program,
            scale=self.scale,
            plan=session.plan,
            events="",
            channel=session.channel_path,
            steps=self.experiment.steps,
            seed=self.experiment.seed,
            verify=self.experiment.verify,
            ack_timeout_s=self.experiment.ack_timeout_s,
        )
        folder = session.folder / f"point{point.number}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return [
            dataclasses.replace(template, rank=rank, events=str(folder / f"g{rank}.jsonl"))
            for rank in range(session.plan.ranks)
        ]

    # ---- the results folder ------------------------------------------------------------------------------------

    def _open_results(self, datapath: str) -> None:
        modes = {self.experiment.fabric_of(mode): mode for mode, _ in self._points}
        self._manifest = build_manifest(
            experiment=self.experiment.model_dump(mode="json"),
            seed=self.experiment.seed,
            scale=self.scale,
            plans=[fabric_plan(self.experiment, self.workload, mode, self.scale) for mode in modes.values()],
            groups=self.workload.program.groups,
            calibration=dataclasses.asdict(self.calibration) if self.calibration else None,
            datapath="kernel" if datapath == "system" else datapath,
            points=[{"mode": mode, "delay_ms": delay} for mode, delay in self._points],
        )
        self._results = Results.create(self._out, self._manifest)

    def _note_end(self, error: BaseException | None) -> None:
        if self._results is None:
            return
        said = str(error) or type(error).__name__
        self._manifest["ended"] = "complete" if error is None else f"stopped: {said}"
        self._results.write_manifest(self._manifest)
        self._results.hand_over()

    def _keep_logs(self, session: Session) -> None:
        """Copy what the controller said into the results folder: the session's own folder goes with it."""
        if session.controller is None or self._results is None:
            return
        with suppress(OSError):
            shutil.copyfile(session.controller.files.log, self._results.folder / "controller.log")


def measured(point: Point, events: Sequence[Event]) -> tuple[PointMetrics, Verdict]:
    """The numbers of a point and whether they can be believed."""
    metrics = measure_point(point, events)
    return metrics, judge(point, events, metrics)


class _Attempt:
    """One point under way: agents, sampler and the events of all of them."""

    def __init__(self, session: Session, nursery: Nursery, point: Point, configs: list[AgentConfig]) -> None:
        self._session = session
        self._nursery = nursery
        self._point = point
        self._configs = configs
        self._other_events: list[Event] = []
        self.began = self.ended = time.monotonic()

    def register(self) -> None:
        """Tell the controller of the job; its starting circuits stand afterwards."""
        scale, point = self._point.scale, self._point
        self._session.register(
            point.name,
            point.mode,  # type: ignore[arg-type]
            point.groups.values(),
            scale.emulated_s(point.reconfiguration_delay_s),
            scale.emulated_s(point.link_recovery_s),
        )

    def play(self, timeout_s: float, listener: Listener, steps: int) -> None:
        """Run all agents to the end of their programs."""
        session, fds = self._session, self._session.netns_fds()
        team = self._nursery.launch(self._configs, fds)
        by_rank = dict(enumerate(fds))
        log = session.folder / f"point{self._point.number}" / "sampler.jsonl"
        pids = [session.net.yard.pids["ovs-vswitchd"]]
        sampler = Sampler(log, session.net.yard.netns_fd, port_labels(session.plan), pids)
        try:
            team.wait_ready()
            self._count(by_rank)
            with sampler:
                self.began = time.monotonic()
                team.go(self.began + _START_AFTER_S)
                team.wait_done(timeout_s, lambda rank, done: listener.step(min(team.steps.values()), steps))
                self.ended = time.monotonic()
            self._count(by_rank)
        except RailyardError as error:
            self.ended = time.monotonic()
            session.check()
            raise error
        finally:
            self.ended = max(self.ended, self.began)
            team.stop()
            with suppress(ControlError):
                session.call("finish", job=self._point.name)

    def _count(self, netns_fds: Mapping[int, int]) -> None:
        """Counters that are read at both ends of a point."""
        session = self._session
        self._other_events += queue_events(netns_fds, session.plan)
        self._other_events += switch_events(session.net.yard.netns_fd, session.plan)

    def events(self) -> list[Event]:
        """Everything recorded, in order of time."""
        folder = self._session.folder / f"point{self._point.number}"
        events = list(self._other_events)
        for file in sorted(folder.glob("*.jsonl")):
            events += read_events(file)
        controller = [Event.from_line(line) for line in self._session.new_controller_events()]
        events += within(controller, self.began, max(self.ended, time.monotonic()))
        return sorted(events, key=lambda e: e.t)


def plan_json(experiment: Experiment, workload: Workload, scale: Scale) -> str:
    """The fabric of the experiment's first mode as JSON, for a controller of one's own."""
    return json.dumps(fabric_plan(experiment, workload, experiment.points()[0][0], scale).to_json(), indent=2)
