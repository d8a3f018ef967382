"""Runs trials one after another; a fabric stays up for the next trial if that needs the same one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from controllers.circuits.rotation import Cycle
from experiments.point_run import PointRun
from experiments.rails.forecast import costs
from experiments.record import Record, run_manifest
from experiments.session import Session
from experiments.trials.plan import TrialPlan
from experiments.trials.row import predicted_columns, trial_row
from experiments.trials.trial import WORLD, Trial, TrialFabric
from measure.live.annotation import annotate
from measure.live.calibration import load_calibration
from measure.live.capture import Capture, Captured, taps_of
from measure.live.delivery import Delivery
from measure.live.pcapng import write_pcapng
from measure.metrics.collective import CollectiveTimes, collective_times
from measure.metrics.critical import critical_paths
from measure.metrics.fidelity import judge
from measure.metrics.metrics import measure_point
from measure.metrics.point import Point
from measure.model.prediction import Prediction, predict
from measure.results.row import Row
from railyard.errors import RailyardError
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher
from workloads.program import Program
from workloads.stragglers.background import Background

_SLACK_S = 60.0


class TrialListener(Protocol):
    """Interface for progress of a run of trials."""

    def fabric(self, fabric: TrialFabric, datapath: str) -> None:
        """Called when a fabric is up."""

    def trial(self, trial: Trial, expected_s: float) -> None:
        """Called when a trial begins; ``expected_s`` is its expected wall-clock time."""

    def measured(self, row: Row) -> None:
        """Called with the row of a trial that is measured."""

    def note(self, text: str) -> None:
        """Called with a note for the user."""


Columns = Callable[[Trial, Point, Sequence[Event], Row, CollectiveTimes, Delivery | None], Row]
"""Function for further columns of a row, from the measurements and the columns of every trial."""


class QuietTrialListener:
    """A listener that shows no progress."""

    def fabric(self, fabric: TrialFabric, datapath: str) -> None:
        """Ignored; this listener shows no progress."""

    def trial(self, trial: Trial, expected_s: float) -> None:
        """Ignored; this listener shows no progress."""

    def measured(self, row: Row) -> None:
        """Ignored; this listener shows no progress."""

    def note(self, text: str) -> None:
        """Ignored; this listener shows no progress."""


@dataclass(frozen=True)
class Measured:
    """A measured trial: its row, and the times of its steps."""

    row: Row
    times: CollectiveTimes


def predict_trial(trial: Trial, plan: TrialPlan, program: Program) -> Prediction:
    """The model's prediction for a trial."""
    fabric = trial.predicted_fabric.plan(plan.scale)
    return predict(
        program,
        fabric,
        trial.new_policy(fabric),
        trial.mode,
        delay_s=trial.reconfiguration_delay_s,
        scale=plan.scale,
        steps=plan.total_steps(trial),
        costs=costs(load_calibration()),
        cycle=cycle_of(trial, plan.scale),
    )


def cycle_of(trial: Trial, scale: Scale) -> Cycle | None:
    """The slot cycle of a trial at ``scale``, in wall-clock seconds and emulated bytes; None without slots."""
    return trial.cycle and trial.cycle.scaled(scale.time, scale.rate * scale.time)


def predicted_row(trial: Trial, plan: TrialPlan) -> Row:
    """The predicted columns of a trial's row, computed without a run; needs no root."""
    program = trial.program(plan.scale, plan.total_steps(trial), plan.settings.seed)
    predicted = collective_times(predict_trial(trial, plan, program).events, trial.schedule, WORLD, 1)
    return predicted_columns(trial, plan, predicted)


class TrialRun:
    """A run of trials into one results folder, as a context manager; ``record.rows`` are the rows measured so far.

    ``columns`` adds columns of the experiment to each row; ``capture`` records every packet.
    """

    def __init__(
        self,
        plan: TrialPlan,
        out: Path,
        listener: TrialListener,
        *,
        capture: bool = False,
        columns: Columns | None = None,
    ) -> None:
        self.record = Record(out)
        self.plan = plan
        self._listener = listener
        self._stack = ExitStack()
        self._launcher: AgentLauncher | None = None
        self._session: Session | None = None
        self._fabric: TrialFabric | None = None
        self._number = 0
        self._capture = capture
        self._columns = columns

    def __enter__(self) -> TrialRun:
        self._launcher = self._stack.enter_context(AgentLauncher.start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if isinstance(error, RailyardError) and self._session is not None:
                self.record.keep_logs(self._session)
            self._take_down()
            self._stack.close()
        finally:
            self.record.close(error)

    def measure(self, trial: Trial) -> Measured:
        """Run one trial and save its row and events; an error is raised after the events are saved."""
        plan = self.plan
        program = trial.program(plan.scale, plan.total_steps(trial), plan.settings.seed)
        session = self._session_on(trial.fabric)
        prediction = predict_trial(trial, plan, program)
        point = self._point(trial, trial.predicted_fabric.plan(plan.scale), program, prediction)
        expected_s = plan.scale.emulated_s(sum(prediction.step_times_s))
        self._listener.trial(trial, expected_s)
        assert self._launcher is not None
        point_run = PointRun(session, self._launcher, point, self._agent(trial, program, session.plan))
        try:
            point_run.register(trial.mode, trial.policy_name, cycle_of(trial, plan.scale))
            with ExitStack() as beside:
                sent = self._background(trial, session, beside)
                captured = self._captured(session, point, beside)
                point_run.play(expected_s * 5 + _SLACK_S, lambda _: None)
                background_mbps = sent()
                self._write_capture(captured(), point, program)
        finally:
            events = point_run.events()
            self.record.add_events([point.event(point_run.began, point_run.ended), *events])
        metrics = measure_point(point, events)
        times = collective_times(events, trial.schedule, WORLD, point.warmup(metrics.steps))
        predicted = collective_times(prediction.events, trial.schedule, WORLD, 1)
        verdict = judge(point, events, metrics)
        row = trial_row(trial, plan, point, times, predicted, metrics, verdict)
        if background_mbps is not None:
            row["background_gbps"] = background_mbps / 1e3 / plan.scale.rate
        if self._columns is not None:
            row |= self._columns(trial, point, events, row, times, point_run.delivered)
        self.record.add_row(row)
        self._listener.measured(row)
        return Measured(row, times)

    # ---- background traffic and capture --------------------------------------------------------------------------

    def _background(self, trial: Trial, session: Session, beside: ExitStack) -> Callable[[], float | None]:
        """Start the trial's background traffic; returns a function that ends it and returns its rate in Mb/s."""
        if trial.slow_rank is None or not trial.background_share:
            return lambda: None
        fds = dict(enumerate(session.netns_fds()))
        traffic = beside.enter_context(Background.on(session.plan, fds, trial.slow_rank, trial.background_share))
        return lambda: traffic.stop().mbps(session.plan.mtu)

    def _captured(self, session: Session, point: Point, beside: ExitStack) -> Callable[[], Captured | None]:
        """Start the capture, if one is wanted, before connections are made; returns a function that ends it."""
        if not self._capture:
            return lambda: None
        taps = taps_of(session.plan, dict(enumerate(session.netns_fds())))
        spool = session.folder / f"point{point.number}.spool"
        return beside.enter_context(Capture(spool, taps)).stop

    def _write_capture(self, captured: Captured | None, point: Point, program: Program) -> None:
        """Write a file to ``captures/`` of the results folder, with the content of each packet as a comment."""
        if captured is None:
            return
        if captured.full or captured.missed:
            self._listener.note(
                f"the capture of {point.mode} is incomplete: "
                + (f"{captured.missed} packets were missed" if captured.missed else "it reached its size limit")
            )
        folder = self.record.results.folder / "captures"
        folder.mkdir(exist_ok=True)
        comments = annotate(captured.packets, program, point.plan)
        path = folder / f"{point.number:03d}-{point.mode}.pcapng"
        interfaces = [p.interface for rail in point.plan.network("rail") for p in rail.ports]
        write_pcapng(path, captured.packets, comments, interfaces=interfaces)

    # ---- point, agents and fabric of a trial -----------------------------------------------------------------------

    def _point(self, trial: Trial, fabric: FabricPlan, program: Program, prediction: Prediction) -> Point:
        number, self._number = self._number, self._number + 1
        return Point(
            number,
            trial.name,
            fabric,
            program.groups,
            self.plan.scale,
            reconfiguration_delay_s=trial.reconfiguration_delay_s,
            predicted_step_time_s=prediction.step_time_s,
            predicted_step_times_s=prediction.step_times_s,
            critical=critical_paths(
                program, self.plan.scale, fabric.ports_per_gpu, circuits=trial.fabric.kind == "ocs"
            ),
            operations_s={(WORLD, trial.operation): self.plan.scale.emulated_s(trial.ideal_s)} if trial.ideal_s else {},
        )

    def _agent(self, trial: Trial, program: Program, fabric: FabricPlan) -> AgentConfig:
        settings = self.plan.settings
        return AgentConfig(
            rank=0,
            job="",
            mode=trial.mode,
            program=program,
            scale=self.plan.scale,
            plan=fabric,
            events="",
            steps=self.plan.total_steps(trial),
            seed=settings.seed,
            verify=settings.verify,
            ack_timeout_s=settings.ack_timeout_s,
        )

    def _session_on(self, fabric: TrialFabric) -> Session:
        """The session on ``fabric``; the current fabric is taken down first if it is another one."""
        if self._session is not None and self._fabric == fabric:
            return self._session
        self._take_down()
        session = Session(self.plan.settings, fabric.topology(self.plan.scale))
        session.__enter__()
        self._session, self._fabric = session, fabric
        datapath = session.net.yard.datapath
        if not self.record.opened:
            self.record.open(run_manifest(self.plan.settings, self.plan.scale, datapath))
        self.record.add_plan(f"{fabric.kind}-{fabric.ranks}", session.plan)
        self._listener.fabric(fabric, datapath)
        return session

    def _take_down(self) -> None:
        if self._session is not None:
            session, self._session, self._fabric = self._session, None, None
            session.__exit__(None, None, None)
