"""The faults experiment: a campaign of faults in small runs, or one long run whose use of the machine must not grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, model_validator

from experiments.experiment import Experiment
from experiments.faults.fault import chosen
from experiments.faults.row import FaultRow
from experiments.faults.soak_row import LEAST_POINTS, SoakRow
from experiments.settings import MOST_POINTS, Option, Settings
from measure.results.row import Row
from railyard.errors import ConfigError

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
    soak: int | None = Field(
        default=None, ge=LEAST_POINTS, le=MOST_POINTS, description="no faults, but one run of so many points"
    )

    @model_validator(mode="after")
    def _check_use(self) -> FaultsSettings:
        given = self.model_fields_set
        for key in ("count", "only", "parallel") if self.soak is not None else ():
            if key in given:
                raise ConfigError("is for faults, and a soak makes none; leave one of the two out", key=key)
        if self.only and "count" in given:
            raise ConfigError(
                "is not used where faults are named by their numbers; leave one of the two out", key="count"
            )
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

    @classmethod
    def adapt(cls, values: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Faults that are named, and a soak, replace the number of faults that a file or ``--quick`` has."""
        if "count" not in given and {"only", "soak"} & set(given):
            values = {key: value for key, value in values.items() if key != "count"}
        return values

    def points(self) -> int | None:
        """One row for every fault; None for a long run, where one may be seen after several points."""
        return None if self.settings.soak is not None else len(set(self.settings.only)) or self.settings.count

    def run(self, runner: Runner) -> None:
        """Make the faults, or the long run."""
        folder = runner.record.results.folder.absolute() / RUNS
        folder.mkdir()
        if self.settings.soak is not None:
            self._soak(runner, self.settings.soak)
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
            for made, row in enumerate(Campaign(faults, folder, settings.parallel, bystander).rows(), 1):
                runner.add(row)
                runner.progress.step(made)
                if row.ok is False:
                    repeat = next(fault.command for fault in faults if fault.number == row.number)
                    runner.progress.say(f"  {row.number}: {'; '.join(row.wrong)}; again: {repeat}")
            runner.progress.done()

    def _soak(self, runner: Runner, points: int) -> None:
        from experiments.faults.soak import soak

        runner.progress.begin("points", steps=points)
        for row in soak(points, runner.record.results.folder.absolute() / RUNS):
            runner.add(row)
            runner.progress.step(row.point + 1)
        runner.progress.done()

    def status(self, rows: Sequence[Row]) -> int:
        """1 if a run did not end as documented, or used more and more of the machine, else 0."""
        from experiments.faults.report import failed

        return FAILED_EXIT_STATUS if not rows or failed(rows) else 0
