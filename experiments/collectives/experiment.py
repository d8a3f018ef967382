"""What experiments made of trials have in common: each measures or predicts one trial after another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeVar

from experiments.collectives.row import TrialRow, described
from experiments.collectives.trial import Trial
from experiments.job_point import JobPoint, machine_floors
from experiments.repeats import Piece, RepeatedExperiment
from experiments.settings import MOST_POINTS, Iterations, RepeatedSettings, UnscaledSection
from measure.metrics.collective import CollectiveTimes
from measure.results.row import MeasuredRow
from railyard.digits import alike
from railyard.errors import ConfigError
from railyard.size import in_words

if TYPE_CHECKING:
    from experiments.runner import Runner


class TrialSettings(RepeatedSettings):
    """The keys of experiments that measure collectives; rates and sizes are those on the wire by default."""

    iterations: Iterations = 3
    scale: UnscaledSection = UnscaledSection()

    @abstractmethod
    def trials(self) -> Iterator[Trial]:
        """The trials of the experiment; ``ConfigError`` for an impossible one."""


T = TypeVar("T", bound=TrialSettings)
MOST_WORK = 500_000
"""Transfers (``Trial.work``) of all trials together: they are checked in two seconds."""


class TrialExperiment(RepeatedExperiment[T]):
    """An experiment whose rows are trials of type ``row``."""

    row: ClassVar[type[TrialRow]] = TrialRow
    floored: ClassVar[bool] = True
    """Whether a run with delays or slots below the floors of this machine is refused."""

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """The trials of the settings.

        ``ConfigError`` for more than ``MOST_POINTS``, or ``MOST_WORK`` together, before all of them are made.
        """
        found, work, schedules = list[Trial](), 0, set[int]()
        for trial in self.settings.trials():
            if len(found) == MOST_POINTS:
                raise ConfigError(
                    f"the lists of values have more than {MOST_POINTS} combinations; make one shorter", key="sizes"
                )
            found.append(trial)
            work += trial.work(self.settings.iterations, known=id(trial.schedule) in schedules)
            schedules.add(id(trial.schedule))
            if work > MOST_WORK:
                raise ConfigError(
                    f"ranks, sizes, algorithms and iterations are together too many to check: {len(found)} of their "
                    f"combinations have more than {MOST_WORK:,} transfers; make a list shorter, or take fewer ranks",
                    key="ranks",
                )
        return tuple(found)

    def job(self, trial: Trial) -> JobPoint:
        return trial.job_point(self.scale, self.settings.iterations + 1, self.settings.seed)

    def check(self) -> None:
        for job in map(self.job, self.trials):
            if self.settings.events:
                self.settings.acts(job.fabric.plan(), job.steps)

    def predict(self) -> Iterator[TrialRow]:
        for trial in self.trials:
            row = described(self.row, trial, self.scale, self.settings.seed)
            row.predict(trial, self.scale, self.job(trial).predicted(self.scale))
            yield row

    def points(self) -> int:
        return len(self.trials)

    def begin(self, runner: Runner) -> None:
        if self.floored:
            floors = machine_floors(self.settings.datapath)
            for trial in self.trials:
                self.job(trial).check_floors(self.scale, floors)

    def pieces(self) -> list[Piece]:
        return [Piece(_title(trial), trial) for trial in self.trials]

    def measure(self, runner: Runner, piece: Piece) -> Sequence[MeasuredRow]:
        return [self.measure_trial(runner, piece.of)[0]]

    def measure_trial(self, runner: Runner, trial: Trial) -> tuple[TrialRow, CollectiveTimes]:
        title, found = _title(trial), runner.measure(self.job(trial), _title(trial))
        times = trial.times(found.events, found.point.warmup(found.metrics.steps))
        row = described(self.row, trial, self.scale, self.settings.seed)
        row.predict(trial, self.scale, found.prediction)
        row.measure(trial, self.scale, found, times)
        form = alike((row.time_s, row.predicted_time_s))
        runner.progress.result(f"{title}: {form(row.time_s)} s (model {form(row.predicted_time_s)} s), {row.verdict}")
        return row, times


def _title(trial: Trial) -> str:
    plan, late = trial.schedule, f", {trial.straggler_delay_s:.3g} s late" if trial.straggler_delay_s else ""
    return f"{plan.algorithm}, {plan.n} ranks, {in_words(trial.bytes)}, {trial.circuits or trial.fabric.kind}{late}"
