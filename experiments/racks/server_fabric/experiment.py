"""The server-fabric experiment: MORPHLUX's prototype, 4 hosts of 2 ports on a 2 x 2 torus, and slices of its rack.

On the electrical torus one port is fixed to x and one to y, so a slice of two hosts uses one of its two ports; on the
photonic fabric both go to the slice's peer. Measured with iperf3, all-reduces, and epochs of a training job. Slices of
a rack of 64 chips (``server_fabric.slices``) are measured with collectives. Source: arXiv 2508.03674.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from controllers.engine.jobs import Detection, Job
from experiments.faults import Faults, parse_kills
from experiments.job_point import JobPoint
from experiments.point_run import counted
from experiments.racks.forecast import operations_s, predicted_rows, windows
from experiments.racks.recovery import JobIncarnation, all_reduce_busbw, read_incarnations
from experiments.racks.row import FailoverRow, add_ratios, judge_together
from experiments.racks.run import RackResult, play_racks
from experiments.racks.server_fabric.row import ELECTRICAL, PHOTONIC, SHAPES, Measure, ServerFabricRow, Shape
from experiments.racks.server_fabric.slices import (
    DIMENSION,
    MOST_CHIPS,
    RACK,
    REQUESTS,
    SliceJob,
    measured_slices,
    ring_fields,
)
from experiments.racks.setting import (
    GRADIENT_BYTES,
    MORPHLUX_STAGES,
    PORT_GBPS,
    RackSettings,
    Setting,
    TenantSection,
)
from experiments.repeats import Piece, RepeatedExperiment
from experiments.settings import LEAST_SCALE, Option, ScaleSection
from measure.metrics.critical import OperationKey
from measure.metrics.fidelity import iperf_verdict
from measure.published import published
from measure.results.row import MeasuredRow, ResultRow
from railyard.errors import AgentError
from railyard.ownership import temporary_folder
from railyard.protocol import Hop
from railyard.scale import goodput_share
from railyard.timeline import Event, read_events
from topos.kernel.iperf import IperfResult
from topos.racks import MorphluxTopo, RackTopo
from workloads.schedule import CollectiveKind

if TYPE_CHECKING:
    from experiments.runner import Runner
    from experiments.session import Session

Study = Literal["iperf3", "epoch", "batch", "recovery", "slices"]
STUDIES: tuple[Study, ...] = get_args(Study)
TENANTS: Mapping[str, str] = {"2x1x1": "2x1@0,0", "1x2x1": "1x2@0,0", "fragmented": "1x1@0,0+1x1@1,1"}
"""The slice of each shape, in the notation of ``topos.racks``."""
ELECTRICAL_EPOCH_S = published("morphlux-epoch-electrical").values
PHOTONIC_EPOCH_S = published("morphlux-epoch-photonic").values
"""Batch size -> epoch of MORPHLUX's testbed in seconds, with slices of ``EPOCH_SHAPE``."""
EPOCH_GAINS = published("morphlux-epoch-batch")
"""Batch size -> electrical epoch / photonic epoch."""
EPOCH_STEPS: Mapping[int, int] = {batch: int(steps) for batch, steps in published("morphlux-steps").values.items()}
"""Batch size -> steps of an epoch."""
EPOCH_SHAPE: Shape = "2x1x1"
"""The shape of the published epochs by batch size, and of the recovery."""
SECOND_PATH = published("morphlux-all-reduce").values[EPOCH_SHAPE]
"""Bandwidth of an all-reduce over two ports / over one."""
RECONFIGURATION_S = 0.010
"""Reconfiguration delay of the photonic fabric in real seconds, as in the failover experiment."""
RECOVERY_STEPS = 6
TAKEN = "/2x1@0,1"
"""A tenant on the two hosts outside the slice."""
_FEWEST_STEPS = 2
"""Steps of the job on a fabric where only iperf3 is measured."""
_HEARTBEAT_S, _MISSES = 0.25, 3
SLICE_STEPS = 3
"""Steps of a job on a slice; the first is a warm-up."""
SLICE_BYTES = 2 * GRADIENT_BYTES, GRADIENT_BYTES / 2
"""Bytes of a collective on one ring, and on two at once: a round is 100 times as long as the latency of a message."""


def compute_s(batch: int) -> float:
    """Compute seconds of a step: the published electrical step less its gradients over a port.

    0.55 s at batch 2, 0.75 s at 4 and 1.08 s at 8.
    """
    return ELECTRICAL_EPOCH_S[batch] / EPOCH_STEPS[batch] - GRADIENT_BYTES * 8 / (PORT_GBPS * 1e9)


@dataclass(frozen=True)
class Epoch:
    """An epoch at a batch size, with what is measured of it; ``name`` is its shape in rows."""

    name: str
    shape: Shape
    batch: int
    measures: tuple[Measure, ...]

    def paper_s(self, fabric: str) -> float | None:
        """The published epoch time in seconds; None for a shape of which none is given."""
        epochs = PHOTONIC_EPOCH_S if fabric == PHOTONIC else ELECTRICAL_EPOCH_S
        return epochs[self.batch] if self.shape == EPOCH_SHAPE else None

    @property
    def published_ratio(self) -> float | None:
        """The published ratio of the epochs of the batch size; None for an epoch that is named by its shape."""
        return None if self.name == self.shape else EPOCH_GAINS.values[self.batch]


class ServerFabricScale(ScaleSection):
    """Scale of the prototype: 10 Gb/s ports become 100 Mb/s, and a real second a quarter of a second."""

    rate: Annotated[float | Literal["auto"], Option("--rate", "1/100")] = Field(
        default=1 / 100, description=ScaleSection.model_fields["rate"].description
    )
    time: Annotated[float, Option("--time", "X")] = Field(
        default=0.25, ge=LEAST_SCALE, le=1000, description=ScaleSection.model_fields["time"].description
    )


class ServerFabricSettings(RackSettings):
    """Settings of the server-fabric experiment, in real units."""

    studies: Annotated[tuple[Study, ...], Option("--study", "NAME,...")] = Field(
        default=STUDIES,
        min_length=1,
        description="studies to measure (iperf3 and epochs with all-reduces: every shape; batch: epochs of 2x1x1 at "
        "every batch size; recovery: after the kill of a host; slices: collectives on slices of a rack of 4x4x4)",
    )
    requests: Annotated[str, Option(metavar="LIST/LIST")] = Field(
        default=REQUESTS,
        max_length=1000,
        description="requests of slices of a rack (4x1x2, 8, 16*2x2x1; -3 gives the third back), the last is measured",
    )
    tensor_parallel: Annotated[int, Option("--tensor-parallel", "N")] = Field(
        default=4,
        ge=1,
        le=MOST_CHIPS,
        description="chips of a tensor-parallel ring (study slices; 1: not two rings at once)",
    )
    shapes: Annotated[tuple[Shape, ...], Option(metavar="NAME,...")] = Field(
        default=SHAPES, min_length=1, description="shapes of the slice"
    )
    batch: Annotated[
        Literal[2, 4, 8],
        BeforeValidator(lambda value: int(value) if str(value).isdigit() else value),
        Option(metavar="N"),
    ] = Field(default=8, description="batch size of the epochs")
    iperf_s: Annotated[float, Option("--iperf-seconds", "S")] = Field(
        default=3.0, ge=1, le=600, description="time of each iperf3 measurement, in seconds"
    )
    second_path: Annotated[float, Option(metavar="X")] = Field(
        default=2.0,
        ge=1,
        le=2,
        description=f"what a job gets of both ports of a host, in ports (morphlux-all-reduce: {SECOND_PATH:g})",
    )
    scale: ServerFabricScale = ServerFabricScale()

    def epochs(self) -> list[Epoch]:
        """Every epoch to measure, none twice; those of study ``batch`` last.

        iperf3 runs on the fabric of the epoch, unless a job gets less of its ports.
        """
        measures: dict[Study, tuple[Measure, ...]] = {"iperf3": ("iperf3",), "epoch": ("all-reduce", "epoch")}
        apart = [measures[study] for study in measures if study in self.studies]
        wanted = tuple(measure for some in apart for measure in some)
        together = apart if self.second_path < 2 else [wanted] * bool(wanted)
        found = [Epoch(shape, shape, self.batch, some) for shape in self.shapes for some in together]
        done = [(epoch.shape, epoch.batch) for epoch in found if "epoch" in wanted]
        for batch in EPOCH_STEPS if "batch" in self.studies else ():
            if (EPOCH_SHAPE, batch) not in done:
                found.append(Epoch(f"{EPOCH_SHAPE}, batch {batch}", EPOCH_SHAPE, batch, ("all-reduce", "epoch")))
        return found

    def setting(self, fabric: str, shape: Shape, *, others: str = "", iperf3: bool = False) -> Setting:
        """The prototype with one fabric and a tenant whose slice has ``shape``; ``others`` are more tenants.

        Where a job uses both ports of a host (which ``iperf3`` alone is not) they carry ``second_path`` ports in all.
        """
        ports = 2.0 if iperf3 or fabric == ELECTRICAL else self.second_path
        options = {"tenants": TENANTS[shape] + others}
        return self._setting(fabric, MorphluxTopo, options, port_gbps=PORT_GBPS * ports / 2)

    def _setting(self, fabric: str, kind: type[RackTopo], options: Mapping[str, Any], *, port_gbps: float) -> Setting:
        photonic = fabric == PHOTONIC
        return Setting(
            name=fabric,
            system="MORPHLUX" if photonic else "E2 electrical",
            policy="morphlux" if photonic else "torus",
            mode="one-shot" if photonic else "electrical",
            delay_s=RECONFIGURATION_S if photonic else 0.0,
            options={"fabric": "photonic" if photonic else "electrical-torus", "mtu": self.mtu, **options},
            scale=self.scale.scale(),
            kind=kind,
            port_gbps=port_gbps,
        )

    def slices(self) -> Iterator[tuple[SliceJob, Setting, JobPoint]]:
        """Every job on a slice of a rack, on both fabrics; the egress of a chip is that of a port of the prototype."""
        sizes = dict.fromkeys((1, self.tensor_parallel))
        slices = measured_slices(self.requests) if "slices" in self.studies else ()
        for size, rack_slice, fabric in product(sizes, slices, (ELECTRICAL, PHOTONIC)):
            rings, options = SliceJob(rack_slice, size), rack_slice.options(photonic=fabric == PHOTONIC)
            setting = self._setting(fabric, RackTopo, options, port_gbps=PORT_GBPS / len(RACK.directions))
            moved = SLICE_BYTES[size > 1]
            tenant = TenantSection(compute_s=0.1, gradient_bytes=moved, checkpoint_every=0, tensor_parallel=size)
            kind: CollectiveKind = "reduce_scatter" if size == 1 else "all_reduce"
            yield rings, setting, setting.job("A", rings.members, tenant, SLICE_STEPS, kind=kind)

    def job(self, setting: Setting, epoch: Epoch) -> JobPoint:
        """The job of an epoch on a fabric; only a few steps of it where iperf3 alone is measured."""
        steps = EPOCH_STEPS[epoch.batch] if "epoch" in epoch.measures else _FEWEST_STEPS
        return self._job(setting, epoch.batch, steps=steps, checkpoint_every=4)

    def recovery(self, fabric: str) -> tuple[Setting, JobPoint]:
        """The job that loses a host; start-up stages have MORPHLUX's times.

        On the electrical fabric the hosts outside the slice are taken, as no regular slice is left for a migration in
        MORPHLUX's baseline (section 6.2).
        """
        setting = self.setting(fabric, EPOCH_SHAPE, others="" if fabric == PHOTONIC else TAKEN)
        job = self._job(setting, self.batch, steps=RECOVERY_STEPS, checkpoint_every=2, stages=MORPHLUX_STAGES)
        return setting, job

    def _job(self, setting: Setting, batch: int, *, checkpoint_every: int, **more: Any) -> JobPoint:
        tenant = TenantSection(compute_s=compute_s(batch), checkpoint_every=checkpoint_every)
        detection = Detection(setting.scale.emulated_s(_HEARTBEAT_S), _MISSES)
        return setting.jobs([tenant], detection=detection, **more)[0]


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
        f"--second-path {SECOND_PATH:g}          # two ports give a job what they gave MORPHLUX's",
        "--study recovery --time 1   # in real time",
        "--study slices              # collectives on slices of a rack of 64 chips",
        "--predict                   # the model alone; no root",
    )

    def check(self) -> None:
        for fabric in (ELECTRICAL, PHOTONIC):
            for shape in self.settings.shapes:
                self.settings.acts(self.settings.setting(fabric, shape).plan)
        for _, setting, _ in self.settings.slices():
            self.settings.acts(setting.plan)

    def predict(self) -> Iterator[ResultRow]:
        """The model's values: line rate for iperf3, simulated all-reduces, epochs and recovery."""
        for epoch, setting in self._epochs():
            yield from self._rows(epoch, setting, self.settings.job(setting, epoch))
        for rings, setting, job in self.settings.slices():
            yield from self._slice_rows(rings, setting, job)
        if "recovery" in self.settings.studies:
            recovered = list[FailoverRow]()
            for setting, job in map(self.settings.recovery, FABRICS):
                recovered += predicted_rows(setting, [job], parse_kills(KILL, setting.plan), self.settings.seed)
            add_ratios(recovered)
            yield from recovered

    def points(self) -> int:
        """One row for each measure of an epoch or slice on each fabric, and one for the recovery on each."""
        recoveries = len(FABRICS) if "recovery" in self.settings.studies else 0
        slices = sum(len(rings.measures) for rings, _, _ in self.settings.slices())
        return sum(len(epoch.measures) for epoch, _ in self._epochs()) + slices + recoveries

    def pieces(self) -> list[Piece]:
        found = [
            Piece(f"{epoch.name}, {epoch.measures[0]}, {setting.name}", (epoch, setting))
            for epoch, setting in self._epochs()
        ]
        for rings, setting, job in self.settings.slices():
            found.append(Piece(f"{rings.slice.name}, {rings.measures[0]}, {setting.name}", (rings, setting, job)))
        if "recovery" in self.settings.studies:
            found += [Piece(f"recovery, {fabric}", (None, fabric)) for fabric in FABRICS]
        return found

    def measure(self, runner: Runner, piece: Piece) -> Sequence[MeasuredRow]:
        """Measure what is wanted of one epoch or slice on one fabric, or the recovery."""
        subject, on, *jobs = piece.of
        if subject is None:
            setting, job = self.settings.recovery(on)
            return play_racks(runner, setting, [job], Faults(parse_kills(KILL, setting.plan))).rows()
        if jobs:
            rows = self._measure_slice(runner, subject, on, jobs[0])
        else:
            rows = self._measure(runner, subject, on, self.settings.job(on, subject))
        for row in rows:
            runner.progress.result(f"{piece.name}, {row.measure}: {row.value:.2f} {row.unit}, {row.verdict}")
        return rows

    def relate(self, rows: Sequence[MeasuredRow]) -> None:
        add_ratios(rows)

    # ---- inside --------------------------------------------------------------------------------------------------

    def _epochs(self) -> Iterator[tuple[Epoch, Setting]]:
        for epoch in self.settings.epochs():
            for fabric in (ELECTRICAL, PHOTONIC):
                yield epoch, self.settings.setting(fabric, epoch.shape, iperf3=epoch.measures == ("iperf3",))

    def _rows(self, epoch: Epoch, setting: Setting, job: JobPoint) -> list[ServerFabricRow]:
        lanes, n = len(iperf_paths(setting, job)), len(job.members)
        model = windows(setting, [job], [])[0].jobs[job.name]
        (reduce_s,) = model.operations_s.values()
        predicted: dict[Measure, float] = {
            "iperf3": lanes * PORT_GBPS * goodput_share(self.settings.mtu),
            "all-reduce": GRADIENT_BYTES * 8e-9 * 2 * (n - 1) / n / setting.scale.real_s(reduce_s),
            "epoch": model.step_time_s * job.steps,
        }
        more: dict[Measure, dict[str, Any]] = {
            "iperf3": {"lanes": lanes},
            "all-reduce": {"batch": epoch.batch},
            "epoch": {
                "batch": epoch.batch,
                "steps": job.steps,
                "paper_s": epoch.paper_s(setting.name),
                "published_ratio": epoch.published_ratio,
            },
        }
        rows = []
        for measure in epoch.measures:
            row = ServerFabricRow(measure=measure, shape=epoch.name, fabric=setting.name, **more[measure])
            row.system, row.predicted = setting.system, predicted[measure]
            row.at(setting.scale, self.settings.seed)
            rows.append(row)
        return rows

    def _measure(self, runner: Runner, epoch: Epoch, setting: Setting, job: JobPoint) -> list[ServerFabricRow]:
        found: list[tuple[IperfResult, list[Event]]] = []

        def before(session: Session) -> None:
            if "iperf3" in epoch.measures:
                found.append(self._iperf(session, setting, job))
                runner.record.add_events(found[-1][1])

        result, rows = play_racks(runner, setting, [job], before=before), self._rows(epoch, setting, job)
        values = _epoch_values(epoch, job, result) if "epoch" in epoch.measures else {}
        verdicts = result.verdicts(job.name)
        for row in rows:
            row.point = result.number
            if row.measure == "iperf3":
                iperf, events = found[0]
                row.value = iperf.mbps / 1e3 / setting.scale.rate
                row.retransmits = sum(iperf.retransmits)
                row.judge(iperf_verdict(row.value / (row.predicted or 1.0), events, setting.plan))
                continue
            row.value = values[row.measure]
            row.checksum_ok = result.checksum_ok(result.jobs[0]) if row.measure == "epoch" else None
            row.count(result.delivered)
            judge_together(row, verdicts)
        return rows

    def _slice_rows(self, rings: SliceJob, setting: Setting, job: JobPoint) -> list[ServerFabricRow]:
        model, rows, shape = windows(setting, [job], [])[0].jobs[job.name].operations_s, [], rings.slice.name
        for measure in rings.measures:
            known = ring_fields(setting, job.program, measure)
            row = ServerFabricRow(measure=measure, shape=shape, fabric=setting.name, steps=job.steps, **known)
            row.predicted, row.system = setting.scale.real_s(_slowest(model, job, measure)), setting.system
            row.allocated = rings.slice.electrical if setting.name == ELECTRICAL else rings.slice.kind
            row.at(setting.scale, self.settings.seed)
            rows.append(row)
        return rows

    def _measure_slice(self, runner: Runner, rings: SliceJob, setting: Setting, job: JobPoint) -> list[ServerFabricRow]:
        result, rows = play_racks(runner, setting, [job]), self._slice_rows(rings, setting, job)
        incarnation = _uninterrupted(rings.slice.name, job, result)
        times, verdicts = operations_s(incarnation, incarnation.warm_steps()), result.verdicts(job.name)
        for row in rows:
            row.point, row.value = result.number, setting.scale.real_s(_slowest(times, job, row.measure))
            row.count(result.delivered)
            judge_together(row, verdicts)
        return rows

    def _iperf(self, session: Session, setting: Setting, job: JobPoint) -> tuple[IperfResult, list[Event]]:
        """Measure iperf3 over all lanes between the two members of the slice, once their circuits are up.

        Returns its result, and what was sampled and counted meanwhile.
        """
        session.register(Job(job.name, tuple(job.program.groups.values()), job.mode), job.policy)
        with temporary_folder() as folder:
            with counted(session, folder / "sampler.jsonl") as counters:
                result = session.iperf(iperf_paths(setting, job), self.settings.iperf_s, omit_s=1.0)
            session.call("finish", job=job.name)
            session.collect(folder)
            found = [event for log in sorted(folder.glob("*.jsonl")) for event in read_events(log)]
        events = sorted([*found, *counters.events], key=lambda event: event.t)
        return result, events


def _slowest(times: Mapping[OperationKey, float], job: JobPoint, measure: Measure) -> float:
    """The time of a collective in the slowest of the groups that run it."""
    groups = job.program.groups
    return max(seconds for (name, _), seconds in times.items() if groups[name].dimension == DIMENSION[measure])


def _uninterrupted(name: str, job: JobPoint, result: RackResult) -> JobIncarnation:
    """The one incarnation of a job that did all its steps; ``AgentError`` naming ``name`` if it was interrupted."""
    incarnation, *more_incarnations = read_incarnations(result.events, job.name)
    complete = len(incarnation.steps.complete)
    if more_incarnations or complete != job.steps:
        raise AgentError(f"{complete} of {job.steps} steps of {name} ended without an interruption")
    return incarnation


def _epoch_values(epoch: Epoch, job: JobPoint, result: RackResult) -> dict[str, float]:
    """The busbw of an epoch's all-reduces in Gb/s and its time in seconds; ``AgentError`` if it was interrupted."""
    scale, incarnation = result.setting.scale, _uninterrupted(f"the epoch {epoch.name}", job, result)
    steps, busbw_gb_s = incarnation.steps, all_reduce_busbw(incarnation, scale)
    assert busbw_gb_s is not None  # of two steps or more
    epoch_s = scale.real_s(steps.job(steps.complete[-1])[1] - steps.job(steps.complete[0])[0])
    return {"all-reduce": busbw_gb_s * 8, "epoch": epoch_s}


def iperf_paths(setting: Setting, job: JobPoint) -> list[Hop]:
    """A path for every port that a slice of two can use: its circuits, or on the torus the direct link."""
    (paths,) = setting.paths(tuple(job.program.groups.values())).values()
    return list(paths) or [Hop(job.members[0], 0, job.members[1], 0)]
