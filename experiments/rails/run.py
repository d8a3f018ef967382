"""Runs a rail experiment: for every mode and delay, agents run the job on a fabric, and the point is measured.

Points on the same fabric share one bring-up. After each point its events and row are on disk, so that an error later
loses no results.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from experiments.point_run import PointRun
from experiments.rails.forecast import costs, emulated_cycle, fabric_plan, forecast
from experiments.rails.job import FOLLOW, policy_name, program_on
from experiments.rails.layout import check_floors, port_gbps, smallest_transfer, topology_options
from experiments.rails.settings import SLOT_MODES, Experiment, Mode
from experiments.record import Record, run_manifest
from experiments.session import Session
from measure.live.calibration import Calibration, default_calibration, load_calibration, pick_scale
from measure.metrics.critical import critical_paths
from measure.metrics.fidelity import Verdict, judge
from measure.metrics.metrics import PointMetrics, measure_point
from measure.metrics.point import Point
from measure.results.results import Results
from measure.results.row import Row, stall_law_step_time_s, summary_row
from railyard.errors import RailyardError
from railyard.scale import Scale
from railyard.timeline import Event
from topos.rails import RailTopo
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher
from workloads.catalog import Workload
from workloads.program import Program

_SLACK_S = 60.0


class Listener(Protocol):
    """Interface for progress of a run."""

    def fabric(self, name: str, datapath: str) -> None:
        """Called when fabric ``name`` is up."""

    def point(self, mode: Mode, delay_ms: float, expected_s: float) -> None:
        """Called when a point begins; ``expected_s`` is its expected wall-clock time."""

    def step(self, done: int, steps: int) -> None:
        """Called when all ranks have finished ``done`` steps."""

    def measured(self, row: Row) -> None:
        """Called with the row of a point that is measured."""


class QuietListener:
    """A listener that shows no progress."""

    def fabric(self, name: str, datapath: str) -> None:
        """Ignored; this listener shows no progress."""

    def point(self, mode: Mode, delay_ms: float, expected_s: float) -> None:
        """Ignored; this listener shows no progress."""

    def step(self, done: int, steps: int) -> None:
        """Ignored; this listener shows no progress."""

    def measured(self, row: Row) -> None:
        """Ignored; this listener shows no progress."""


def resolve_scale(experiment: Experiment, workload: Workload, calibration: Calibration | None) -> Scale:
    """The scale of a run: that of the experiment, or with rate ``auto`` the largest that this machine carries.

    ``ConfigError`` if a transfer or a delay is below its floor.
    """
    machine = calibration or default_calibration()
    least = smallest_transfer(workload)
    if experiment.scale.rate == "auto":
        scale = pick_scale(
            workload.servers * workload.gpus_per_server * experiment.fabric.ports_per_gpu,
            port_gbps(experiment, workload),
            least.bytes if least else 0,
            calibration=machine,
            time=experiment.scale.time if "time" in experiment.scale.model_fields_set else None,
            mtu_bytes=experiment.fabric.mtu,
        )
    else:
        scale = Scale(experiment.scale.rate, experiment.scale.time)
    check_floors(experiment, workload, scale, machine.floors())
    return scale


class RailRun:
    """One run of ``experiment`` into the results folder ``out``; ``listener`` gets its progress."""

    def __init__(self, experiment: Experiment, workload: Workload, out: Path, listener: Listener) -> None:
        self.record = Record(out)
        self.experiment = experiment
        self.workload = workload
        self.calibration = load_calibration()
        self.scale = resolve_scale(experiment, workload, self.calibration)
        self._listener = listener
        self._points = experiment.points()

    @property
    def rows(self) -> list[Row]:
        """The rows of the points measured so far."""
        return self.record.rows

    def run(self) -> Results:
        """Measure every point; returns the results folder.

        An error that ends the run is raised after the points so far are saved.
        """
        with AgentLauncher.start() as launcher:
            try:
                for fabric, points in itertools.groupby(
                    enumerate(self._points), key=lambda item: self.experiment.fabric_of(item[1][0])
                ):
                    self._run_fabric(fabric, list(points), launcher)
            except BaseException as error:
                self.record.close(error)
                raise
        self.record.close(None)
        return self.record.results

    def _run_fabric(
        self, fabric: str, points: Sequence[tuple[int, tuple[Mode, float]]], launcher: AgentLauncher
    ) -> None:
        topo = RailTopo(**topology_options(self.experiment, self.workload, fabric, self.scale))
        with Session(self.experiment, topo) as session:
            datapath = session.net.yard.datapath
            if not self.record.opened:
                self.record.open(self._manifest(datapath))
            self._listener.fabric(fabric, datapath)
            try:
                for number, (mode, delay_ms) in points:
                    self._run_point(session, launcher, number, mode, delay_ms)
            except RailyardError:
                self.record.keep_logs(session)
                raise

    def _run_point(self, session: Session, launcher: AgentLauncher, number: int, mode: Mode, delay_ms: float) -> None:
        experiment = self.experiment
        prediction = forecast(
            experiment, self.workload, mode, delay_ms, self.scale, session.plan, costs(self.calibration)
        )
        program, plan = program_on(experiment, self.workload, mode), session.plan
        follows = policy_name(experiment, self.workload, mode) == FOLLOW
        point = Point(
            number,
            mode,
            plan,
            program.groups,
            self.scale,
            delay_ms / 1e3,
            experiment.link_recovery_ms / 1e3,
            prediction.step_time_s,
            critical=critical_paths(
                program, self.scale, plan.ports_per_gpu, circuits=follows, rotating="ep" if mode in SLOT_MODES else ""
            ),
        )
        expected_s = self.scale.emulated_s(prediction.step_time_s) * experiment.steps
        self._listener.point(mode, delay_ms, expected_s)
        point_run = PointRun(session, launcher, point, self._agent(session, point, program))
        try:
            cycle = emulated_cycle(experiment, self.workload, mode, self.scale)
            point_run.register(mode, policy_name(experiment, self.workload, mode), cycle)
            point_run.play(expected_s * 5 + _SLACK_S, lambda done: self._listener.step(done, experiment.steps))
        finally:
            events = point_run.events()
            self.record.add_events([point.event(point_run.began, point_run.ended), *events])
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
        row["policy"] = policy_name(self.experiment, self.workload, point.mode)  # type: ignore[arg-type]
        baseline = next((r for r in self.rows if r["mode"] in ("electrical", "native")), None)
        if baseline is not None and point.mode in ("on-demand", "provisioned"):
            row["stall_law_step_time_s"] = stall_law_step_time_s(row, baseline)
        self.record.add_row(row)
        self._listener.measured(row)

    def _agent(self, session: Session, point: Point, program: Program) -> AgentConfig:
        return AgentConfig(
            rank=0,
            job=point.name,
            mode="on-demand" if point.mode in SLOT_MODES else point.mode,  # type: ignore[arg-type]
            program=program,
            scale=self.scale,
            plan=session.plan,
            events="",
            steps=self.experiment.steps,
            seed=self.experiment.seed,
            verify=self.experiment.verify,
            ack_timeout_s=self.experiment.ack_timeout_s,
        )

    def _manifest(self, datapath: str) -> dict[str, Any]:
        modes = {self.experiment.fabric_of(mode): mode for mode, _ in self._points}
        return run_manifest(
            self.experiment,
            self.scale,
            datapath,
            plans=[fabric_plan(self.experiment, self.workload, mode, self.scale) for mode in modes.values()],
            groups=self.workload.program.groups,
            points=[{"mode": mode, "delay_ms": delay} for mode, delay in self._points],
        )


def measured(point: Point, events: Sequence[Event]) -> tuple[PointMetrics, Verdict]:
    """The metrics of a point, and the verdict on whether the point is faithful."""
    metrics = measure_point(point, events)
    return metrics, judge(point, events, metrics)


def plan_json(experiment: Experiment, workload: Workload, scale: Scale) -> str:
    """The plan of the fabric of the experiment's first mode as JSON, for a user's own controller."""
    return json.dumps(fabric_plan(experiment, workload, experiment.points()[0][0], scale).to_json(), indent=2)
