"""A slice of a torus: a block of chips, and the order in which a ring visits them. Pure geometry.

In the best ring each chip is a neighbour of the next, the last one of the first: then every hop is one link, and no
link carries two hops. Such a ring exists for a block with an even number of chips that is not a line, and for any
block that spans a whole dimension of the torus. Among such rings, one that visits all chips of a server before the
next server needs the fewest fibres: each circuit of a hop between two servers occupies one fibre between them
(MORPHLUX, arXiv 2508.03674), and a ring that visits each server once crosses as often as there are servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod

from railyard.errors import ConfigError
from topos.torus import Extents, Place, Torus

LARGEST_SERVER = 16
"""Largest number of chips of a server for which a path through it is searched."""
MOST_STEPS = 2000
"""Steps after which the search for a path through a server gives up; for 16 chips, one is found within 400."""

Chips = tuple[int, ...]


def crossings(torus: Torus, ring: Sequence[int]) -> int:
    """Number of hops of ``ring`` between two servers, the hop back to the start included."""
    servers = [torus.server_of(chip) for chip in ring]
    return sum(a != b for a, b in pairwise([*servers, *servers[:1]]))


def server_by_server(torus: Torus, chips: Sequence[int], order: Sequence[int]) -> Chips | None:
    """A ring of all ``chips`` that visits the servers in ``order``, each once, and whose hops are single links.

    None if no such ring is found.
    """
    chips_of = {server: tuple(sorted(c for c in chips if torus.server_of(c) == server)) for server in order}
    if len(order) < 2 or max(map(len, chips_of.values())) > LARGEST_SERVER:
        return None
    for first in chips_of[order[0]]:
        steps = _visits(torus, chips_of, order, first)
        if steps is not None:
            return tuple(chip for a, b in steps for chip in _path(torus, chips_of[torus.server_of(a)], a, b))
    return None


def _visits(
    torus: Torus, chips_of: Mapping[int, Chips], order: Sequence[int], first: int
) -> list[tuple[int, int]] | None:
    """(first chip, last chip) in each server of a ring that starts and ends at ``first``; None if there is none."""
    visits: list[dict[int, tuple[int, int]]] = []
    """For every server but the first: each possible first chip, and the previous server's visit that leads to it."""
    entries = [first]
    for here, there in zip(order, [*order[1:], order[0]], strict=True):
        reached: dict[int, tuple[int, int]] = {}
        for a in entries:
            for b in chips_of[here]:
                if _path(torus, chips_of[here], a, b):
                    reached.update(
                        (c, (a, b)) for c in _neighbours(torus, b) if c in chips_of[there] and c not in reached
                    )
        visits.append(reached)
        entries = sorted(reached)
    if first not in visits[-1]:
        return None
    ends = [visits[-1][first]]
    for reached in reversed(visits[:-1]):
        ends.append(reached[ends[-1][0]])
    return ends[::-1]


def _path(torus: Torus, chips: Chips, a: int, b: int) -> Chips:
    """A path from ``a`` to ``b`` by single links through all ``chips`` of one server; empty if none is found."""
    first = torus.server_of(a) * torus.chips_per_server
    path = _path_in_first(torus, tuple(chip - first for chip in chips), a - first, b - first)
    return tuple(first + chip for chip in path)


@lru_cache(maxsize=4096)
def _path_in_first(torus: Torus, chips: Chips, a: int, b: int) -> Chips:
    """As ``_path``, for the first server, whose result is cached for all servers."""
    if len(chips) == 1:
        return chips
    neighbours = {c: [d for d in _neighbours(torus, c) if d in chips] for c in chips}
    steps = iter(range(MOST_STEPS))
    return () if a == b else _extended(neighbours, (a,), b, steps)


def _extended(neighbours: Mapping[int, Sequence[int]], path: Chips, goal: int, steps: Iterator[int]) -> Chips:
    """Extend ``path`` to ``goal`` through all remaining chips, trying those with the fewest free neighbours first."""
    if len(path) == len(neighbours):
        return path
    if next(steps, None) is None:
        return ()
    free = {c: sum(d not in path for d in neighbours[c]) for c in neighbours[path[-1]] if c not in path}
    for chip in sorted(free, key=lambda c: (free[c], c)):
        if chip != goal or len(path) == len(neighbours) - 1:
            way = _extended(neighbours, (*path, chip), goal, steps)
            if way:
                return way
    return ()


@lru_cache(maxsize=65536)
def _neighbours(torus: Torus, chip: int) -> Chips:
    return tuple(dict.fromkeys(torus.neighbour(chip, direction) for direction in torus.directions))


Places = list[tuple[int, ...]]


@dataclass(frozen=True)
class Slice:
    """A block of ``extents`` chips whose lowest corner is ``origin``."""

    extents: Extents
    origin: Place = (0, 0, 0)

    @staticmethod
    def parse(text: str, key: str = "slice") -> Slice:
        """Parse a slice: ``4x1@0,0``, ``2x2x1@0,0,3`` or, for ``mn``, which splits at commas, ``4x1@0:0``.

        A missing extent is 1, a missing coordinate 0. Raises ``ConfigError`` naming ``key``.
        """
        size, at, corner = text.strip().partition("@")
        try:
            extents = [int(part) for part in size.split("x")]
            origin = [int(part) for part in corner.replace(":", ",").split(",")]
        except ValueError:
            extents = origin = []
        if not (at and 1 <= len(extents) <= 3 and len(origin) == len(extents) and min(extents) >= 1):
            raise ConfigError(f"write a slice as extents@place, as in 4x1@0,0 (for mn 4x1@0:0), not {text}", key=key)
        a, b, c = (*extents, 1, 1)[:3]
        x, y, z = (*origin, 0, 0)[:3]
        return Slice((a, b, c), (x, y, z))

    def __str__(self) -> str:
        size = 3 if self.extents[2] > 1 or self.origin[2] else 2
        return f"{'x'.join(map(str, self.extents[:size]))}@{','.join(map(str, self.origin[:size]))}"

    @property
    def size(self) -> int:
        return prod(self.extents)

    def fits(self, shape: Extents) -> bool:
        """Whether the slice lies inside a torus of ``shape`` without wrapping around."""
        return all(o >= 0 and o + e <= n for o, e, n in zip(self.origin, self.extents, shape, strict=True))

    def chips(self, torus: Torus) -> tuple[int, ...]:
        """Numbers of the chips of the slice, ascending; places beyond the end of the torus wrap around."""
        return tuple(sorted(self._chips(torus, _boustrophedon(self.extents))))

    @lru_cache(maxsize=4096)  # noqa: B019 - a slice is a value
    def ring(self, torus: Torus) -> tuple[int, ...]:
        """Numbers of the chips of the slice in ring order.

        Where a ring of neighbours exists, the result is one. Otherwise only the last hop, back to the first chip, is
        longer than one link: two links in a block of odd extents, and the whole line back in a line, over the links'
        other direction. Among several rings, one that enters each server once is preferred, else the one found with
        the fewest crossings between servers.
        """
        wraps = [e == n and n > 2 for e, n in zip(self.extents, torus.shape, strict=True)]
        servers = {torus.server_of(chip) for chip in self._chips(torus, _boustrophedon(self.extents))}
        best: tuple[int, ...] = ()
        for places in _rings(self.extents, wraps):
            ring = self._chips(torus, places)
            if not best or crossings(torus, ring) < crossings(torus, best):
                best = ring
            if crossings(torus, best) <= len(servers):
                return best
        orders = self._orders_of_servers(torus, wraps) if self._wide > 1 else ()
        return next(filter(None, (server_by_server(torus, best, order) for order in orders)), best)

    @property
    def _wide(self) -> int:
        """Number of dimensions in which the slice is wider than one chip; 1 for a line."""
        return sum(extent > 1 for extent in self.extents)

    def _orders_of_servers(self, torus: Torus, wraps: Sequence[bool]) -> Iterator[tuple[int, ...]]:
        """Ring orders of the servers that hold chips of the slice, a block in the torus of servers."""
        rows = []
        for o, e, n, s in zip(self.origin, self.extents, torus.shape, torus.server, strict=True):
            rows.append(list(dict.fromkeys((o + i) % n // s * s for i in range(e))))
        for blocks in _rings((len(rows[0]), len(rows[1]), len(rows[2])), wraps):
            corners = ([row[at] for row, at in zip(rows, block, strict=True)] for block in blocks)
            yield tuple(torus.server_of(torus.chip(corner)) for corner in corners)

    def _chips(self, torus: Torus, places: Places) -> tuple[int, ...]:
        return tuple(torus.chip([o + p for o, p in zip(self.origin, place, strict=True)]) for place in places)


def _boustrophedon(extents: Sequence[int]) -> Places:
    """All places of a block in boustrophedon order: neighbours follow one another, the first dimension fastest."""
    places: Places = [()]
    for extent in extents:
        places = [(*place, value) for value in range(extent) for place in places[:: -1 if value % 2 else 1]]
    return places


def _rings(extents: Extents, wraps: Sequence[bool]) -> Iterator[Places]:
    """Several orders in which a ring can visit the places of a block.

    The block is laid out as a rectangle: one dimension across, and a boustrophedon through the other two down. The ring
    goes down in column 0 and comes back row by row. The last place is a neighbour of the first if the number of rows is
    even, if there are only two columns, or if the dimension across wraps around.
    """
    across = [dimension for dimension in (2, 1, 0) if extents[dimension] > 1] or [0]
    size = prod(extents)
    closing = [d for d in across if size // extents[d] % 2 == 0 or extents[d] == 2 or wraps[d]]
    for dimension in closing or across:
        columns, rest = extents[dimension], [1 if d == dimension else extents[d] for d in range(3)]
        for down in (_boustrophedon(rest), [place[::-1] for place in _boustrophedon(rest[::-1])]):
            cells = _comb(columns, len(down)) if closing or len(down) == 1 else _odd_comb(columns, len(down))
            yield [(*down[row][:dimension], column, *down[row][dimension + 1 :]) for column, row in cells]


def _comb(columns: int, rows: int) -> list[tuple[int, int]]:
    """(column, row) places: down in column 0, then back row by row, alternating direction."""
    cells = [(0, row) for row in range(rows)]
    for step, row in enumerate(reversed(range(rows))):
        cells += [(column, row) for column in range(1, columns)][:: -1 if step % 2 else 1]
    return cells


def _odd_comb(columns: int, rows: int) -> list[tuple[int, int]]:
    """(column, row) places for odd numbers of columns and rows: as ``_comb``, but the last two rows by columns.

    The walk ends in (1, 1), two links from the start. A closed walk is impossible: coloured as a chessboard, it would
    visit as many black places as white ones, and their total is odd.
    """
    cells = _comb(columns, rows)[: -2 * (columns - 1)]
    for step, column in enumerate(reversed(range(1, columns))):
        cells += [(column, 1), (column, 0)][:: -1 if step % 2 else 1]
    return cells
