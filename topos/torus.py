"""The geometry of a rack: accelerators on a torus, servers as blocks of it. Pure data, no Mininet.

A chip has one port per direction of each dimension. In a dimension of two chips both directions lead to the same
neighbour, so there is one port; in a dimension of one chip there is none. A rack of 4 x 4 x 4 has 6 ports per chip,
the 2 x 2 prototype of MORPHLUX (arXiv 2508.03674, testbed) has 2.

Chips are numbered server by server, and within a server x fastest, then y, then z; servers are numbered in the same
way. So the server of chip ``c`` is ``c // chips_per_server``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

Extents = tuple[int, int, int]
Chips = tuple[int, ...]
Place = tuple[int, int, int]
"""(x, y, z) of a chip."""
Direction = tuple[int, int]
"""(dimension 0..2, +1 or -1)."""


@dataclass(frozen=True)
class Torus:
    """A torus of ``shape`` chips in servers of ``server`` chips; its extents must divide those of ``shape``."""

    shape: Extents
    server: Extents

    @property
    def chips(self) -> int:
        return prod(self.shape)

    @property
    def chips_per_server(self) -> int:
        return prod(self.server)

    @property
    def servers(self) -> int:
        return prod(self.blocks)

    @property
    def blocks(self) -> Extents:
        """Extents of the rack in servers, which form a torus too and are numbered as chips are."""
        x, y, z = (n // s for n, s in zip(self.shape, self.server, strict=True))
        return x, y, z

    @cached_property
    def directions(self) -> tuple[Direction, ...]:
        """Directions of the ports of a chip, by lane: +x, -x, +y, ... (only + in a dimension of two chips)."""
        directions: list[Direction] = []
        for dimension, extent in enumerate(self.shape):
            if extent > 1:
                directions.append((dimension, 1))
            if extent > 2:
                directions.append((dimension, -1))
        return tuple(directions)

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
        """Number of the chip at ``place``; coordinates wrap around the torus."""
        x, y, z = (c % n for c, n in zip(place, self.shape, strict=True))
        return self._number[x, y, z]

    def neighbour(self, chip: int, direction: Direction) -> int:
        place = list(self.places[chip])
        place[direction[0]] += direction[1]
        return self.chip(place)

    def opposite(self, direction: Direction) -> Direction:
        """The direction that leads back from the neighbour in ``direction``."""
        dimension, step = direction
        return (dimension, 1) if self.shape[dimension] == 2 else (dimension, -step)

    @cached_property
    def links(self) -> tuple[tuple[int, Direction, int, Direction], ...]:
        """Every link once, as (chip, its direction, neighbour, the neighbour's direction)."""
        links: list[tuple[int, Direction, int, Direction]] = []
        for chip in range(self.chips):
            for direction in self.directions:
                if direction[1] == 1:
                    there, back = self.neighbour(chip, direction), self.opposite(direction)
                    if back != direction or chip < there:
                        links.append((chip, direction, there, back))
        return tuple(links)

    def server_of(self, chip: int) -> int:
        return chip // self.chips_per_server


def hops(torus: Torus, a: int, b: int) -> int:
    """Links between two chips by the shortest way round each dimension."""
    apart = (abs(x - y) for x, y in zip(torus.places[a], torus.places[b], strict=True))
    return sum(min(d, n - d) for d, n in zip(apart, torus.shape, strict=True))


def free_servers(torus: Torus, rented: Sequence[int]) -> list[Chips]:
    """The chips of each server of which none is rented."""
    size = torus.chips_per_server
    servers = (tuple(range(first, first + size)) for first in range(0, torus.chips, size))
    return [chips for chips in servers if not set(chips).intersection(rented)]


def corner(torus: Torus, rented: Sequence[int]) -> Chips:
    """The free server with the highest number, in the corner across from the first."""
    return free_servers(torus, rented)[-1]


def nearest(torus: Torus, rented: Sequence[int]) -> Chips:
    """The free server whose chips have the fewest hops to those of the first server with a tenant."""
    first = [chip for chip in rented if torus.server_of(chip) == torus.server_of(rented[0])]
    return min(
        free_servers(torus, rented), key=lambda chips: sum(hops(torus, chip, job) for chip in chips for job in first)
    )


def spread(torus: Torus, rented: Sequence[int]) -> Chips:
    """The first chip of every free server."""
    return tuple(chips[0] for chips in free_servers(torus, rented))


PLACES: Mapping[str, Callable[[Torus, Sequence[int]], Chips]] = {"corner": corner, "nearest": nearest, "spread": spread}
"""Where spares stand inside a torus, by name: a function of the torus and the rented chips, first tenant first."""
