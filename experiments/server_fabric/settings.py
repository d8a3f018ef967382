"""Settings of the server-fabric experiment: MORPHLUX's prototype, 4 hosts of 2 ports on a 2 x 2 torus (2508.03674).

On the electrical torus one port is fixed to x and one to y, so a slice of two hosts uses one of its two ports; on the
photonic fabric both go to the slice's peer. Measured with iperf3, all-reduces, and epochs of a training job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from experiments.failover.settings import GRADIENT_BYTES, FailoverExperiment, Setting, TenantSection
from experiments.server_fabric.row import ELECTRICAL, PHOTONIC, SHAPES
from experiments.settings import ScaleSection, Settings, validated
from railyard.scale import MTU_BYTES
from topos.racks import MorphluxTopo

Study = Literal["iperf3", "epoch", "batch", "recovery"]
STUDIES: tuple[Study, ...] = ("iperf3", "epoch", "batch", "recovery")
TENANTS: Mapping[str, str] = {"2x1x1": "2x1@0,0", "1x2x1": "1x2@0,0", "fragmented": "1x1@0,0+1x1@1,1"}
"""The slice of each shape, in the notation of ``topos.racks``."""
PAPER_EPOCH_S: Mapping[int, tuple[float, float]] = {2: (144.18, 89.74), 4: (75.22, 46.36), 8: (40.25, 23.37)}
"""Batch size -> epoch in seconds on the electrical and on the photonic fabric, shape 2x1x1 (MORPHLUX, testbed)."""
EPOCH_STEPS: Mapping[int, int] = {2: 32, 4: 16, 8: 8}
"""Batch size -> steps of an epoch."""
BATCH_SHAPE = "2x1x1"
"""The shape of the paper's epochs by batch size."""
PORT_GBPS = 10.0
RECONFIGURATION_S = 0.010
"""Reconfiguration delay of the photonic fabric in real seconds, as in the failover experiment."""


def compute_s(batch: int) -> float:
    """Compute seconds of a step: the paper's electrical step less the gradients (39.55 Gbit) over a 10 Gb/s port.

    0.55 s at batch 2, 0.75 s at 4 and 1.08 s at 8.
    """
    return PAPER_EPOCH_S[batch][0] / EPOCH_STEPS[batch] - GRADIENT_BYTES * 8 / (PORT_GBPS * 1e9)


class ServerFabricScale(ScaleSection):
    """Scale of the prototype: 10 Gb/s ports become 100 Mb/s, and a real second a quarter of a second."""

    rate: float | Literal["auto"] = 1 / 100
    time: float = Field(default=0.25, gt=0, le=1000)


class ServerFabricExperiment(Settings):
    """Settings of the server-fabric experiment, in real units.

    ``studies``: ``iperf3`` and ``epoch`` (with its all-reduces) for every shape, ``batch`` for epochs of 2x1x1 at every
    batch size, ``recovery`` for the timeline after the kill of a host, with the paper's start-up stages.
    """

    experiment: Literal["server-fabric"] = "server-fabric"
    studies: tuple[Study, ...] = Field(default=STUDIES, min_length=1)
    shapes: tuple[str, ...] = Field(default=SHAPES, min_length=1)
    batch: Literal[2, 4, 8] = 8
    iperf_s: float = Field(default=3.0, ge=1, le=600)
    mtu: int = Field(default=MTU_BYTES, ge=576, le=9216)
    scale: ServerFabricScale = ServerFabricScale()

    @field_validator("shapes")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for shape in value:
            if shape not in TENANTS:
                raise ValueError(f"must be of {', '.join(TENANTS)}, not {shape}")
        return value

    @model_validator(mode="after")
    def _check(self) -> ServerFabricExperiment:
        if self.controller == "remote":
            raise ValueError("controller must be ryu or os-ken: the fabric needs policies of Railyard")
        return self

    def epochs(self) -> list[tuple[str, str, int]]:
        """(name, shape, batch size) of every epoch to measure; none twice."""
        shapes = self.shapes if {"iperf3", "epoch"}.intersection(self.studies) else ()
        found = [(shape, shape, int(self.batch)) for shape in dict.fromkeys(shapes)]
        if "batch" in self.studies:
            done = {(shape, batch) for _, shape, batch in found} if "epoch" in self.studies else set()
            batches = [batch for batch in EPOCH_STEPS if (BATCH_SHAPE, batch) not in done]
            found += [(f"{BATCH_SHAPE}, batch {batch}", BATCH_SHAPE, batch) for batch in batches]
        return found

    def setting(self, fabric: str, shape: str) -> Setting:
        """The prototype with one fabric and one tenant, whose slice has ``shape``."""
        topology = {"tenants": TENANTS[shape], "mtu": self.mtu}
        if fabric == PHOTONIC:
            topology["fabric"] = "photonic"
            return Setting(PHOTONIC, "MORPHLUX", topology, "morphlux", "one-shot", RECONFIGURATION_S, MorphluxTopo)
        topology["fabric"] = "electrical-torus"
        return Setting(ELECTRICAL, "E2 electrical", topology, "torus", "electrical", 0.0, MorphluxTopo)

    def check(self) -> None:
        """Raise ``ConfigError`` if the prototype cannot be built at this scale."""
        failover = self.as_failover(self.batch)
        for fabric in (ELECTRICAL, PHOTONIC):
            for shape in self.shapes:
                failover.plan(self.setting(fabric, shape), failover.scale.scale())

    def as_failover(self, batch: int, **more: Any) -> FailoverExperiment:
        """The failover experiment on the same prototype, for a training job; ``more`` are further keys of it."""
        values: dict[str, Any] = {
            "experiment": self.experiment,
            **self.model_dump(include=set(Settings.model_fields)),
            "mtu": self.mtu,
            "port_gbps": PORT_GBPS,
            "job": TenantSection(compute_s=compute_s(batch), checkpoint_every=4),
            "neighbour": None,
            "steps": EPOCH_STEPS[batch],
            "scale": {"rate": self.scale.rate, "time": self.scale.time},
        }
        return validated(FailoverExperiment, {**values, **more})
