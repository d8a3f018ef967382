"""The run of a rail experiment: for every mode and delay, real agents on a real fabric, measured and judged.

Points that share a fabric share one bring-up. After each point its events and row are on disk, so that what was
measured stays whatever happens later.
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
from experiments.rails.settings import TURNING, Experiment, Mode
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


def resolve_scale(experiment: Experiment, workload: Workload, calibration: Calibration | None) -> Scale:
    """The scale of a run: the one asked for, or the best this machine carries; ``ConfigError`` below a floor."""
    ground = calibration or default_calibration()
    least = smallest_transfer(workload)
    if experiment.scale.rate == "auto":
        scale = pick_scale(
            workload.servers * workload.gpus_per_server * experiment.fabric.ports_per_gpu,
            port_gbps(experiment, workload),
            least.bytes if least else 0,
            calibration=ground,
            time=experiment.scale.time if "time" in experiment.scale.model_fields_set else None,
            mtu_bytes=experiment.fabric.mtu,
        )
    else:
        scale = Scale(experiment.scale.rate, experiment.scale.time)
    check_floors(experiment, workload, scale, ground.floors())
    return scale


class RailRun:
    """One run of ``experiment``."""

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
        """The points measured so far."""
        return self.record.rows

    def run(self) -> Results:
        """Measure every point; returns the results folder. Raises what ended the run, after saving what there is."""
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
                program, self.scale, plan.ports_per_gpu, circuits=follows, rotating="ep" if mode in TURNING else ""
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
            mode="on-demand" if point.mode in TURNING else point.mode,  # type: ignore[arg-type]
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
    """The numbers of a point and whether they can be believed."""
    metrics = measure_point(point, events)
    return metrics, judge(point, events, metrics)


def plan_json(experiment: Experiment, workload: Workload, scale: Scale) -> str:
    """The fabric of the experiment's first mode as JSON, for a controller of one's own."""
    return json.dumps(fabric_plan(experiment, workload, experiment.points()[0][0], scale).to_json(), indent=2)
