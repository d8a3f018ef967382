"""The geometry of a rack: accelerators on a torus, servers as blocks of it. Pure data, no Mininet.

A chip has one port in each direction of each dimension; along a dimension of two chips both directions are the same
neighbour and one port is enough, along a dimension of one there is none. A rack of 4 x 4 x 4 has 6 ports a chip, the
2 x 2 prototype of MORPHLUX (arXiv 2508.03674, testbed) has 2.

Chips are numbered server by server, and inside a server x fastest, then y, then z; servers likewise. So the server of
chip ``c`` is ``c // chips_per_server``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

Extents = tuple[int, int, int]
Place = tuple[int, int, int]
"""(x, y, z) of a chip."""
Direction = tuple[int, int]
"""(dimension 0..2, +1 or -1)."""


@dataclass(frozen=True)
class Torus:
    """``shape`` chips in blocks of ``server``; every extent of ``server`` must divide that of ``shape``."""

    shape: Extents
    server: Extents

    @property
    def chips(self) -> int:
        """Number of chips."""
        return prod(self.shape)

    @property
    def chips_per_server(self) -> int:
        """Chips of one server."""
        return prod(self.server)

    @property
    def blocks(self) -> Extents:
        """Extents of the rack in servers, which are a torus as well, numbered as chips are."""
        x, y, z = (n // s for n, s in zip(self.shape, self.server, strict=True))
        return x, y, z

    @cached_property
    def directions(self) -> tuple[Direction, ...]:
        """The ports of a chip, in order of their lanes: +x, -x, +y, ... (one for a dimension of two chips)."""
        found: list[Direction] = []
        for dimension, extent in enumerate(self.shape):
            if extent > 1:
                found.append((dimension, 1))
            if extent > 2:
                found.append((dimension, -1))
        return tuple(found)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The place of every chip, by number."""
        blocks = self.blocks
        return tuple(
            (bx * self.server[0] + x, by * self.server[1] + y, bz * self.server[2] + z)
            for bz, by, bx in product(range(blocks[2]), range(blocks[1]), range(blocks[0]))
            for z, y, x in product(range(self.server[2]), range(self.server[1]), range(self.server[0]))
        )

    @cached_property
    def _number(self) -> dict[Place, int]:
        return {place: number for number, place in enumerate(self.places)}

    def chip(self, place: Sequence[int]) -> int:
        """The number of the chip at ``place``, taken round the torus."""
        x, y, z = (c % n for c, n in zip(place, self.shape, strict=True))
        return self._number[x, y, z]

    def neighbour(self, chip: int, direction: Direction) -> int:
        """The next chip in ``direction``."""
        place = list(self.places[chip])
        place[direction[0]] += direction[1]
        return self.chip(place)

    def opposite(self, direction: Direction) -> Direction:
        """The direction in which the neighbour in ``direction`` sees this chip."""
        dimension, step = direction
        return (dimension, 1) if self.shape[dimension] == 2 else (dimension, -step)

    def links(self) -> Iterator[tuple[int, Direction, int, Direction]]:
        """Every link once: a chip, the direction it leaves by, the neighbour, and the direction there."""
        for chip in range(self.chips):
            for direction in self.directions:
                if direction[1] == 1:
                    there, back = self.neighbour(chip, direction), self.opposite(direction)
                    if back != direction or chip < there:
                        yield chip, direction, there, back

    def server_of(self, chip: int) -> int:
        """The server that ``chip`` is in."""
        return chip // self.chips_per_server
