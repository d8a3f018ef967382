"""The positions of contiguous slices on a torus: every shape of a volume, in every orientation, at every origin.

Sets of chips are integers with one bit for each chip (bit ``c`` for chip ``c``), so that a test whether all are free is
one operation: the study of a cluster makes millions of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from topos.slices import Slice
from topos.torus import Extents, Place, Torus


@dataclass(frozen=True)
class ContiguousSlice:
    """A contiguous slice (it may lie across the end of the torus), and its chips as bits."""

    slice: Slice
    mask: int


def mask_of(chips: Iterable[int]) -> int:
    """The chips as bits of an integer (bit c for chip c)."""
    mask = 0
    for chip in chips:
        mask |= 1 << chip
    return mask


def chips_of(mask: int) -> tuple[int, ...]:
    return tuple(chip for chip in range(mask.bit_length()) if mask >> chip & 1)


def shapes(torus: Torus, chips: int, *, whole_servers: bool = True) -> tuple[Extents, ...]:
    """The extents of ``chips`` chips that fit, best first: most rings closed round the torus, then the most compact.

    With ``whole_servers`` a slice whose number of chips fills servers consists of whole servers (a server is one
    machine, of one tenant); any other number of chips may have any shape.
    """
    whole = whole_servers and chips % torus.chips_per_server == 0
    ranges = [range(1, extent + 1) for extent in torus.shape]
    found = [
        (x, y, z)
        for x, y, z in product(*ranges)
        if x * y * z == chips and not (whole and any(e % s for e, s in zip((x, y, z), torus.server, strict=True)))
    ]
    return tuple(sorted(found, key=lambda extents: (-closed_rings(torus, extents), max(extents), extents)))


def closed_rings(torus: Torus, extents: Extents) -> int:
    """The number of dimensions in which a slice spans the whole torus."""
    return sum(e == n > 1 for e, n in zip(extents, torus.shape, strict=True))


@lru_cache(maxsize=4096)
def boxes(torus: Torus, chips: int, *, wrap: bool = True, whole_servers: bool = True) -> tuple[ContiguousSlice, ...]:
    """Every contiguous slice of ``chips`` chips, best shape first, then by origin; each set of chips once.

    ``wrap``: whether a slice may lie across the edge of the rack, over the links that close the torus. Slices of whole
    servers begin at the origin of a server.
    """
    found: dict[int, ContiguousSlice] = {}
    for extents in shapes(torus, chips, whole_servers=whole_servers):
        for origin in _origins(torus, extents, wrap, whole_servers and chips % torus.chips_per_server == 0):
            candidate = Slice(extents, origin)
            mask = mask_of(candidate.chips(torus))
            found.setdefault(mask, ContiguousSlice(candidate, mask))
    return tuple(found.values())


def _origins(torus: Torus, extents: Extents, wrap: bool, whole: bool) -> Iterator[Place]:
    steps = torus.server if whole else (1, 1, 1)
    ends = [n if wrap else n - e + 1 for n, e in zip(torus.shape, extents, strict=True)]
    for z, y, x in product(*(range(0, ends[d], steps[d]) for d in (2, 1, 0))):
        yield x, y, z


def largest_box(torus: Torus, free: int, *, wrap: bool = True) -> int:
    """Chips of the largest contiguous slice among the chips ``free``; 0 if no chip is free."""
    most = min(free.bit_count(), prod(torus.shape))
    for chips in range(most, 0, -1):
        if any(box.mask & free == box.mask for box in boxes(torus, chips, wrap=wrap)):
            return chips
    return 0
