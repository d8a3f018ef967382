"""An experiment from outside the tree: many ranks send to one at once (incast), and the time against their number."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from experiments.experiment import Experiment
from experiments.job_point import Fabric, JobPoint
from experiments.job_row import JobRow
from experiments.report import FAITHFUL, Column, Drawn, Report, Table, off_percent, to_nothing
from experiments.runner import Runner
from experiments.settings import Iterations, PacketSettings, PortGbps, UnscaledSection
from measure.figures.plot import Plot, figure_of
from railyard.digits import significant
from railyard.scale import ROCE_MTU_BYTES, goodput_bytes_per_s
from topos.rails import RailTopo
from workloads.program import Collective, Group, Program


class IncastSettings(PacketSettings):
    """How many ranks send how much."""

    senders: tuple[Annotated[int, Field(ge=1, le=63)], ...] = Field(
        default=(1, 3, 7), min_length=1, description="numbers of ranks that send at once"
    )
    size: int = Field(default=1 << 18, ge=1, description="bytes that each of them sends")
    iterations: Iterations = 3
    port_gbps: PortGbps = 0.05
    scale: UnscaledSection = UnscaledSection()


@dataclass(kw_only=True)
class IncastRow(JobRow):
    """The time of an incast with one number of senders."""

    senders: Annotated[int, "ranks that send at once"]
    bound_s: Annotated[float, "time at line rate of the receiver's port"]


class Incast(Experiment[IncastSettings]):
    """Many ranks send to one at the same moment: time against their number, on a packet switch."""

    name = "incast"
    Settings = IncastSettings
    rows = (IncastRow,)
    quick: ClassVar = {"senders": [1, 3], "iterations": 1}

    def predict(self) -> Iterator[IncastRow]:
        settings, bytes_per_s = self.settings, goodput_bytes_per_s(self.settings.port_gbps, ROCE_MTU_BYTES)
        for senders in settings.senders:
            row = IncastRow(senders=senders, bound_s=senders * settings.size / bytes_per_s)
            row.predicted_step_time_s = self._job(senders).predicted(self.scale).step_time_s
            row.at(self.scale, settings.seed)
            yield row

    def run(self, runner: Runner) -> None:
        for row in self.predict():
            row.take(runner.measure(self._job(row.senders), f"{row.senders} senders"))
            runner.add(row)

    def _job(self, senders: int) -> JobPoint:
        """A gather, in which each sends its part straight to rank 0."""
        n, steps, mbps = senders + 1, self.settings.iterations + 1, self.scale.emulated_mbps(self.settings.port_gbps)
        gather = Collective(0, "gather", "gather", "all", n * self.settings.size, algorithm="direct")
        program = Program(f"incast-{senders}", ((gather,),) * n, {"all": Group("all", "world", tuple(range(n)))})
        fabric = Fabric(f"electrical-{n}", n, lambda: RailTopo(n, 1, 1, mbps, "electrical", mtu=ROCE_MTU_BYTES))
        return JobPoint(program.name, fabric, program, mode="native", policy="static", steps=steps, model_steps=steps)

    @classmethod
    def report(cls) -> Report:
        columns = (
            Column("senders", "senders", "d"),
            Column("time\ns", "step_time_s", significant),
            Column("model\ns", "predicted_step_time_s", significant),
            Column("off\n%", lambda row: off_percent(row["step_time_s"], row["predicted_step_time_s"]), "+.1f"),
            FAITHFUL,
        )
        labels = ("ranks that send at once", "time of a step (s)")
        plot = Plot("senders", "step_time_s", labels, "Incast", "predicted_step_time_s")
        return Report(
            tables=lambda rows: [Table("incast", columns, rows)],
            point=lambda row: f"{row['senders']} senders",
            calibrated=to_nothing,
            findings=lambda rows, settings: [f"The slowest step took {max(r['step_time_s'] for r in rows):.3f} s."],
            figures=lambda recorded: [Drawn("incast", figure_of(plot, recorded.rows), recorded.rows)],
        )
