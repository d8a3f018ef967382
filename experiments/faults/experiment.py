"""The faults experiment: a campaign of faults in small runs, or one long run whose use of the machine must not grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, model_validator

from experiments.experiment import Experiment
from experiments.faults.fault import chosen
from experiments.faults.row import FaultRow
from experiments.faults.soak_row import LEAST_POINTS, SoakRow
from experiments.settings import Option, Settings
from measure.results.row import Row

if TYPE_CHECKING:
    from experiments.runner import Runner

FAILED_EXIT_STATUS = 1
RUNS = "runs"
"""Folder, in the results folder, of the runs that faults are made in."""


class FaultsSettings(Settings):
    """How many faults are made, and which."""

    count: int = Field(default=60, ge=1, le=100_000, description="number of faults")
    seed: int = Field(default=1, ge=0, description="seed of payloads and of all that is drawn")
    only: Annotated[tuple[Annotated[int, Field(ge=0, lt=100_000)], ...], Option(metavar="NUMBER,...")] = Field(
        default=(), description="numbers of the faults to make, from 0 (default all)"
    )
    parallel: int = Field(default=2, ge=1, le=64, description="runs at the same time")
    soak: int = Field(default=0, ge=0, le=100_000, description="no faults, but one run of so many points")

    @model_validator(mode="after")
    def _check_soak(self) -> FaultsSettings:
        if self.soak and self.only:
            raise ValueError("soak makes no faults; leave only out")
        if 0 < self.soak < LEAST_POINTS:
            raise ValueError(f"soak must have at least {LEAST_POINTS} points, to tell what grows")
        return self


class Faults(Experiment[FaultsSettings]):
    """Faults in small runs: signals to their processes, lost connections, full disks. Each run must end as documented.

    The exit status is 1 if one did not; its row then has the command that repeats it.
    """

    name = "faults"
    Settings = FaultsSettings
    rows = (FaultRow, SoakRow)
    quick: ClassVar = {"count": 12}
    examples = (
        "                        # 60 faults",
        "--count 1000 --seed 7   # a long campaign",
        "--seed 7 --only 17      # one of its faults again",
        "--soak 1000             # one run of 1000 points",
    )
    packets = False

    def run(self, runner: Runner) -> None:
        """Make the faults, or the long run."""
        folder = runner.record.results.folder.absolute() / RUNS
        folder.mkdir()
        if self.settings.soak:
            self._soak(runner)
        else:
            self._campaign(runner)
        if not any(folder.iterdir()):
            folder.rmdir()

    def _campaign(self, runner: Runner) -> None:
        from experiments.faults.bystander import Bystander
        from experiments.faults.campaign import Campaign

        settings = self.settings
        faults = chosen(settings.seed, settings.count, settings.only)
        folder = runner.record.results.folder.absolute() / RUNS
        with Bystander() as bystander:
            runner.progress.begin("faults", steps=len(faults))
            seen: list[FaultRow] = []
            for row in Campaign(faults, folder, settings.parallel, bystander).rows():
                seen.append(row)
                runner.add(row)
                runner.progress.step(len(seen))
                if row.ok is False:
                    repeat = next(fault.command for fault in faults if fault.number == row.number)
                    runner.progress.say(f"  {row.number}: {'; '.join(row.wrong)}; again: {repeat}")
            seen.sort(key=lambda each: each.number)
            runner.replace(seen)
            runner.progress.done()

    def _soak(self, runner: Runner) -> None:
        from experiments.faults.soak import soak

        runner.progress.begin("points", steps=self.settings.soak)
        for row in soak(self.settings.soak, runner.record.results.folder.absolute() / RUNS):
            runner.add(row)
            runner.progress.step(row.point + 1)
        runner.progress.done()

    def status(self, rows: Sequence[Row]) -> int:
        """1 if a run did not end as documented, or used more and more of the machine, else 0."""
        from experiments.faults.report import failed

        return FAILED_EXIT_STATUS if not rows or failed(rows) else 0
