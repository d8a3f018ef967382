"""The slice allocator of a rack: contiguous slices if there is room, otherwise fragments joined by circuits.

Without a photonic fabric inside the servers a slice must be a block of the torus. With one (MORPHLUX, arXiv 2508.03674)
a slice without a free block is cut into parts for the servers that have free chips, and circuits over the fibres
between servers join the parts. The allocations of a rack are plain values; nothing here touches a switch.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Literal

from controllers.allocation.boxes import ContiguousSlice, boxes, chips_of, largest_box, mask_of
from controllers.allocation.placement import (
    LIMIT_S,
    SliceLayout,
    SlicePlacement,
    check_fibres,
    fibres_of,
    import_solver,
    layouts,
    place,
)
from controllers.circuits.fibres import FIBRES, Edge, FibrePlant, Route
from railyard.errors import ConfigError
from topos.slices import Slice
from topos.torus import Extents, Torus


@dataclass(frozen=True)
class Allocation:
    """An allocated slice: its ``chips`` in ring order and the ``fibres`` that it uses between servers.

    A contiguous slice is a block of the torus (``slice``), and its circuits are the links of that block. A fragmented
    one has ``paths``: pairs of a route of servers and the number of circuits along it; ``z`` is then the number of
    fibres used on the fullest edge of the rack.
    """

    name: str
    chips: tuple[int, ...]
    kind: Literal["contiguous", "fragmented"]
    fibres: Mapping[Edge, int]
    slice: Slice | None = None
    paths: tuple[tuple[Route, int], ...] = ()
    z: int | None = None

    @property
    def mask(self) -> int:
        return mask_of(self.chips)


@dataclass(frozen=True)
class Refusal:
    """The answer to a request that cannot be met, with the reason.

    ``chips``: too few are free. ``shape``: no block is free, and there is no photonic fabric. ``fibres``: the parts
    cannot be joined with the free fibres (proved). ``time``: no answer was found within the time limit.
    """

    reason: Literal["chips", "shape", "fibres", "time"]


@dataclass
class Allocator:
    """The chips of one rack and their allocations.

    ``wrap``: blocks may lie across the edge of the rack. Slices whose chips fill servers consist of whole ones.
    ``fibres`` join two adjacent servers; ``limit_s`` bounds the search for one request, in seconds.
    """

    torus: Torus
    photonic: bool
    wrap: bool = True
    fibres: int = FIBRES
    limit_s: float = LIMIT_S
    seed: int = 1
    free: int = field(init=False)
    used: Counter[Edge] = field(init=False, default_factory=Counter)
    allocations: dict[str, Allocation] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        check_torus(self.torus)
        self.plant = FibrePlant.of(self.torus)
        most = max(self.plant.links.values(), default=0)
        if self.photonic and most > self.fibres:
            raise ConfigError(
                f"{self.fibres} fibres between adjacent servers cannot carry the {most} links of the torus there; "
                f"use {most} or more, or smaller servers",
                key="fibres",
            )
        self.free = (1 << self.torus.chips) - 1

    def copy(self, *, photonic: bool | None = None) -> Allocator:
        """A copy of the rack with the same slices, for trials; with or without the photonic fabric."""
        twin = replace(self, photonic=self.photonic if photonic is None else photonic)
        twin.free, twin.used, twin.allocations = self.free, Counter(self.used), dict(self.allocations)
        return twin

    def allocate(self, request: int | Extents, name: str) -> Allocation | Refusal:
        """Allocate a number of chips, or a block of extents in any orientation, to ``name``.

        ``ConfigError`` for an invalid request: no chips, more than the rack has, extents that do not fit, a name in
        use.
        """
        if name in self.allocations:
            raise ConfigError(f"{name} already has a slice; release it first, or use another name", key="name")
        found = self.find(request, name)
        if isinstance(found, Allocation):
            self._take(found)
        return found

    def release(self, name: str) -> Allocation:
        """Release the slice of ``name`` and return it; ``ConfigError`` if there is none."""
        if name not in self.allocations:
            names = ", ".join(self.allocations) or "none"
            raise ConfigError(f"{name} has no slice in this rack; names with one: {names}", key="name")
        gone = self.allocations.pop(name)
        self.free |= gone.mask
        self.used.subtract(gone.fibres)
        self.used = +self.used
        return gone

    def reserve(self, chips: Iterable[int]) -> None:
        """Keep free chips, such as spares or dead ones, out of allocations.

        ``ConfigError`` for a chip that is not free.
        """
        mask = mask_of(chips)
        if mask & self.free != mask:
            taken = chips_of(mask & ~self.free)
            raise ConfigError(f"chip {taken[0]} is not free; use free chips", key="reserve")
        self.free &= ~mask

    def find(self, request: int | Extents, name: str = "") -> Allocation | Refusal:
        """The result that ``allocate`` would have, without allocating anything; errors are the same."""
        begin = time.monotonic()
        chips = self._chips(request)
        if self.free.bit_count() < chips:
            return Refusal("chips")
        box = self._box(request)
        if box is not None:
            ring, fibres = box.slice.ring(self.torus), self.plant.links_between(box.mask)
            return Allocation(name, ring, "contiguous", fibres, box.slice)
        if not self.photonic:
            return Refusal("shape")
        return self._fragmented(request, name, begin)

    def largest(self) -> int:
        """Chips of the largest slice that could be allocated now (of a request by number of chips)."""
        least = largest_box(self.torus, self.free, wrap=self.wrap)
        if not self.photonic:
            return least
        for chips in range(self.free.bit_count(), least, -1):
            if isinstance(self.find(chips), Allocation):
                return chips
        return least

    def fragmentation(self) -> float:
        """The index I = 1 - S/T: S chips in the largest slice, T chips free; 0 if no chip is free (MORPHLUX)."""
        free = self.free.bit_count()
        return 1 - self.largest() / free if free else 0.0

    def _take(self, found: Allocation) -> None:
        self.free &= ~found.mask
        self.used.update(found.fibres)
        if self.photonic:
            check_fibres(self.plant, self.used, self.fibres)
        self.allocations[found.name] = found

    def _chips(self, request: int | Extents) -> int:
        if isinstance(request, int):
            if not 1 <= request <= self.torus.chips:
                raise ConfigError(
                    f"a slice has from 1 to {self.torus.chips} chips in this rack, not {request}", key="chips"
                )
            return request
        if not _fits(request, self.torus.shape):
            shape = "x".join(map(str, self.torus.shape))
            raise ConfigError(
                f"{'x'.join(map(str, request))} does not fit into a rack of {shape} chips in any orientation",
                key="slice",
            )
        return request[0] * request[1] * request[2]

    def _box(self, request: int | Extents) -> ContiguousSlice | None:
        """The first block whose chips are free and whose links have free fibres, which circuits of others may use."""
        chips = self._chips(request)
        wanted = None if isinstance(request, int) else sorted(request)
        whole = wanted is None or _whole(request, self.torus)
        for box in boxes(self.torus, chips, wrap=self.wrap, whole_servers=whole):
            if box.mask & self.free != box.mask or wanted not in (None, sorted(box.slice.extents)):
                continue
            if not self.photonic or self._links_are_free(box.mask):
                return box
        return None

    def _links_are_free(self, mask: int) -> bool:
        links = self.plant.links_between(mask)
        return all(self.used[e] + count <= self.fibres for e, count in links.items())

    def _fragmented(self, request: int | Extents, name: str, begin: float) -> Allocation | Refusal:
        """The first layout that can be placed; each gets half of the remaining time, the last all of it."""
        before = time.monotonic()
        import_solver()
        begin += time.monotonic() - before  # the import, once per process, does not count as time of this request
        free = {server: len(self._free_chips(server)) for server in range(self.torus.servers)}
        extents = None if isinstance(request, int) else request
        choices = list(layouts(self.plant, self._chips(request), free, self.fibres, extents))
        reason: Literal["fibres", "time"] = "fibres"
        for layout in choices:
            last = layout is choices[-1]
            left = self.limit_s - (time.monotonic() - begin)
            limit_s = left if last else left / 2
            found = place(
                self.plant, layout, self.used, fibres=self.fibres, limit_s=limit_s, seed=self.seed, whole=last
            )
            if isinstance(found, SlicePlacement):
                return self._joined(layout, found, name)
            reason = "time" if found == "time" else "fibres"
        return Refusal(reason)

    def _free_chips(self, server: int) -> list[int]:
        each = self.torus.chips_per_server
        return [chip for chip in range(server * each, (server + 1) * each) if self.free >> chip & 1]

    def _joined(self, layout: SliceLayout, found: SlicePlacement, name: str) -> Allocation:
        parts = zip(layout.sizes, found.servers, strict=True)
        chips = tuple(chip for size, server in parts for chip in self._free_chips(server)[:size])
        paths = tuple((route, e.circuits) for route, e in zip(found.routes, layout.edges, strict=True))
        fibres = fibres_of(layout.edges, found.routes)
        return Allocation(name, chips, "fragmented", fibres, None, paths, found.z)


def check_torus(torus: Torus) -> None:
    """Raise ``ConfigError`` for a torus that is not divided into whole servers, or that has no chips."""
    for extent, block in zip(torus.shape, torus.server, strict=True):
        if extent < 1 or block < 1 or extent % block:
            shape, server = ("x".join(map(str, e)) for e in (torus.shape, torus.server))
            raise ConfigError(
                f"servers of {server} do not divide a rack of {shape} chips; each extent must be a multiple",
                key="server",
            )


def _whole(request: int | Extents, torus: Torus) -> bool:
    """Whether a block has an orientation in which it consists of whole servers."""
    return isinstance(request, int) or any(
        not any(e % s for e, s in zip(turned, torus.server, strict=True)) for turned in permutations(request)
    )


def _fits(extents: Extents, shape: Extents) -> bool:
    return all(e >= 1 for e in extents) and all(e <= n for e, n in zip(sorted(extents), sorted(shape), strict=True))
