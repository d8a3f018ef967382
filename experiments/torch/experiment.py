"""A PyTorch script of a user on rails: the rail experiment with its recorded step, driven by its real ranks."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite
from pathlib import Path
from typing import Annotated, Any, ClassVar

from controllers.allocation.leases import load_placement
from experiments.faults import Faults, Kill, check_kills, parse_kills
from experiments.job_point import JobPoint
from experiments.racks.forecast import JobPrediction, JobWindow, deaths
from experiments.racks.row import RAILS, FailoverRow, judge_together
from experiments.racks.run import play
from experiments.rails.experiment import Rails
from experiments.rails.job import model_scale, policy_name
from experiments.rails.row import RailRow
from experiments.rails.settings import RailPoint
from experiments.repeats import Piece
from experiments.runner import Measured, Runner
from experiments.script import ENDLESS, UserScript, output_of, trace_of
from experiments.shared_rails.experiment import RailSetting
from experiments.shared_rails.settings import JobRequest, SharedJob
from experiments.torch.job import calls_of, factor_of, last_step, record, recorded, script_of, workload_of
from experiments.torch.settings import TorchSettings
from measure.results.results import SCRIPTS
from measure.results.row import MeasuredRow
from railyard.errors import ConfigError
from railyard.ownership import remove_file
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.catalog import Workload
from workloads.pytorch.record import Record
from workloads.pytorch.record_file import read_record, write_record
from workloads.pytorch.trace import read_trace

RECORD = "record.yaml"
"""Name of the record in the results folder, and of that of a run beside what its ranks printed."""


_LOSS = re.compile(
    r"\bstep\W{1,3}(\d{1,9})\b.{0,200}?\bloss\W{1,3}([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf)\b", re.IGNORECASE
)


@dataclass(kw_only=True)
class TorchRow(RailRow):
    """One mode at one reconfiguration delay."""

    incarnation: Annotated[int, "the incarnation of the script that the numbers of steps are of"] = 0
    first_step: Annotated[int, "number that the script gives to the first of step_times_s"] = 0
    losses: Annotated[Mapping[int, float | None], "loss by the number of the step as printed, None for nan"] = field(
        default_factory=dict
    )
    loss: Annotated[float | None, "the last of them"] = None


def losses_in(lines: Iterable[str]) -> dict[int, float | None]:
    """The losses by step that ``lines`` such as ``step 3 loss 2.5`` tell: of a step that comes twice the last one."""
    matches = filter(None, map(_LOSS.search, lines))
    return {int(match[1]): loss if isfinite(loss := float(match[2])) else None for match in matches}


class Torch(Rails):
    """A PyTorch script of your own, unchanged: one rank a host, its large tensors over circuits, by every policy.

    Its step is recorded first, so that all is predicted, provisioned and judged as any job on rails.
    """

    name = "torch"
    Settings = TorchSettings
    settings: TorchSettings
    rows = (TorchRow, FailoverRow)
    row: ClassVar = TorchRow
    files = ("script", "record")
    actions: ClassVar = {}
    quick: ClassVar = {"delays_ms": [0.0, 50.0], "most_steps": 6}
    examples = (
        "--script train.py --script-arguments '--steps 10'  # as railyard torchrun train.py --steps 10",
        "--script train.py --compute recorded --ranks 16",
        "--record record.yaml --predict               # the model alone; no root and no torch",
    )

    @classmethod
    def adapt(cls, values: dict[str, Any], given: Any) -> dict[str, Any]:
        """All is as it was given: there are no slots, and no remote controller."""
        return values

    @cached_property
    def recorded(self) -> tuple[Record, Sequence[str]]:
        """The record of a step, which is made now unless there is one, and what was not followed in it."""
        settings = self.settings
        if settings.record is not None:
            return read_record(Path(settings.record)), ()
        return recorded(settings, lambda line: print(line, file=sys.stderr, flush=True))

    @cached_property
    def modelled(self) -> Workload:
        return workload_of(self.recorded[0], self.settings)

    @cached_property
    def workload(self) -> Workload:
        return self.modelled

    @property
    def source(self) -> str | None:
        return self.settings.script or self.settings.record

    def check(self) -> None:
        settings = self.settings
        if not settings.script and settings.record is None:
            raise ConfigError("must name a PyTorch script, as in --script train.py", key="script")
        if settings.script and not Path(settings.script).is_file():
            raise ConfigError(f"there is no file {settings.script}", key="script")
        super().check()
        if settings.kill:
            kills_of(settings, self.setting(self._points[0], model_scale(settings, self.modelled)).plan)

    def check_run(self) -> None:
        if not self.settings.script:
            raise ConfigError("must name a PyTorch script, as in --script train.py", key="script")
        super().check_run()

    def job(self, workload: Workload, point: RailPoint, scale: Scale) -> JobPoint:
        settings, job = self.settings, super().job(workload, point, scale)
        script = replace(self._script, calls=calls_of(job.program))
        if settings.kill:
            setting, detection = self.setting(point, scale), settings.detection.detection(scale)
            job = setting.job_point(setting.jobs[0], detection, checkpoint_every=0, state_bytes=0.0)
            job = replace(job, model_steps=settings.steps)  # whose script has its own checkpoints
        return replace(job, script=script, steps=ENDLESS)

    def setting(self, point: RailPoint, scale: Scale) -> RailSetting:
        """The rails of the script alone, with spare servers."""
        settings, workload = self.settings, self.modelled
        alone = settings.model_copy(update={"modes": (point.mode,), "delays_ms": (point.delay_ms,)})
        request = JobRequest(point.mode, workload.name, ENDLESS, 0.0, "packed")
        policy = policy_name(settings, workload, point.mode)
        return RailSetting(
            name=RAILS,
            system=policy,
            policy=policy,
            mode=point.mode,  # type: ignore[arg-type]
            delay_s=point.delay_ms / 1e3,
            scale=scale,
            front_end_gbps=settings.front_end_gbps,
            jobs=(SharedJob(request, alone, workload, workload, load_placement(request.placement)),),
            servers=workload.servers,
            spare_servers=settings.spare_servers,
        )

    @property
    def _script(self) -> UserScript:
        return script_of(self.settings, self.modelled.program.ranks, self.modelled.gpus_per_server)

    def points(self) -> int | None:
        return None if self.settings.kill else super().points()

    def same(self, row: MeasuredRow) -> Any:
        return row.event if isinstance(row, FailoverRow) else None

    def begin(self, runner: Runner) -> None:
        super().begin(runner)
        record, notes = self.recorded
        write_record(record, runner.record.results.folder / RECORD)
        for note in notes:
            runner.progress.say(f"  {note}")
        runner.extra["notes"] = list(notes)
        runner.start_scripts(self._script)

    def measure(self, runner: Runner, piece: Piece) -> list[MeasuredRow]:  # type: ignore[override]
        """Run the script once; its losses are in the row, and the record of its last step beside its output."""
        settings, scripts = self.settings, runner.record.results.folder / SCRIPTS
        rows: list[MeasuredRow] = []
        rows += self._through_kills(runner, piece.of) if settings.kill else super().measure(runner, piece)
        row = rows[0]
        assert isinstance(row, TorchRow)
        for number, folder in enumerate(sorted(scripts.glob(f"{row.point:03d}*"))):
            losses = self._losses(folder)
            row.losses = {**row.losses, **losses}
            if number == row.incarnation:
                row.first_step = min(losses, default=0) + settings.setup_steps
                self._keep_record(folder, runner)
            for rank in range(self.workload.program.ranks):
                remove_file(trace_of(folder, rank))
        row.loss = row.losses[max(row.losses)] if row.losses else None
        return rows

    def _through_kills(self, runner: Runner, point: RailPoint) -> list[MeasuredRow]:
        """Run the script through the kills: the row of its longest incarnation, and one for each kill."""
        job, setting = self.job(self.workload, point, self.scale), self.setting(point, self.scale)
        kills, prediction = kills_of(self.settings, setting.plan), job.predicted(self.scale)
        model = {job.name: JobPrediction(prediction.step_times_s[0], prediction.step_time_s, {})}
        between = deaths(setting, [job], {job.name: job.members}, [kill.ranks(setting.plan) for kill in kills])
        seen = tuple(JobWindow(members, dead, model, contended=False) for members, dead in between)
        played = play(runner, setting, [job], Faults(kills), seen=seen, expected_s=inf)
        row = self._row(point, self.scale)
        assert isinstance(row, TorchRow)
        row.predict(prediction)
        if played.points:
            longest = max(played.points, key=lambda lived: lived.metrics.steps)
            row.take(Measured(longest.point, longest.events, prediction, played.delivered))
            row.incarnation = longest.incarnation
        row.point = played.number
        judge_together(row, played.verdicts(job.name))
        return [row, *played.rows()]

    def _losses(self, folder: Path) -> dict[int, float | None]:
        """The losses that the first rank printed which printed any; of a pipeline that is one of the last stage."""
        for rank in range(self.workload.program.ranks):
            with open(output_of(folder, rank), errors="replace") as lines:
                if losses := losses_in(lines):
                    return losses
        return {}

    def _keep_record(self, folder: Path, runner: Runner) -> None:
        try:
            traces = [read_trace(trace_of(folder, rank)) for rank in range(self.workload.program.ranks)]
            times = factor_of(self.settings.compute)
            write_record(record(self.settings, traces, last_step(traces), times), folder / RECORD)
        except ConfigError as error:
            runner.progress.say(f"  there is no record of this run: {error}")


def kills_of(settings: TorchSettings, plan: FabricPlan) -> tuple[Kill, ...]:
    """The kills, in steps of the agents, which count from the end of the set-up; ``ConfigError`` for wrong ones."""
    kills, first = parse_kills(settings.kill, plan), settings.setup_steps
    check_kills(kills, plan, ENDLESS, range(plan.ranks), port="port" in settings.detection.detect)
    if any(kill.step is not None and kill.step < first for kill in kills):
        raise ConfigError(f"must be after the {first} steps of set-up (setup_steps)", key="kill")
    return tuple(kill if kill.step is None else replace(kill, step=kill.step - first) for kill in kills)
