"""A ring of neighbours that goes through all chips of a server before the next. Pure geometry.

Every hop between two servers takes a fibre of theirs for each of its circuits (MORPHLUX, arXiv 2508.03674), so the
ring that crosses from server to server least is the one that others leave the most room for: with one visit to each
server it crosses as often as there are servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from topos.torus import Torus

LARGEST_SERVER = 16
"""Chips of a server up to which the ways through it are looked for."""
MOST_STEPS = 2000
"""Steps after which the search for one way through a server gives up; where there is one, 16 chips take 400 at most."""

Chips = tuple[int, ...]


def crossings(torus: Torus, ring: Sequence[int]) -> int:
    """Hops of ``ring`` that lead from one server to another, the one back to the start included."""
    servers = [torus.server_of(chip) for chip in ring]
    return sum(a != b for a, b in pairwise([*servers, *servers[:1]]))


def server_by_server(torus: Torus, chips: Sequence[int], order: Sequence[int]) -> Chips | None:
    """All ``chips``, those of one server after the other, in the ``order`` of servers; every hop is one link.

    None if there is no such ring.
    """
    rooms = {server: tuple(sorted(c for c in chips if torus.server_of(c) == server)) for server in order}
    if len(order) < 2 or max(map(len, rooms.values())) > LARGEST_SERVER:
        return None
    for first in rooms[order[0]]:
        steps = _visits(torus, rooms, order, first)
        if steps is not None:
            return tuple(chip for a, b in steps for chip in _way(torus, rooms[torus.server_of(a)], a, b))
    return None


def _visits(torus: Torus, rooms: Mapping[int, Chips], order: Sequence[int], first: int) -> list[tuple[int, int]] | None:
    """Where each server is entered and left, if the first is entered at ``first`` and the last leads back to it."""
    came: list[dict[int, tuple[int, int]]] = []
    """For every server but the first: where it can be entered, and the visit before that leads there."""
    entries = [first]
    for here, there in zip(order, [*order[1:], order[0]], strict=True):
        reached: dict[int, tuple[int, int]] = {}
        for a in entries:
            for b in rooms[here]:
                if _way(torus, rooms[here], a, b):
                    reached.update((c, (a, b)) for c in _neighbours(torus, b) if c in rooms[there] and c not in reached)
        came.append(reached)
        entries = sorted(reached)
    if first not in came[-1]:
        return None
    found = [came[-1][first]]
    for reached in reversed(came[:-1]):
        found.append(reached[found[-1][0]])
    return found[::-1]


def _way(torus: Torus, room: Chips, a: int, b: int) -> Chips:
    """A way from ``a`` to ``b`` by single links through every chip of ``room``, all of one server; empty if none."""
    first = torus.server_of(a) * torus.chips_per_server
    way = _way_inside(torus, tuple(chip - first for chip in room), a - first, b - first)
    return tuple(first + chip for chip in way)


@lru_cache(maxsize=4096)
def _way_inside(torus: Torus, room: Chips, a: int, b: int) -> Chips:
    """The same in the first server; all servers are alike."""
    if len(room) == 1:
        return room
    beside = {c: [d for d in _neighbours(torus, c) if d in room] for c in room}
    steps = iter(range(MOST_STEPS))
    return () if a == b else _walked(beside, (a,), b, steps)


def _walked(beside: Mapping[int, Sequence[int]], way: Chips, goal: int, steps: Iterator[int]) -> Chips:
    """``way`` led on to ``goal`` through all that is left, chips with the fewest ways on first."""
    if len(way) == len(beside):
        return way
    if next(steps, None) is None:
        return ()
    ahead = {c: sum(d not in way for d in beside[c]) for c in beside[way[-1]] if c not in way}
    for chip in sorted(ahead, key=lambda c: (ahead[c], c)):
        if chip != goal or len(way) == len(beside) - 1:
            found = _walked(beside, (*way, chip), goal, steps)
            if found:
                return found
    return ()


@lru_cache(maxsize=65536)
def _neighbours(torus: Torus, chip: int) -> Chips:
    return tuple(dict.fromkeys(torus.neighbour(chip, direction) for direction in torus.directions))
