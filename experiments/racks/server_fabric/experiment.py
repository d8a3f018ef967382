"""The server-fabric experiment: every shape on both fabrics, each brought up anew, then the kill of a host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from controllers.engine.jobs import Job
from experiments.point_run import counted
from experiments.racks.forecast import predicted_rows, windows
from experiments.racks.incarnations import read_incarnations
from experiments.racks.kill import parse_kills
from experiments.racks.recovery import all_reduce_busbw
from experiments.racks.row import FailoverRow, add_ratios, judge_together
from experiments.racks.run import RackResult, play
from experiments.racks.server_fabric.row import ELECTRICAL, PHOTONIC, Measure, ServerFabricRow
from experiments.racks.server_fabric.settings import Epoch, ServerFabricSettings, epoch_gain
from experiments.racks.setting import PORT_GBPS, JobSpec
from experiments.repeats import Piece, RepeatedExperiment
from measure.metrics.fidelity import iperf_verdict
from measure.results.row import MeasuredRow, ResultRow
from railyard.errors import AgentError
from railyard.ownership import remove_file
from railyard.protocol import Hop
from railyard.scale import goodput_share
from railyard.timeline import Event, read_events
from topos.kernel.iperf import IperfLane, IperfResult, measure_iperf
from topos.kernel.namespaces import HostEnd

if TYPE_CHECKING:
    from experiments.report import Report
    from experiments.runner import Runner
    from experiments.session import Session

KILL = "1@2.5"
"""The kill of study ``recovery``; on the photonic fabric one of the hosts outside the slice replaces the dead one."""
FABRICS = (PHOTONIC, ELECTRICAL)


class ServerFabric(RepeatedExperiment[ServerFabricSettings]):
    """Gain of steerable server links on MORPHLUX's prototype: iperf3, all-reduce, epochs, recovery."""

    name = "server-fabric"
    Settings = ServerFabricSettings
    rows = (ServerFabricRow, FailoverRow)
    quick: ClassVar = {"studies": ["iperf3", "epoch"], "shapes": ["2x1x1"], "iperf_s": 2, "scale": {"time": 0.1}}
    examples = (
        "                            # all studies on both fabrics",
        "--quick                     # one shape, shorter",
        "--study batch               # epochs at batch sizes 2, 4, 8",
        "--study recovery --time 1   # in real time",
        "--predict                   # the model alone; no root",
    )

    def check(self) -> None:
        """Build every plan at this scale."""
        for fabric in (ELECTRICAL, PHOTONIC):
            for shape in self.settings.shapes:
                _ = self.settings.setting(fabric, shape).plan

    def predict(self) -> Iterator[ResultRow]:
        """The model's values: line rate for iperf3, simulated all-reduces, epochs and recovery."""
        for epoch, spec in self._epochs():
            yield from self._rows(epoch, spec)
        if "recovery" in self.settings.studies:
            specs = [self.settings.recovery_spec(fabric) for fabric in FABRICS]
            recovered = [row for spec in specs for row in predicted_rows([spec], parse_kills(KILL), self.settings.seed)]
            add_ratios(recovered)
            yield from recovered

    def points(self) -> int:
        """One row for each measure of an epoch on each fabric, and one for the recovery on each."""
        recoveries = len(FABRICS) if "recovery" in self.settings.studies else 0
        return sum(len(epoch.measures) for epoch, _ in self._epochs()) + recoveries

    def pieces(self) -> list[Piece]:
        """Every epoch and the recovery, on both fabrics."""
        found = [Piece(f"{epoch.name}, {spec.setting.name}", (epoch, spec)) for epoch, spec in self._epochs()]
        if "recovery" in self.settings.studies:
            found += [Piece(f"recovery, {fabric}", (None, self.settings.recovery_spec(fabric))) for fabric in FABRICS]
        return found

    def measure(self, runner: Runner, piece: Piece) -> Sequence[MeasuredRow]:
        """Measure what is wanted of one epoch on one fabric, or the recovery."""
        epoch, spec = piece.of
        if epoch is None:
            return play(runner, [spec], parse_kills(KILL)).rows()
        rows = self._measure(runner, epoch, spec)
        for row in rows:
            runner.progress.result(f"{piece.name}, {row.measure}: {row.value:.2f} {row.unit}, {row.verdict}")
        return rows

    def relate(self, rows: Sequence[MeasuredRow]) -> None:
        """Set the step times of the recoveries relative to the photonic fabric."""
        add_ratios(rows)

    @classmethod
    def report(cls) -> Report:
        """Table and figure by shape, and those of the recovery."""
        from experiments.racks.server_fabric.report import REPORT

        return REPORT

    # ---- inside --------------------------------------------------------------------------------------------------

    def _epochs(self) -> Iterator[tuple[Epoch, JobSpec]]:
        for epoch in self.settings.epochs():
            for fabric in (ELECTRICAL, PHOTONIC):
                yield epoch, self.settings.spec(fabric, epoch)

    def _rows(self, epoch: Epoch, spec: JobSpec) -> list[ServerFabricRow]:
        """The rows of an epoch on one fabric, with the values of the model."""
        setting, lanes, n = spec.setting, len(iperf_paths(spec)), len(spec.members)
        model = windows([spec], [])[0].jobs[spec.name]
        (reduce_s,) = model.operations_s.values()
        predicted: dict[Measure, float] = {
            "iperf3": lanes * PORT_GBPS * goodput_share(self.settings.mtu),
            "all-reduce": spec.tenant.gradient_bytes * 8e-9 * 2 * (n - 1) / n / setting.scale.real_s(reduce_s),
            "epoch": model.step_time_s * spec.steps,
        }
        more: dict[Measure, dict[str, Any]] = {
            "iperf3": {"lanes": lanes},
            "all-reduce": {"batch": epoch.batch},
            "epoch": {
                "batch": epoch.batch,
                "steps": spec.steps,
                "paper_s": epoch.paper_s(setting.name),
                "published_ratio": epoch.published_ratio,
                "second_path": self.settings.second_path,
                "second_path_ratio": epoch_gain(epoch.batch, self.settings.second_path),
            },
        }
        rows = []
        for measure in epoch.measures:
            row = ServerFabricRow(measure=measure, shape=epoch.name, fabric=setting.name, **more[measure])
            row.system, row.predicted = setting.system, predicted[measure]
            row.at(setting.scale, self.settings.seed)
            rows.append(row)
        return rows

    def _measure(self, runner: Runner, epoch: Epoch, spec: JobSpec) -> list[ServerFabricRow]:
        found: list[tuple[IperfResult, list[Event]]] = []

        def before(session: Session) -> None:
            if "iperf3" in epoch.measures:
                found.append(self._iperf(session, spec))
                runner.record.add_events(found[-1][1])

        result, rows = play(runner, [spec], before=before), self._rows(epoch, spec)
        values = _epoch_values(epoch, spec, result) if "epoch" in epoch.measures else {}
        verdicts = result.verdicts(spec.name)
        for row in rows:
            row.point = result.number
            if row.measure == "iperf3":
                iperf, events = found[0]
                row.value = iperf.mbps / 1e3 / spec.setting.scale.rate
                row.retransmits = sum(iperf.retransmits)
                row.judge(iperf_verdict(row.value / (row.predicted or 1.0), events, spec.setting.plan))
                continue
            row.value = values[row.measure]
            row.checksum_ok = result.checksum_ok(result.jobs[0]) if row.measure == "epoch" else None
            row.count(result.delivered)
            judge_together(row, verdicts)
        return rows

    def _iperf(self, session: Session, spec: JobSpec) -> tuple[IperfResult, list[Event]]:
        """Measure iperf3 over all lanes between the two members of the slice, once their circuits are up.

        Returns its result, and what was sampled and counted meanwhile.
        """
        groups = tuple(spec.program().groups.values())
        session.register(Job(spec.name, groups, spec.setting.mode), spec.setting.policy)
        lanes = [_lane(session, path) for path in iperf_paths(spec)]
        log = session.data / "iperf3.jsonl"
        with counted(session, log) as counters:
            result = measure_iperf(lanes, self.settings.iperf_s, omit_s=1.0)
        session.call("finish", job=spec.name)
        events = sorted([*read_events(log), *counters.events], key=lambda event: event.t)
        remove_file(log)
        return result, events


def _epoch_values(epoch: Epoch, spec: JobSpec, result: RackResult) -> dict[str, float]:
    """The busbw of an epoch's all-reduces in Gb/s and its time in seconds; ``AgentError`` if it was interrupted."""
    scale = spec.setting.scale
    incarnation, *more_incarnations = read_incarnations(result.events, spec.name)
    steps, busbw_gb_s = incarnation.steps, all_reduce_busbw(incarnation, scale)
    if more_incarnations or len(steps.complete) != spec.steps or busbw_gb_s is None:
        raise AgentError(
            f"{len(steps.complete)} of {spec.steps} steps of the epoch {epoch.name} ended without an interruption"
        )
    epoch_s = scale.real_s(steps.job(steps.complete[-1])[1] - steps.job(steps.complete[0])[0])
    return {"all-reduce": busbw_gb_s * 8, "epoch": epoch_s}


def iperf_paths(spec: JobSpec) -> list[Hop]:
    """A path for every port that a slice of two can use: its circuits, or on the torus the direct link."""
    return spec.setting.ring_paths(spec.members) or [Hop(spec.members[0], 0, spec.members[1], 0)]


def _lane(session: Session, path: Hop) -> IperfLane:
    rank, lane, peer, peer_lane = path
    return IperfLane(_end(session, rank, lane), _end(session, peer, peer_lane))


def _end(session: Session, rank: int, lane: int) -> HostEnd:
    port = session.plan.rail_of(rank).port(rank, lane)
    return HostEnd(session.net.netns_fd(port.host), port.interface, port.ip)
