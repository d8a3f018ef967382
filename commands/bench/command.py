"""The benchmarks as an experiment: each value beside its limit and, if there is one, a stock tool's value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, ValidationInfo, field_validator
from rich.console import Console

from commands.bench import Datapath, Measurement, ModelRow, QuickRun, finite, not_measured
from experiments.experiment import Action, Experiment
from experiments.report import Column, Report, Table
from experiments.settings import MOST_REPEATS, AgentsPerProcess, Option, RepeatedSettings, Settings
from measure.results.row import Row
from railyard.digits import significant
from railyard.errors import RailyardError, nearest

if TYPE_CHECKING:
    from commands.bench.bed import Bed
    from experiments.runner import Runner

Measure = Callable[["Bed"], list[Measurement]]


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: its description in a line, and the ``module:function`` that measure its parts, with root.

    A name may be that of a tuple of functions, each a part. Of several datapaths each part is measured before the next
    part begins. A benchmark that is ``large`` runs only if it is named.
    """

    says: str
    places: tuple[str, ...]
    large: bool = False

    def parts(self) -> Iterator[Measure]:
        for place in self.places:
            module, name = place.split(":")
            found = getattr(import_module(f"commands.bench.{module}"), name)
            yield from found if isinstance(found, tuple) else (found,)


BENCHES: dict[str, Benchmark] = {
    "links": Benchmark(
        "16 hosts x 100 Mb/s in a ring: goodput of each against line rate, beside TCLink, and beside a busy core",
        ("fabric:links", "fabric:links_beside_load"),
    ),
    "allreduce": Benchmark("ring all-reduce against line rate at 8 to 64 hosts", ("collectives:SCALED",)),
    "large-allreduce": Benchmark("the same at 128 to 512 hosts", ("collectives:SCALED_LARGE",), large=True),
    "collectives": Benchmark(
        "every collective at 16 ranks and 4 MiB against its own alpha-beta bound", ("collectives:against_bounds",)
    ),
    "stragglar": Benchmark(
        "Ring / StragglAR after arrival by ranks, and their break-even delay", ("collectives:stragglar",)
    ),
    "ceiling": Benchmark(
        "the highest aggregate rate of plain streams, beside TCLink, and of an all-reduce within 1.05",
        ("fabric:plain_streams", "collectives:highest_aggregate"),
    ),
    "rtt": Benchmark(
        "round-trip time of a ping of 64 bytes over a circuit, beside stock Mininet", ("fabric:round_trip",)
    ),
    "idle": Benchmark("processor use of an idle fabric of 128 GPUs with its controller", ("fabric:idle_fabric",)),
    "bringup": Benchmark("128 GPUs, 256 links, 24 switches: up and down, beside stock Mininet", ("fabric:bring_up",)),
    "rewire": Benchmark("64 ports rewired: request to barrier reply, and to the answer", ("circuits:rewire_64",)),
    "swap": Benchmark(
        "64 ports rewired: OpenFlow request to packets following, in-band; the change of the map alone",
        ("circuits:swap_64", "circuits:map_change"),
    ),
    "barrier": Benchmark("64 and 512 members ready: first request to last ack", ("circuits:BARRIER",)),
    "dark": Benchmark("in-band dark time against the configured one", ("circuits:dark_times",)),
    "slots": Benchmark("slots of 10 ms with 1 ms of delay: duty cycle, losses, misdelivery", ("collectives:slots",)),
    "floor": Benchmark("slots of 10, 5, 2 ms: duty cycle over the planned one", ("collectives:short_slots",)),
    "delay": Benchmark("error of link delays of 5, 20, 50 ms on 8 links that carry 20 Mb/s each", ("fabric:delay",)),
    "loss": Benchmark("packets that lossy links lose against the share asked for, 0.1 to 5 percent", ("fabric:loss",)),
    "quick": Benchmark(
        "run.sh --quick over and over: runs with faithful points alone", ("runs:quick_runs",), large=True
    ),
    "watch": Benchmark(
        "step times of 16 ranks with --watch and an open page against those without, in pairs",
        ("runs:watched_runs",),
        large=True,
    ),
    "model": Benchmark(
        "every row of the experiments against its prediction: 2 percent, 4 at 64 ranks",
        ("runs:model_parts",),
        large=True,
    ),
    "slopes": Benchmark("step time against delay: smoke, Llama and PP-only jobs, and the stall law", ("runs:slopes",)),
}
"""The benchmarks by name, in the order in which they run."""


class BenchSettings(Settings):
    """Settings of the benchmarks: the choice of those that run, and of the datapaths that they measure."""

    only: Annotated[tuple[str, ...] | None, Option(metavar="NAME,...")] = Field(
        default=None, min_length=1, description="benchmarks to run (default all but the large ones)"
    )
    runs: int = Field(default=20, ge=1, le=1000, description="runs of benchmark quick")
    parts: Annotated[tuple[str, ...] | None, Option(metavar="NAME,...")] = Field(
        default=None, min_length=1, description="parts of benchmark model to measure (default all)"
    )
    agents_per_process: AgentsPerProcess = 0
    repeats: int = Field(
        default=1, ge=1, le=MOST_REPEATS, description=RepeatedSettings.model_fields["repeats"].description
    )
    datapath: Annotated[tuple[Datapath, ...], Option(metavar="NAME,...")] = Field(
        default=("auto",), min_length=1, description="datapaths to measure side by side"
    )

    @field_validator("only", "parts")
    @classmethod
    def _known(cls, value: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        from commands.bench.runs import PARTS

        what, known = ("a part", PARTS) if info.field_name == "parts" else ("a benchmark", BENCHES)
        for name in value or ():
            if name not in known:
                raise ValueError(f"{name} is not {what}{nearest(name, known) or '; use one of ' + ', '.join(known)}")
        return value


def list_benchmarks(experiment: Bench, console: Console) -> int:
    for name, bench in BENCHES.items():
        print(f"{name:<16} {bench.says}" + (" (only if named)" if bench.large else ""))
    return 0


def rows(name: str, part: Measure, bed: Bed) -> list[Measurement]:
    """The rows that a part of benchmark ``name`` measures; a part that cannot measure gives a row with the reason."""
    try:
        found = finite(part(bed))
        used = bed.used
    except RailyardError as error:
        found, used = [not_measured(name, error)], bed.datapath
    return [replace(row, datapath=used) for row in found]


class Bench(Experiment[BenchSettings]):
    """Benchmarks of Railyard on this machine: links and their delay, collectives, bring-up, control plane, slopes.

    Datapaths named together (``--datapath bpf,ovs``) take turns, so each row can be compared with that of the other.
    A machine with other load gives worse values: compare ratios, and repeat the run. The exit status is 1 if a
    measurement did not keep its limit or could not be made.
    """

    name = "bench"
    Settings = BenchSettings
    rows = (Measurement, QuickRun, ModelRow)
    examples = (
        "                                # all but the large ones",
        "--only links,rewire             # some of them",
        "--only quick --runs 20          # how often every point of a quick run is faithful",
        "--only model --parts smoke      # measured against predicted",
        "--only slopes --json slopes.json",
        "--datapath bpf,ovs --only rtt   # two datapaths side by side",
        "--list                          # names and descriptions",
    )
    actions: ClassVar = {"list": Action("list of the benchmarks; nothing is measured", list_benchmarks)}
    packets = keeps = False

    def run(self, runner: Runner) -> None:
        """Run the benchmarks: each part of them on one datapath after another."""
        from commands.bench.bed import Bed

        asked, stock = self.settings, dict[str, Any]()
        options = asked.runs, asked.parts, asked.repeats, asked.agents_per_process
        beds = [Bed(datapath, stock, *options) for datapath in asked.datapath]
        for name in self.settings.only or [name for name, bench in BENCHES.items() if not bench.large]:
            runner.progress.begin(f"{name}: {BENCHES[name].says}")
            for part in BENCHES[name].parts():
                for bed in beds:
                    runner.add(*rows(name, part, bed))

    def status(self, rows: Sequence[Row]) -> int:
        """1 if a measurement did not keep its limit or could not be made, else 0."""
        return 1 if any(row["ok"] is False for row in rows) else 0

    @classmethod
    def report(cls) -> Report:
        return Report(tables=_tables, findings=_findings, calibrated=_calibrated)


_COLUMNS = (
    Column("measurement", lambda row: row["name"], left=True),
    Column("on", "datapath", left=True),
    Column("value", lambda row: "not measured" if row["value"] is None else f"{row['value']:.4g}"),
    Column("unit", "unit", left=True),
    Column("stock", "baseline", ".4g", wide=True),
    Column("ratio", "ratio", ".3g", wide=True),
    Column("limit", "limit", ".4g"),
    Column("ok", "ok", left=True),
)


_RUN_COLUMNS = (
    Column("run", "run"),
    Column("on", "datapath", left=True),
    Column("s", "seconds", ".0f"),
    Column("faithful", lambda row: f"{row['value']:g} of {row['limit']:g}"),
    Column("off the\nmodel, %", lambda row: None if row["off"] is None else 100 * row["off"], ".1f"),
    Column("others, %\nof cores", lambda row: 100 * row["others"], ".0f"),
    Column("ok", "ok", left=True),
)


_MODEL_COLUMNS = (
    Column("row", lambda row: row["name"].partition(": ")[2], left=True),
    Column("measured\ns", "measured_s", significant),
    Column("model\ns", "predicted_s", significant),
    Column("off\n%", lambda row: None if row["value"] is None else 100 * row["value"], "+.1f"),
    Column("limit\n%", lambda row: 100 * row["limit"], "g", wide=True),
    Column("n", "n"),
    Column("faith-\nful", "faithful", left=True, wide=True),
    Column("ok", "ok", left=True),
)


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    runs = [row for row in rows if row.get("run") is not None]
    models = dict.fromkeys(row["name"].partition(":")[0] for row in rows if row.get("n") is not None)
    if runs:
        yield Table("runs of run.sh --quick", _RUN_COLUMNS, runs)
    for part in models:
        of_part = [row for row in rows if row.get("n") is not None and row["name"].startswith(f"{part}:")]
        yield Table(f"measured against predicted: {part}", _MODEL_COLUMNS, of_part)
    others = [row for row in rows if row.get("run") is None and row.get("n") is None]
    if others:
        yield Table("benchmarks", _COLUMNS, others)


_CALIBRATED = {"llama_": "llama-forward", "pp_only_": "deepseek-forward"}
"""First words of measurements of workloads whose compute time is fitted, and the calibration."""


def _calibrated(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    for words, key in _CALIBRATED.items():
        if any(row["name"].startswith(words) for row in rows):
            yield key


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    for row in rows:
        if row["name"] == "quick_faithful_runs":
            yield f"run.sh --quick ({row['datapath']}): {row['value']:g} of {row['limit']:g} faithful"
        if row.get("verdict"):
            yield f"run {row['run']} ({row['datapath']}): {row['verdict']}"
        if row["value"] is None:
            yield f"{row['name']} ({row['datapath']}): not measured: {row['why_not']}"
