"""Settings of the allocation experiment: fragmentation of racks of accelerators, and the benefit of a photonic fabric.

Nothing is emulated: racks are filled with slices, some slices are released, and allocators get further requests.
Studies: ``fragmentation`` (the index I = 1 - S/T of every rack), ``requests`` (large slices that no longer fit),
``mixes`` (``requests`` for other mixes of slices), ``bandwidth`` (egress that slices cannot use), ``overprovision``
(chips lost to failures), ``spares`` (number of spares needed), ``solver`` (time of a fragmented request). Source:
MORPHLUX, arXiv 2508.03674.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from controllers.allocation.allocator import Allocator, check_torus
from experiments.settings import Section
from railyard.errors import ConfigError
from topos.torus import Extents, Torus

Study = Literal["fragmentation", "requests", "mixes", "bandwidth", "overprovision", "spares", "solver"]
STUDIES: tuple[Study, ...] = get_args(Study)

MIXES: dict[str, dict[int, Fraction]] = {
    "servers": {size: Fraction(16, size) for size in (4, 8, 16)},
    "small": {size: Fraction(16, size) for size in (1, 2, 4, 8, 16)},
    "small-even": dict.fromkeys((1, 2, 4, 8, 16), Fraction(1)),
    "half-rack": {size: Fraction(32, size) for size in (4, 8, 16, 32)},
    "rack-even": dict.fromkeys((1, 2, 4, 8, 16, 32, 64), Fraction(1)),
}
"""Mixes of slices: sizes in chips and their weights; the paper does not give its mix. In ``servers``, the default,
tenants rent whole servers, less than half a rack each (the TPU topologies 2x2x1, 2x2x2, 2x2x4), and each size has the
same share of the chips. ``small`` includes single chips, ``small-even`` has the same number of requests of each size;
``half-rack`` and ``rack-even`` include the size of the later request (32)."""


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


class AllocationExperiment(Section):
    """The allocation experiment: ``racks`` of ``torus`` chips in servers of ``server``, filled with ``mix``.

    Then shares ``freed`` of the chips are released and slices of ``request`` chips requested; ``clusters`` is the
    number of repetitions with other draws. ``fibres`` join two adjacent servers, ``failures`` are numbers of dead chips
    per rack, ``limit_ms`` bounds the search for one fragmented slice.
    """

    experiment: Literal["allocation"] = "allocation"
    studies: tuple[Study, ...] = Field(default=STUDIES, min_length=1)
    seed: int = Field(default=1, ge=0)
    racks: int = Field(default=64, ge=1, le=4096)
    clusters: int = Field(default=8, ge=1, le=1000)
    torus: Extents = (4, 4, 4)
    server: Extents = (2, 2, 1)
    fibres: int = Field(default=4, ge=1, le=64)
    mix: str = "servers"
    freed: tuple[float, ...] = Field(default=(0.2, 0.3), min_length=1)
    request: int = Field(default=32, ge=1)
    failures: tuple[int, ...] = Field(default=(1, 2, 3, 4), min_length=1)
    slo: float = Field(default=0.95, gt=0, lt=1)
    wrap: bool = True
    limit_ms: float = Field(default=500, gt=0, le=60_000)

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
        return tuple(dict.fromkeys(value))

    @field_validator("mix")
    @classmethod
    def _mix(cls, value: str) -> str:
        read_mix(value)
        return value

    @model_validator(mode="after")
    def _fits(self) -> AllocationExperiment:
        try:
            check_torus(self.geometry)
            self.rack(photonic=True)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        chips = self.geometry.chips
        if chips > 256:
            raise ValueError(f"a rack may have at most 256 chips, and this torus has {chips}")
        if self.request > chips:
            raise ValueError(f"a request of {self.request} chips cannot fit a rack of {chips}")
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


def read_mix(text: str) -> dict[int, Fraction]:
    """Parse a mix: a name, or ``4:4,8:2,16:1`` (chips: weight); ``ValueError`` for any other form."""
    if text in MIXES:
        return MIXES[text]
    try:
        pairs = [part.split(":") for part in text.split(",")]
        mix = {int(size): Fraction(weight) for size, weight in pairs}
    except (ValueError, ZeroDivisionError):
        mix = {}
    if not mix or min(mix) < 1 or min(mix.values()) <= 0:
        raise ValueError(f"must be one of {', '.join(MIXES)}, or chips and weights as in 4:4,8:2,16:1, not {text!r}")
    return mix
