"""Rings of neighbouring chips that visit all chips of a server before the next server. Pure geometry.

Each circuit of a hop between two servers occupies one fibre between them (MORPHLUX, arXiv 2508.03674), so a ring
should cross between servers as rarely as possible. A ring that visits each server once crosses as often as there are
servers, which is the minimum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from topos.torus import Torus

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
    found = [visits[-1][first]]
    for reached in reversed(visits[:-1]):
        found.append(reached[found[-1][0]])
    return found[::-1]


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
            found = _extended(neighbours, (*path, chip), goal, steps)
            if found:
                return found
    return ()


@lru_cache(maxsize=65536)
def _neighbours(torus: Torus, chip: int) -> Chips:
    return tuple(dict.fromkeys(torus.neighbour(chip, direction) for direction in torus.directions))
