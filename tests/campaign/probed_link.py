"""A job over delayed links with a train of probes beside it: the run in which probes and relays are disturbed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from experiments.collectives.trial import Trial, TrialFabric
from experiments.experiment import Experiment
from experiments.job_point import Fabric, JobPoint
from experiments.report import FAITHFUL, Column, Report, Table, to_nothing
from experiments.settings import PacketSettings, UnscaledSection
from measure.live.probes import INTERVAL_S, ProbeTrain
from measure.metrics.checks import Check, Verdict
from measure.results.row import MeasuredRow
from topos.kernel.packet_sockets import Tap
from topos.rails import RailTopo
from workloads.collectives.catalog import schedule

if TYPE_CHECKING:
    from experiments.runner import Runner

DELAY_MS = 1.0
STEPS = 30
COMPUTE_S = 0.05
PROBES_S = 1.5
_LOST_SHARE = 0.01
_TITLE = "all-reduce over delayed links"


class ProbedLinkSettings(PacketSettings):
    """The settings that all experiments with packets share; rates are those on the wire."""

    ack_timeout_s: float = 15.0
    scale: UnscaledSection = UnscaledSection()


@dataclass(kw_only=True)
class ProbedLinkRow(MeasuredRow):
    """The probes that arrived beside the job."""

    probes: Annotated[int, "probes that were sent"]
    probes_arrived: Annotated[int, "probes that arrived"]


class ProbedLink(Experiment[ProbedLinkSettings]):
    """A small job over delayed links, and probes over the same links while it runs."""

    name = "probed-link"
    Settings = ProbedLinkSettings
    rows = (ProbedLinkRow,)

    @cached_property
    def job(self) -> JobPoint:
        """All-reduces of two ranks, on a fabric whose links hold each packet for ``DELAY_MS``."""
        fabric = TrialFabric(ranks=2)
        trial = Trial(schedule("all_reduce", 2, "ring"), 4096, fabric, compute_s=COMPUTE_S)
        options = {**fabric.options(self.scale), "delay_ms": DELAY_MS}
        delayed = Fabric("delayed links", ("delayed links",), lambda: RailTopo(**options))
        return replace(trial.job_point(self.scale, STEPS, self.settings.seed), fabric=delayed, predicted_on=None)

    def check(self) -> None:
        """Build the job."""
        _ = self.job

    def run(self, runner: Runner) -> None:
        """Measure the one point, with probes from rank 0 to rank 1 in its first ``PROBES_S`` seconds."""
        session = runner.session(self.job.fabric)
        ports = [session.plan.rail_of(0).port(rank, 0) for rank in (0, 1)]
        taps = [Tap(fd, port.interface) for fd, port in zip(session.netns_fds(), ports, strict=False)]
        count = round(PROBES_S / INTERVAL_S)
        with ProbeTrain(taps[:1], [ports[1].mac], {"rank 1": taps[1]}, count=count) as train:
            measured = runner.measure(self.job, _TITLE)
            frames = train.frames()
        row = ProbedLinkRow(probes=count, probes_arrived=len(set(frames.received["rank 1"])))
        row.at(self.scale, self.settings.seed)
        row.count(measured.delivered)
        lost = 1 - row.probes_arrived / row.probes
        check = Check("probes", lost, _LOST_SHARE, "of probes", lost <= _LOST_SHARE, "probes were lost")
        row.judge(Verdict(measured.verdict.faithful and check.ok, (*measured.verdict.checks, check)))
        runner.add(row)

    @classmethod
    def report(cls) -> Report:
        """One table of one row."""
        columns = (Column("probes", "probes", "d"), Column("arrived", "probes_arrived", "d"), FAITHFUL)
        return Report(
            tables=lambda rows: [Table(_TITLE, columns, rows)], point=lambda row: _TITLE, calibrated=to_nothing
        )
