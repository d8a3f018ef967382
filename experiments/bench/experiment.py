"""The benchmarks as an experiment: each value beside its limit and, if there is one, a stock tool's value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from rich.console import Console

from experiments.bench import Measurement, finite, not_measured
from experiments.experiment import Action, Experiment
from experiments.report import Column, Report, Table
from experiments.runner import Runner
from experiments.settings import Option, Settings
from measure.results.row import Row
from railyard.errors import RailyardError

Name = Literal[
    "links",
    "allreduce",
    "collectives",
    "stragglar",
    "ceiling",
    "bringup",
    "rewire",
    "barrier",
    "dark",
    "delay",
    "loss",
    "slopes",
]


class BenchSettings(Settings):
    """Settings of the benchmarks: the choice of those that run."""

    only: Annotated[tuple[Name, ...] | None, Option(metavar="NAME,...")] = Field(
        default=None, min_length=1, description="benchmarks to run (default all)"
    )


def list_benchmarks(experiment: Bench, console: Console) -> int:
    """Print the names and descriptions of the benchmarks."""
    from experiments.bench.catalog import BENCHES

    print("\n".join(f"{name:<12} {bench.says}" for name, bench in BENCHES.items()))
    return 0


class Bench(Experiment[BenchSettings]):
    """Benchmarks of Railyard on this machine: links and their delay, collectives, bring-up, control plane, slopes.

    A machine with other load gives worse values: compare ratios, and repeat the run. The exit status is 1 if a
    measurement did not keep its limit or could not be made.
    """

    name = "bench"
    Settings = BenchSettings
    rows = (Measurement,)
    examples = (
        "                                # all, about ten minutes",
        "--only links,rewire             # some of them",
        "--only slopes --json slopes.json",
        "--list                          # names and descriptions",
    )
    actions: ClassVar = {"list": Action("list of the benchmarks; nothing is measured", list_benchmarks)}
    packets = keeps = False

    def run(self, runner: Runner) -> None:
        """Run the benchmarks; one that cannot measure gives a row with the reason."""
        from experiments.bench.catalog import BENCHES

        for name in self.settings.only or BENCHES:
            runner.progress.begin(f"{name}: {BENCHES[name].says}")
            try:
                found = finite(BENCHES[name].measure())
            except RailyardError as error:
                found = [not_measured(name, error)]
            runner.add(*found)

    def status(self, rows: Sequence[Row]) -> int:
        """1 if a measurement did not keep its limit or could not be made, else 0."""
        return 1 if any(row["ok"] is False for row in rows) else 0

    @classmethod
    def report(cls) -> Report:
        """A table of the measurements."""
        return Report(tables=_tables, findings=_findings)


_COLUMNS = (
    Column("measurement", lambda row: row["name"], left=True),
    Column("value", lambda row: "not measured" if row["value"] is None else f"{row['value']:.4g}"),
    Column("unit", "unit", left=True),
    Column("stock", "baseline", ".4g"),
    Column("ratio", "ratio", ".4g"),
    Column("limit", "limit", ".4g"),
    Column("ok", "ok", left=True),
)


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    yield Table("benchmarks", _COLUMNS, rows)


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{row['name']}: not measured: {row['why_not']}" for row in rows if row["value"] is None)
