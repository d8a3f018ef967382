"""An experiment from outside the tree: many ranks send to one at once (incast), and the time against their number.

sudo railyard run docs/examples/incast.py:Incast --senders 1,3,7
railyard predict docs/examples/incast.py:Incast
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from experiments.experiment import Experiment
from experiments.job_point import Fabric, JobPoint
from experiments.report import FAITHFUL, Column, Drawn, Report, Table, off_percent, to_nothing
from experiments.runner import Runner
from experiments.settings import Iterations, Option, PacketSettings, PortGbps, UnscaledSection
from measure.figures.plot import Plot, figure_of
from measure.results.row import MeasuredRow
from railyard.digits import significant
from railyard.scale import goodput_share
from railyard.size import parse_size
from topos.rails import RailTopo
from workloads.program import Collective, Group, Program

MTU = 4200


# 1. Settings: every field is a key of the YAML file and an option of the command line.
class IncastSettings(PacketSettings):
    """How many ranks send how much."""

    senders: tuple[Annotated[int, Field(ge=1, le=63)], ...] = Field(
        default=(1, 3, 7), min_length=1, description="numbers of ranks that send at once"
    )
    size: Annotated[int, Option(metavar="1M")] = Field(
        default=1 << 18, ge=1, description="bytes that each of them sends"
    )
    iterations: Iterations = 3
    port_gbps: PortGbps = 0.05
    scale: UnscaledSection = UnscaledSection()

    @field_validator("size", mode="before")
    @classmethod
    def _in_words(cls, value: object) -> object:
        return parse_size(value) if isinstance(value, str) else value


# 2. Rows: one typed record for each point. Text after the type describes the field.
@dataclass(kw_only=True)
class IncastRow(MeasuredRow):
    """The time of an incast with one number of senders."""

    senders: Annotated[int, "ranks that send at once"]
    size_bytes: Annotated[int, "bytes that each of them sends"]
    bound_s: Annotated[float, "time at line rate of the receiver's port"]
    time_s: Annotated[float | None, "time of a step, median"] = None
    predicted_time_s: Annotated[float | None, "time of a step by the model"] = None


# 3. The experiment: points from settings, rows from points.
class Incast(Experiment[IncastSettings]):
    """Many ranks send to one at the same moment: time against their number, on a packet switch."""

    name = "incast"
    Settings = IncastSettings
    rows = (IncastRow,)
    quick: ClassVar = {"senders": [1, 3], "iterations": 1}

    def job(self, senders: int) -> JobPoint:
        """The point of a number of senders: a gather, in which each sends its part straight to rank 0."""
        settings, scale = self.settings, self.scale
        n, steps = senders + 1, settings.iterations + 1
        group = Group("all", "world", tuple(range(n)))
        gather = Collective(0, "gather", "gather", "all", n * settings.size, algorithm="direct")
        program = Program(f"incast-{senders}", ((gather,),) * n, {"all": group})
        rate_mbps = scale.emulated_mbps(settings.port_gbps)
        fabric = Fabric(
            f"electrical-{n}",
            n,
            lambda: RailTopo(servers=n, gpus=1, ports=1, fabric="electrical", rate_mbps=rate_mbps, mtu=MTU),
        )
        return JobPoint(program.name, fabric, program, mode="native", policy="static", steps=steps, model_steps=steps)

    def check(self) -> None:
        """Refuse what cannot run, before anything starts."""
        for senders in self.settings.senders:
            self.job(senders)

    def predict(self) -> Iterator[IncastRow]:
        """The rows as the model predicts them; needs no root."""
        for senders in self.settings.senders:
            yield self._row(senders, self.job(senders).predicted(self.scale).step_time_s)

    def run(self, runner: Runner) -> None:
        """Measure every point; the runner brings up fabrics, runs agents, judges, and keeps what was measured."""
        for senders in self.settings.senders:
            found = runner.measure(self.job(senders), f"{senders} senders")
            row = self._row(senders, found.prediction.step_time_s)
            row.time_s = found.metrics.step_time_s
            row.count(found.delivered)
            row.judge(found.verdict)
            runner.add(row)

    def _row(self, senders: int, predicted_s: float) -> IncastRow:
        size, bytes_per_s = self.settings.size, self.settings.port_gbps * 1e9 / 8 * goodput_share(MTU)
        bound_s = senders * size / bytes_per_s
        row = IncastRow(senders=senders, size_bytes=size, bound_s=bound_s, predicted_time_s=predicted_s)
        row.at(self.scale, self.settings.seed)
        return row

    # 4. The report: the same for a run, a prediction, and `railyard plot FOLDER`.
    @classmethod
    def report(cls) -> Report:
        """A table, a finding and a figure."""
        return Report(
            tables=lambda rows: [Table("incast", COLUMNS, rows)],
            point=lambda row: f"{row['senders']} senders",
            calibrated=to_nothing,
            findings=lambda rows, settings: [f"The slowest step took {max(r['time_s'] for r in rows):.3f} s."],
            figures=lambda recorded: [Drawn("incast", figure_of(FIGURE, recorded.rows), recorded.rows)],
        )


COLUMNS: Sequence[Column] = (
    Column("senders", "senders", "d"),
    Column("time\ns", "time_s", significant),
    Column("model\ns", "predicted_time_s", significant),
    Column("off\n%", lambda row: off_percent(row["time_s"], row["predicted_time_s"]), "+.1f"),
    Column("bound\ns", "bound_s", significant),
    Column("wrong\nhost", "misdelivered", "d", wide=True),
    FAITHFUL,
)


# 5. One figure: markers with intervals are measured, the line is the model.
FIGURE = Plot("senders", "time_s", ("ranks that send at once", "time of a step (s)"), "Incast", "predicted_time_s")
