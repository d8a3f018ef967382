"""Settings of the fabric-cost experiment: sizes of clusters, and the devices of their fabrics."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from experiments.fabric_cost.law import Cluster
from experiments.settings import Option, Settings


class FabricCostSettings(Settings):
    """Clusters of GPUs with one network port each, and the switches that may join them."""

    gpus: Annotated[tuple[Annotated[int, Field(ge=2, le=1_000_000)], ...], Option(metavar="N,...")] = Field(
        default=(256, 512, 1024, 2048, 4096, 8192, 16384, 32768),
        min_length=1,
        description="numbers of GPUs of a cluster",
    )
    gpus_per_server: int = Field(default=8, ge=1, le=1024, description="GPUs per server, joined by a scale-up switch")
    radix: int = Field(default=64, ge=4, le=4096, description="ports of a whole packet switch, an even number")
    ocs_ports: int = Field(default=576, ge=2, le=100_000, description="ports of a whole optical circuit switch")
    ports_per_gpu: int = Field(
        default=2, ge=1, le=16, description="ports of a GPU at its circuit switch; a ring needs 2"
    )
    optics_per_gpu: int = Field(default=1, ge=1, le=16, description="optics of a GPU on photonic rails")

    @field_validator("gpus")
    @classmethod
    def _ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _fits(self) -> FabricCostSettings:
        if self.radix % 2:
            raise ValueError(f"radix must be an even number, not {self.radix}")
        for gpus in self.gpus:
            if gpus % self.gpus_per_server:
                raise ValueError(f"gpus must be whole servers of {self.gpus_per_server} GPUs, not {gpus}")
        return self

    def clusters(self) -> list[Cluster]:
        """The clusters to compute, ascending."""
        return [Cluster(**{**self.model_dump(), "gpus": gpus}) for gpus in self.gpus]
