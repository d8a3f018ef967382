"""The rail experiment: step time of a training job against reconfiguration delay, in several modes (Opus)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Console

from controllers.engine.jobs import Job
from experiments.experiment import Action
from experiments.faults import Faults
from experiments.job_point import Fabric, JobPoint, with_guard
from experiments.rails.job import (
    fabric_on,
    job_point,
    late_rank_of,
    late_s,
    load_job,
    model_scale,
    policy_name,
    program_on,
    resolve_scale,
    scale_needs,
)
from experiments.rails.row import RailRow, stall_law_step_time_s
from experiments.rails.settings import OWN_POLICY, Mode, RailPoint, RailSettings
from experiments.rehearsal import try_policy
from experiments.repeats import Piece, RepeatedExperiment
from measure.live.calibration import this_machine
from measure.live.scale_choice import TARGET_ERROR, expected_error
from measure.model.prediction import Prediction
from measure.results.row import MeasuredRow, ResultRow
from railyard.digits import alike
from railyard.errors import CircuitError, ConfigError, ControlError
from railyard.ownership import hand_over, temporary_folder
from railyard.scale import Scale
from workloads.catalog import CATALOG, Workload, with_all_ranks
from workloads.phases import check_stale

if TYPE_CHECKING:
    from experiments.runner import Runner


class Rails(RepeatedExperiment[RailSettings]):
    """Step time of a training job on optical rails against electrical ones, over modes and reconfiguration delays."""

    name = "rails"
    Settings: ClassVar[type[RailSettings]] = RailSettings
    rows: ClassVar[Sequence[type[ResultRow]]] = (RailRow,)
    files: ClassVar[Sequence[str]] = ("workload",)
    row: ClassVar[type[RailRow]] = RailRow
    """The type of the rows of points."""
    quick: ClassVar = {"steps": 1, "delays_ms": [0.0, 200.0], "modes": ["electrical", "on-demand", "provisioned"]}
    examples = (
        "--quick                                  # in under two minutes",
        "--workload smoke --modes electrical,on-demand --delays 0,100",
        "--predict --delays 0.01,10               # the model alone; no root",
    )

    def __init__(self, settings: RailSettings) -> None:
        super().__init__(settings)
        self._impossible: dict[Mode, str] = {}
        """Modes in which the workload cannot run, as far as that is known, and why."""

    @classmethod
    def adapt(cls, values: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """A remote controller sets all circuits, so the mode is native unless modes are given."""
        values = with_guard(values)
        return (
            {**values, "modes": ["native"]} if given.get("controller") == "remote" and "modes" not in given else values
        )

    @cached_property
    def workload(self) -> Workload:
        return with_all_ranks(self.modelled)

    @cached_property
    def modelled(self) -> Workload:
        """The workload as the model computes it by itself: ranks that cannot be told apart once."""
        return load_job(self.settings)

    @cached_property
    def scale(self) -> Scale:
        """The scale of a run; with rate ``auto`` the largest that this machine carries."""
        return resolve_scale(self.settings, self.workload, this_machine().beside(self.spared_share))

    @cached_property
    def expected_error(self) -> float:
        """Share by which this machine is expected to lengthen a step, by the cost of its transfers."""
        needs, machine = scale_needs(self.settings, self.workload), this_machine()
        return expected_error(needs, machine.of(self.settings.datapath), self.scale) or 0.0

    def check(self) -> None:
        """Load the workload, look for the late rank and the stale phase, and rehearse the policy, if one is named."""
        settings, workload = self.settings, self.modelled
        if settings.late is not None:
            late_rank_of(self.workload, settings.late)
        if settings.stale_step:
            check_stale(program_on(settings, workload, "provisioned"))
        for point in {point.mode: point for point in settings.points()}.values() if settings.events else ():
            scale = model_scale(settings, workload)
            settings.acts(fabric_on(settings, workload, point.mode, scale).plan(), settings.steps)
        mode = next((mode for mode in OWN_POLICY if mode in settings.modes), None)
        if settings.policy is not None and mode is not None:
            plan = fabric_on(settings, workload, mode, model_scale(settings, workload)).plan()
            try_policy(settings.policy, plan, tuple(program_on(settings, workload, mode).groups.values()))

    def check_run(self) -> None:
        """Let the model play a step in every mode: of the modes that somebody named none may be impossible.

        Those of a list that is Railyard's own (the default one, and that of ``--quick``) are left out.
        """
        scale = model_scale(self.settings, self.workload)
        for point in {point.mode: point for point in self.settings.points()}.values():
            with self._unless_impossible(point.mode, leave_out=self.settings.modes in _OWN_LISTS):
                self._predicted(self.workload, point, scale, steps=1)

    def predict(self) -> Iterator[RailRow]:
        """The model's step time of every point, for an ideal machine; rates, sizes and delays may be any.

        Modes that are impossible are left out, unless no other is left.
        """
        scale, rows = model_scale(self.settings, self.modelled), []
        for point in self.settings.points():
            if point.mode in self._impossible:
                continue
            row = self._row(point, scale)
            with self._unless_impossible(point.mode, leave_out=True):
                row.predict(self._predicted(self.workload if point.late else self.modelled, point, scale))
            if point.mode not in self._impossible:
                rows.append(row)
        _compare(rows)
        yield from rows

    def job(self, workload: Workload, point: RailPoint, scale: Scale) -> JobPoint:
        """The job of ``point``, for a run or, of ``modelled``, for the model."""
        return job_point(self.settings, workload, point.mode, point.delay_ms, scale, point.late)

    def _predicted(self, workload: Workload, point: RailPoint, scale: Scale, steps: int | None = None) -> Prediction:
        job = self.job(workload, point, scale)
        plan = job.predicted_on or job.fabric.plan()
        return replace(job, model_steps=steps or job.model_steps).prediction(plan, scale)

    @contextmanager
    def _unless_impossible(self, mode: Mode, *, leave_out: bool) -> Iterator[None]:
        """Within it an error of the model means that the workload cannot run in ``mode``: leave it out, or refuse it.

        The last mode is refused in any case. What is wrong with a policy that somebody named stays its error.
        """
        try:
            yield
        except (ConfigError, CircuitError, ControlError) as error:
            if self.settings.policy is not None and mode in OWN_POLICY:
                raise
            if isinstance(error, ConfigError) and (error.key or error.source):
                raise  # of a key of the settings, whatever the mode
            reason = error.message if isinstance(error, ConfigError) else str(error)
            self._impossible[mode] = reason
            if leave_out and len(self._impossible) < len(self.settings.modes):
                return
            other = "" if self.settings.fabric_of(mode) == "electrical" else "; packets carry it: take mode electrical"
            raise ConfigError(
                f"mode {mode} cannot run {self.modelled.name}: {reason}{other}", key="modes", source=self.source
            ) from None

    @property
    def source(self) -> str | None:
        """The file that the job comes from; None for one of the catalog."""
        return None if self.settings.workload in CATALOG else self.settings.workload

    @property
    def omitted(self) -> Sequence[str]:  # type: ignore[override]
        modes: dict[str, list[str]] = {}
        for mode, reason in self._impossible.items():
            modes.setdefault(reason, []).append(mode)
        return [
            f"Left out: mode{'s' if len(some) > 1 else ''} {' and '.join(some)}, as {reason}."
            for reason, some in modes.items()
        ]

    @property
    def _points(self) -> list[RailPoint]:
        """Every point that is possible, as far as that is known."""
        return [point for point in self.settings.points() if point.mode not in self._impossible]

    def points(self) -> int | None:
        return len(self._points)

    def pieces(self) -> list[Piece]:
        return [Piece(str(point), point) for point in self._points]

    def begin(self, runner: Runner) -> None:
        """Give the manifest all fabrics and points, and say what is left out and the scale."""
        settings, points = self.settings, self._points
        runner.check_standing({point.mode: self.fabric(point.mode) for point in points})
        for sentence in self.omitted:
            runner.progress.say(sentence)
        fabrics = {settings.fabric_of(point.mode): self.fabric(point.mode) for point in points}
        runner.extra = {
            "plans": [fabric.plan() for fabric in fabrics.values()],
            "groups": self.workload.program.groups,
            "points": [point._asdict() for point in points],
            "expected_error": self.expected_error,
            "omitted": [*self.omitted],
        }
        guess = "; a guess, as this machine was not calibrated" if this_machine().guessed else ""
        runner.progress.say(
            f"scale 1/{1 / self.scale.rate:.4g}, time {self.scale.time:g}: steps are expected to take "
            f"{self.expected_error:.1%} too long (target {TARGET_ERROR:.0%}){guess}"
        )

    def measure(self, runner: Runner, piece: Piece) -> list[RailRow]:
        point: RailPoint = piece.of
        job = self.job(self.workload, point, self.scale)
        found = runner.measure(job, piece.name, Faults(controller_dies_step=self.settings.controller_dies_step))
        row = self._row(point, self.scale)
        row.predict(found.prediction)
        row.take(found)
        if row.controller_restart_wall_s is not None:
            runner.progress.say(
                f"  in seconds of wall-clock time: {row.controller_restart_wall_s:.3f} without a controller, "
                f"{row.controller_wait_wall_s:.3f} after the last rank began to wait; steps meanwhile were "
                f"{row.controller_late_wall_s or 0.0:.3f} late"
            )
        form = alike((row.step_time_s, row.predicted_step_time_s))
        took = "no step finished" if row.step_time_s is None else f"step {form(row.step_time_s)} s"
        runner.progress.result(f"{piece.name}: {took} (model {form(row.predicted_step_time_s)} s), {row.verdict}")
        return [row]

    def relate(self, rows: Sequence[MeasuredRow]) -> None:
        """Add what needs other rows: exposed and hidden time, what a late rank adds, and the stall law's step time.

        That law takes steps and windows of packet switches.
        """
        measured = [row for row in rows if isinstance(row, RailRow)]
        _compare(measured)
        baseline = next((row for row in measured if row.mode in ("electrical", "native")), None)
        for row in measured:
            if baseline is not None and row.mode in ("on-demand", "provisioned") and not row.late:
                row.stall_law_step_time_s = stall_law_step_time_s(row, baseline)

    def fabric(self, mode: Mode) -> Fabric:
        return fabric_on(self.settings, self.workload, mode, self.scale)

    def _row(self, point: RailPoint, scale: Scale) -> RailRow:
        row = self.row(
            workload=self.modelled.name,
            fabric=self.settings.fabric_of(point.mode),
            mode=point.mode,
            policy=policy_name(self.settings, self.modelled, point.mode),
            controller=self.settings.controller,
            reconfiguration_delay_ms=point.delay_ms,
            link_recovery_ms=self.settings.link_recovery_ms,
            late=point.late,
            late_s=late_s(self.settings, self.workload, point.late) if point.late else None,
        )
        row.at(scale, self.settings.seed)
        return row


def _compare(rows: Sequence[RailRow]) -> None:
    """Compare every row on circuits with that without a delay, and every late one with that without a late rank."""
    by_point = {(row.mode, row.reconfiguration_delay_ms, row.late): row for row in rows}
    for row in rows:
        ideal = by_point.get((row.mode, 0.0, row.late))
        if row.fabric == "ocs" and ideal is not None:
            row.compare(ideal)
        punctual = by_point.get((row.mode, row.reconfiguration_delay_ms, ""))
        if row.late and punctual is not None:
            row.compare_late(punctual)


_OWN_LISTS = RailSettings.model_fields["modes"].default, tuple(Rails.quick["modes"])
"""The lists of modes that nobody named."""


def print_plan(rails: Rails, console: Console) -> int:
    """Print the plan of the fabric of the first mode as JSON, for a controller of the user's own."""
    mode = rails._points[0][0]
    print(json.dumps(asdict(rails.fabric(mode).plan()), indent=2))
    return 0


def open_cli(rails: Rails, console: Console) -> int:
    """Bring up the fabric of the first mode and open the Mininet CLI on it."""
    from experiments.rails.cli import RailCLI
    from experiments.rest_access import reserved_address, rest_access
    from experiments.session import Session
    from topos.kernel.reach import Reach

    rails.check_run()
    settings, mode = rails.settings, rails._points[0][0]
    with ExitStack() as stack:
        held = stack.enter_context(reserved_address(settings))
        folder = stack.enter_context(temporary_folder())
        hand_over(folder)  # the caller of sudo is to read the token in it
        rest = rest_access(settings, held, folder)
        session = stack.enter_context(
            Session(settings, rails.fabric(mode).topology(), rest=rest, rate_scale=rails.scale.rate)
        )
        if session.rest_line is not None:
            print(session.rest_line)
        groups = tuple(program_on(settings, rails.workload, mode).groups.values())
        session.register(Job("cli", groups, mode), policy_name(settings, rails.workload, mode))
        channel = None if session.controller is None else session
        RailCLI(session.net, channel, Reach(session.net), rails.scale)
    return 0


Rails.actions = {
    "cli": Action(
        "Mininet CLI on the fabric of the first mode, instead of a run",
        open_cli,
        root=True,
        uses=("rest", "rest_token_file"),
    ),
    "print-plan": Action("plan of the fabric as JSON, for a controller of your own; no run", print_plan),
}
