"""Runs the server-fabric experiment: every shape on both fabrics, each brought up anew, then the kill of a host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controllers.engine.jobs import Job
from experiments.failover.run import failover_rows, ring_paths, specs_of
from experiments.failover.settings import PAPER_STAGES, Setting
from experiments.racks.incarnations import incarnations_of, read_incarnations
from experiments.racks.job_spec import JobSpec
from experiments.racks.kill import parse_kills
from experiments.racks.recovery import all_reduce_bandwidth
from experiments.racks.row import with_ratios
from experiments.racks.run import RackResult, RackRun, Say
from experiments.server_fabric.row import ELECTRICAL, PHOTONIC, server_fabric_row
from experiments.server_fabric.settings import PAPER_EPOCH_S, PORT_GBPS, ServerFabricExperiment
from experiments.session import Session
from measure.live.iperf import IperfLane, IperfResult, iperf_verdict, measure_iperf
from measure.results.row import Row
from railyard.errors import AgentError
from railyard.protocol import Hop
from railyard.scale import goodput_share
from topos.kernel.namespaces import HostEnd
from topos.plan import FabricPlan, HostPort

RECOVERY_SHAPE, KILL = "2x1x1", "1@2.5"
_FEWEST_STEPS = 2
"""Steps of the job on a fabric where only iperf3 is measured."""


@dataclass(frozen=True)
class Epoch:
    """An epoch to measure on one fabric; ``name`` is its shape in the results."""

    name: str
    shape: str
    batch: int
    fabric: str

    @property
    def paper_s(self) -> float | None:
        """The paper's epoch time in seconds; None for a shape that the paper gives none for."""
        return PAPER_EPOCH_S[self.batch][self.fabric == PHOTONIC] if self.shape == "2x1x1" else None

    @property
    def paper_ratio(self) -> float:
        """The paper's ratio of electrical to photonic epoch time for the batch size."""
        electrical, photonic = PAPER_EPOCH_S[self.batch]
        return electrical / photonic


class ServerFabricRun:
    """One run of ``experiment`` into the results folder ``out``; ``say`` is called with progress lines."""

    def __init__(self, experiment: ServerFabricExperiment, out: Path, say: Say) -> None:
        self._experiment = experiment
        self._rack = RackRun(experiment.as_failover(experiment.batch), out, say)
        self.record = self._rack.record

    def run(self) -> None:
        """Measure all studies; an error that ends the run is raised after the rows so far are saved."""
        with self._rack:
            for name, shape, batch in self._experiment.epochs():
                for fabric in (ELECTRICAL, PHOTONIC):
                    self._measure(Epoch(name, shape, batch, fabric))
            if "recovery" in self._experiment.studies:
                self._recover()

    # ---- bandwidth and epochs ------------------------------------------------------------------------------------

    def _specs(self, setting: Setting, plan: FabricPlan, batch: int, **more: Any) -> list[JobSpec]:
        return specs_of(self._experiment.as_failover(batch, **more), setting, plan, self._rack.scale)

    def _measure(self, epoch: Epoch) -> None:
        rack, setting = self._rack, self._experiment.setting(epoch.fabric, epoch.shape)
        plan, studies = rack.experiment.plan(setting, rack.scale), self._experiment.studies
        for_iperf = "iperf3" in studies and epoch.name == epoch.shape
        whole = "epoch" in studies or epoch.name != epoch.shape
        specs = self._specs(setting, plan, epoch.batch, **({} if whole else {"steps": _FEWEST_STEPS}))
        found: list[IperfResult] = []

        def before(session: Session) -> None:
            if for_iperf:
                found.append(self._iperf(session, specs[0]))

        result = rack.play(setting, plan, specs, before=before)
        rows = [self._iperf_row(epoch, specs[0], result) for result in found]
        rows += list(self._epoch_rows(epoch, specs[0], result)) if whole else []
        rack.add_rows(rows)
        for row in rows:
            rack.say(f"  {epoch.name}, {row['measure']}: {row['value']:.2f} {row['unit']}")

    def _iperf(self, session: Session, spec: JobSpec) -> IperfResult:
        """Measure iperf3 over all lanes between the two members of the slice, once their circuits are up."""
        groups = tuple(spec.program(spec.members, session.plan.ranks).groups.values())
        session.register(Job(spec.name, groups, spec.setting.mode), spec.setting.policy)
        lanes = [_lane(session, path) for path in iperf_paths(spec, session.plan)]
        result = measure_iperf(lanes, self._experiment.iperf_s, omit_s=1.0)
        session.call("finish", job=spec.name)
        return result

    def _iperf_row(self, epoch: Epoch, spec: JobSpec, result: IperfResult) -> Row:
        lanes = len(result.lane_mbps)
        value, ideal = self._real_gbps(result.mbps), lanes * PORT_GBPS * goodput_share(self._experiment.mtu)
        return server_fabric_row(
            "iperf3",
            epoch.name,
            epoch.fabric,
            value,
            predicted=ideal,
            verdicts=[iperf_verdict(value / ideal)],
            system=spec.setting.system,
            lanes=lanes,
            retransmits=sum(result.retransmits),
            **self._scale_columns,
        )

    def _epoch_rows(self, epoch: Epoch, spec: JobSpec, result: RackResult) -> Iterator[Row]:
        scale = self._rack.scale
        incarnation, *more_incarnations = incarnations_of(read_incarnations(result.events), spec.name)
        bandwidth = all_reduce_bandwidth(incarnation, scale)
        if more_incarnations or len(incarnation.steps.complete) != spec.steps or bandwidth is None:
            raise AgentError(
                f"{len(incarnation.steps.complete)} of {spec.steps} steps of the epoch {epoch.name} "
                "ended without an interruption"
            )
        verdicts = [point.judge() for point in result.points]
        model = result.windows[0].jobs[spec.name]
        (reduce_s,) = model.operations_s.values()
        n = len(spec.members)
        first, last = incarnation.steps.complete[0], incarnation.steps.complete[-1]
        common = {"system": result.setting.system, "batch": epoch.batch, **self._scale_columns}
        if epoch.name == epoch.shape:
            yield server_fabric_row(
                "all-reduce",
                epoch.name,
                epoch.fabric,
                bandwidth.busbw_gb_s * 8,
                predicted=spec.tenant.gradient_bytes * 8e-9 * 2 * (n - 1) / n / scale.real_s(reduce_s),
                verdicts=verdicts,
                **common,
            )
        more: dict[str, Any] = {} if epoch.name in self._experiment.shapes else {"paper_ratio": epoch.paper_ratio}
        yield server_fabric_row(
            "epoch",
            epoch.name,
            epoch.fabric,
            scale.real_s(incarnation.steps.job(last)[1] - incarnation.steps.job(first)[0]),
            predicted=model.step_time_s * spec.steps,
            verdicts=verdicts,
            paper_s=epoch.paper_s,
            steps=spec.steps,
            checksum_ok=result.checksum_ok(result.jobs[0]),
            **common,
            **more,
        )

    # ---- recovery ------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Kill a host of the slice, which one of the other two replaces; start-up stages have the paper's times."""
        rack, setting = self._rack, self._experiment.setting(PHOTONIC, RECOVERY_SHAPE)
        plan = rack.experiment.plan(setting, rack.scale)
        tenant = rack.experiment.job.model_copy(update={"checkpoint_every": 2})
        more = {"stages": dict(PAPER_STAGES), "steps": 6, "job": tenant}
        specs = self._specs(setting, plan, self._experiment.batch, **more)
        result = rack.play(setting, plan, specs, parse_kills(KILL))
        rack.add_rows(failover_rows(rack.experiment, result), with_ratios)

    # ---- units ---------------------------------------------------------------------------------------------------

    def _real_gbps(self, mbps: float) -> float:
        return mbps / 1e3 / self._rack.scale.rate

    @property
    def _scale_columns(self) -> dict[str, float]:
        return {"rate_scale": self._rack.scale.rate, "time_scale": self._rack.scale.time}


def iperf_paths(spec: JobSpec, plan: FabricPlan) -> list[Hop]:
    """A path for every port that a slice of two can use: its circuits, or on the torus the direct link."""
    return ring_paths(spec.setting, plan, spec.members) or [Hop(spec.members[0], 0, spec.members[1], 0)]


def _lane(session: Session, path: Hop) -> IperfLane:
    rank, lane, peer, peer_lane = path
    return IperfLane(_end(session, rank, lane), _end(session, peer, peer_lane))


def _end(session: Session, rank: int, lane: int) -> HostEnd:
    port: HostPort = session.plan.rail_of(rank).port(rank, lane)
    return HostEnd(session.net.netns_fd(port.host), port.interface, port.ip)
