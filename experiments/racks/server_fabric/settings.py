"""Settings of the server-fabric experiment: MORPHLUX's prototype, 4 hosts of 2 ports on a 2 x 2 torus (2508.03674).

On the electrical torus one port is fixed to x and one to y, so a slice of two hosts uses one of its two ports; on the
photonic fabric both go to the slice's peer. Measured with iperf3, all-reduces, and epochs of a training job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from controllers.engine.jobs import Detection
from experiments.racks.server_fabric.row import PHOTONIC, SHAPES, Measure, Shape
from experiments.racks.setting import (
    GRADIENT_BYTES,
    MORPHLUX_STAGES,
    PORT_GBPS,
    JobSpec,
    RackSettings,
    Setting,
    TenantSection,
    specs_of,
)
from experiments.settings import Option, ScaleSection
from measure.published import published
from topos.racks import MorphluxTopo

Study = Literal["iperf3", "epoch", "batch", "recovery"]
STUDIES: tuple[Study, ...] = ("iperf3", "epoch", "batch", "recovery")
TENANTS: Mapping[str, str] = {"2x1x1": "2x1@0,0", "1x2x1": "1x2@0,0", "fragmented": "1x1@0,0+1x1@1,1"}
"""The slice of each shape, in the notation of ``topos.racks``."""
ELECTRICAL_EPOCH_S = published("morphlux-epoch-electrical").values
PHOTONIC_EPOCH_S = published("morphlux-epoch-photonic").values
"""Batch size -> epoch of MORPHLUX's testbed in seconds, with slices of ``EPOCH_SHAPE``."""
EPOCH_GAINS = published("morphlux-epoch-batch")
"""Batch size -> electrical epoch / photonic epoch."""
SECOND_PATH = published("morphlux-all-reduce")
"""Bandwidth of an all-reduce over two ports / over one, by shape."""
EPOCH_STEPS: Mapping[int, int] = {batch: int(steps) for batch, steps in published("morphlux-steps").values.items()}
"""Batch size -> steps of an epoch."""
EPOCH_SHAPE: Shape = "2x1x1"
"""The shape of the published epochs by batch size, and of the recovery."""
RECONFIGURATION_S = 0.010
"""Reconfiguration delay of the photonic fabric in real seconds, as in the failover experiment."""
RECOVERY_STEPS = 6
TAKEN = "/2x1@0,1"
"""A tenant on the two hosts outside the slice."""
_FEWEST_STEPS = 2
"""Steps of the job on a fabric where only iperf3 is measured."""
_HEARTBEAT_S, _MISSES = 0.25, 3


def compute_s(batch: int) -> float:
    """Compute seconds of a step: the published electrical step less its gradients over a port.

    0.55 s at batch 2, 0.75 s at 4 and 1.08 s at 8.
    """
    return ELECTRICAL_EPOCH_S[batch] / EPOCH_STEPS[batch] - GRADIENT_BYTES * 8 / (PORT_GBPS * 1e9)


def epoch_gain(batch: int, second_path: float) -> float:
    """Electrical / photonic epoch if two ports reduce ``second_path`` times as fast as one, by arithmetic.

    Gradients take their time over one port at line rate; compute is that of ``compute_s`` on both fabrics.
    """
    reduce_s = GRADIENT_BYTES * 8 / (PORT_GBPS * 1e9)
    return (compute_s(batch) + reduce_s) / (compute_s(batch) + reduce_s / second_path)


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
        default=0.25, gt=0, le=1000, description=ScaleSection.model_fields["time"].description
    )


class ServerFabricSettings(RackSettings):
    """Settings of the server-fabric experiment, in real units."""

    studies: Annotated[tuple[Study, ...], Option("--study", "NAME,...")] = Field(
        default=STUDIES,
        min_length=1,
        description="studies to measure (iperf3 and epochs with all-reduces: every shape; batch: epochs of 2x1x1 at "
        "every batch size; recovery: after the kill of a host)",
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
        default=SECOND_PATH.values[EPOCH_SHAPE],
        ge=1,
        le=2,
        description="all-reduce bandwidth of two ports / of one, for the column of epochs by arithmetic",
    )
    scale: ServerFabricScale = ServerFabricScale()

    def epochs(self) -> list[Epoch]:
        """Every epoch to measure, none twice; those of study ``batch`` last."""
        measures: dict[Study, tuple[Measure, ...]] = {"iperf3": ("iperf3",), "epoch": ("all-reduce", "epoch")}
        wanted = tuple(measure for study in measures if study in self.studies for measure in measures[study])
        found = [Epoch(shape, shape, self.batch, wanted) for shape in self.shapes if wanted]
        done = [(epoch.shape, epoch.batch) for epoch in found if "epoch" in wanted]
        for batch in EPOCH_STEPS if "batch" in self.studies else ():
            if (EPOCH_SHAPE, batch) not in done:
                found.append(Epoch(f"{EPOCH_SHAPE}, batch {batch}", EPOCH_SHAPE, batch, ("all-reduce", "epoch")))
        return found

    def setting(self, fabric: str, shape: Shape, *, others: str = "") -> Setting:
        """The prototype with one fabric and a tenant whose slice has ``shape``; ``others`` are more tenants."""
        photonic = fabric == PHOTONIC
        kind = "photonic" if photonic else "electrical-torus"
        return Setting(
            name=fabric,
            system="MORPHLUX" if photonic else "E2 electrical",
            policy="morphlux" if photonic else "torus",
            mode="one-shot" if photonic else "electrical",
            delay_s=RECONFIGURATION_S if photonic else 0.0,
            options={"fabric": kind, "tenants": TENANTS[shape] + others, "mtu": self.mtu},
            scale=self.scale.scale(),
            kind=MorphluxTopo,
        )

    def spec(self, fabric: str, epoch: Epoch) -> JobSpec:
        """The job of an epoch on a fabric; only a few steps of it where iperf3 alone is measured."""
        steps = EPOCH_STEPS[epoch.batch] if "epoch" in epoch.measures else _FEWEST_STEPS
        return self._spec(self.setting(fabric, epoch.shape), epoch.batch, steps=steps, checkpoint_every=4)

    def recovery_spec(self, fabric: str) -> JobSpec:
        """The job that loses a host; start-up stages have MORPHLUX's times.

        On the electrical fabric the hosts outside the slice are taken, as no regular slice is left for a migration in
        MORPHLUX's baseline (section 6.2).
        """
        setting = self.setting(fabric, EPOCH_SHAPE, others="" if fabric == PHOTONIC else TAKEN)
        return self._spec(setting, self.batch, steps=RECOVERY_STEPS, checkpoint_every=2, stages=MORPHLUX_STAGES)

    def _spec(self, setting: Setting, batch: int, *, checkpoint_every: int, **more: Any) -> JobSpec:
        tenant = TenantSection(compute_s=compute_s(batch), checkpoint_every=checkpoint_every)
        detection = Detection(setting.scale.emulated_s(_HEARTBEAT_S), _MISSES)
        return specs_of(setting, [tenant], detection=detection, **more)[0]
