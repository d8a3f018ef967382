"""Settings of the allocation experiment: fragmentation of racks of accelerators, and the benefit of a photonic fabric.

Nothing is emulated. Studies: ``fragmentation`` (the index I = 1 - S/T of every rack, with some slices released),
``protocols`` (MORPHLUX's own state of the cluster and its requests, by protocol), ``overprovision`` (chips lost to
failures). Source: MORPHLUX, arXiv 2508.03674.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from controllers.allocation.allocator import Allocator, check_torus
from experiments.settings import MOST_SEED, Option, Settings
from railyard.validation import shown
from topos.torus import Extents, Torus

Study = Literal["fragmentation", "protocols", "overprovision"]
STUDIES: tuple[Study, ...] = get_args(Study)
Protocol = Literal["per-rack", "cluster"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
"""Of whom requests are asked: of every rack, for its own free chips, or of the cluster, for those of all racks."""

MIXES: dict[str, dict[int, float]] = {
    "servers": {size: 16 / size for size in (4, 8, 16)},
    "small": {size: 16 / size for size in (1, 2, 4, 8, 16)},
    "small-even": dict.fromkeys((1, 2, 4, 8, 16), 1.0),
    "half-rack": {size: 32 / size for size in (4, 8, 16, 32)},
    "rack-even": dict.fromkeys((1, 2, 4, 8, 16, 32, 64), 1.0),
}
"""Mixes of slices: sizes in chips and their weights. ``half-rack``, the default, is the mix of the authors
(``morphlux-mix`` of measure/published.yaml): each size has the same share of the chips. ``servers`` is the same without
slices of half a rack (the TPU topologies 2x2x1, 2x2x2, 2x2x4), ``small`` includes single chips, ``small-even`` has the
same number of requests of each size, ``rack-even`` slices of up to a whole rack."""


def read_extents(value: Any) -> Any:
    """Parse ``4x4x4`` as three numbers, with 1 for missing ones; values other than strings are returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        parts = [int(part) for part in value.lower().split("x")]
    except ValueError:
        parts = []
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"write extents as 4x4x4, not {value!r}")
    return tuple((*parts, 1, 1)[:3])


class AllocationSettings(Settings):
    """Settings of the allocation experiment: racks filled with slices, then asked for more or hit by failures."""

    studies: Annotated[tuple[Study, ...], Option("--study")] = Field(
        default=STUDIES, min_length=1, description="studies to measure"
    )
    seed: int = Field(default=1, ge=0, le=MOST_SEED, description="seed of payloads and of all that is drawn")
    racks: int = Field(default=64, ge=1, le=4096, description="number of racks per cluster")
    clusters: int = Field(default=8, ge=1, le=1000, description="number of clusters, each with other draws")
    torus: Annotated[Extents, Option(metavar="XxYxZ")] = Field(
        default=(4, 4, 4), description="torus of chips of a rack"
    )
    server: Annotated[Extents, Option(metavar="XxYxZ")] = Field(
        default=(2, 2, 1), description="block of chips of a server"
    )
    fibres: int = Field(default=4, ge=1, le=64, description="fibres between two adjacent servers")
    mix: Annotated[str, Option(metavar="NAME|4:4,8:2")] = Field(
        default="half-rack",
        description=f"mix of slices that fill the racks: {', '.join(MIXES)}, or chips:weight pairs",
    )
    freed: Annotated[tuple[float, ...], Option(metavar="SHARE,...")] = Field(
        default=(0.2, 0.3), min_length=1, description="shares of the chips that are released"
    )
    failures: Annotated[tuple[int, ...], Option(metavar="N,...")] = Field(
        default=(1, 2, 3, 4), min_length=1, description="numbers of dead chips per rack"
    )
    wrap: bool = Field(default=True, description="slices across the edge of a rack")
    limit_ms: Annotated[float, Option("--limit", "MS")] = Field(
        default=500, gt=0, le=60_000, description="time limit of one fragmented request, in ms"
    )

    @field_validator("torus", "server", mode="before")
    @classmethod
    def _extents(cls, value: Any) -> Any:
        return read_extents(value)

    @field_validator("freed")
    @classmethod
    def _shares(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        for share in value:
            if not 0 <= share <= 1:
                raise ValueError(f"each share of the chips must be between 0 and 1, not {share:g}")
        return value

    @field_validator("mix")
    @classmethod
    def _mix(cls, value: str) -> str:
        read_mix(value)
        return value

    @model_validator(mode="after")
    def _fits(self) -> AllocationSettings:
        chips = self.geometry.chips
        if chips > 256:
            raise ValueError(f"a rack may have at most 256 chips, and this torus has {shown(chips)}")
        check_torus(self.geometry)
        self.rack(photonic=True)
        largest = max(read_mix(self.mix))
        if largest > chips:
            raise ValueError(f"mix {self.mix} has slices of {largest} chips, and a rack has {chips}")
        each = self.geometry.chips_per_server
        for count in self.failures:
            if not 1 <= count <= chips - each:
                raise ValueError(f"failures per rack must be from 1 to {chips - each}, not {count}")
        return self

    @property
    def geometry(self) -> Torus:
        """The torus geometry of a rack."""
        return Torus(self.torus, self.server)

    def rack(self, *, photonic: bool) -> Allocator:
        """The allocator of an empty rack, with or without a photonic fabric."""
        return Allocator(
            self.geometry, photonic, self.wrap, fibres=self.fibres, limit_s=self.limit_ms / 1e3, seed=self.seed
        )


def read_mix(text: str) -> dict[int, float]:
    """Parse a mix: a name, or ``4:4,8:2,16:1`` (chips: weight); ``ValueError`` for any other form."""
    if text in MIXES:
        return MIXES[text]
    try:
        pairs = [part.split(":") for part in text.split(",")]
        mix = {int(size): float(Fraction(weight)) for size, weight in pairs}
    except (ValueError, ZeroDivisionError, OverflowError):
        mix = {}
    if not mix or min(mix) < 1 or min(mix.values()) <= 0:
        raise ValueError(f"must be one of {', '.join(MIXES)}, or chips and weights as in 4:4,8:2,16:1, not {text!r}")
    return mix
