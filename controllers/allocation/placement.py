"""The assignment of the slots of a slice to servers near each other, so that circuits pass few servers.

A quadratic assignment problem, solved approximately: from a random start, slots are exchanged and moved as long as the
circuits need fewer fibres. ``controllers.allocation.program`` then finds whether the circuits fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

from controllers.circuits.fibres import Edge, FibrePlant

_NO_PATH = 1_000
"""The cost, in hops, of an edge for which no candidate path has room."""


@dataclass(frozen=True)
class SlotEdge:
    """Neighbouring slots ``a`` and ``b`` of a slice, with ``circuits`` between them along one path."""

    a: int
    b: int
    circuits: int


@dataclass(frozen=True)
class SliceLayout:
    """The parts of a slice: for each slot the servers that it may take, the edges, and the chips of each slot."""

    slots: tuple[tuple[int, ...], ...]
    edges: tuple[SlotEdge, ...]
    sizes: tuple[int, ...] = ()


Placement = tuple[int, ...]
"""The server of each slot, by number of the slot."""


def placement(
    plant: FibrePlant, layout: SliceLayout, used: Mapping[Edge, int], fibres: int, attempts: int, seed: int
) -> Iterator[Placement]:
    """Up to ``attempts`` different assignments, each slot to one of its servers and no server twice.

    Nothing is yielded if there is no such assignment, or if none was found that gives every edge of the slice a path
    with room.
    """
    random, seen = Random(seed), set[Placement]()
    table = _Table(plant, layout.edges, used, fibres)
    for _ in range(attempts):
        start = _drawn(layout.slots, random)
        if start is None:
            return
        better = _improved(list(start), layout.slots, table)
        if better not in seen and table.total(better) < _NO_PATH:
            seen.add(better)
            yield better


class _Table:
    """The cost of assignments in fibres, over the best candidate path of each edge on its own."""

    def __init__(self, plant: FibrePlant, edges: Sequence[SlotEdge], used: Mapping[Edge, int], fibres: int) -> None:
        self._plant, self._used, self._fibres = plant, used, fibres
        self._edges = edges
        self._of_slot: dict[int, list[SlotEdge]] = {}
        for slot_edge in edges:
            self._of_slot.setdefault(slot_edge.a, []).append(slot_edge)
            self._of_slot.setdefault(slot_edge.b, []).append(slot_edge)
        self._hops: dict[tuple[int, int, int], int] = {}

    def total(self, servers: Sequence[int]) -> int:
        """The fibres of all edges under the assignment ``servers``."""
        return sum(self._cost(slot_edge, servers) for slot_edge in self._edges)

    def of_slots(self, servers: Sequence[int], *slots: int) -> int:
        """The fibres of the edges of ``slots`` under the assignment ``servers``."""
        return sum(self._cost(slot_edge, servers) for slot in slots for slot_edge in self._of_slot.get(slot, ()))

    def _cost(self, slot_edge: SlotEdge, servers: Sequence[int]) -> int:
        u, v = servers[slot_edge.a], servers[slot_edge.b]
        key = (u, v, slot_edge.circuits)
        if key not in self._hops:
            found = self._plant.candidates(u, v, self._used, self._fibres - slot_edge.circuits)
            self._hops[key] = self._hops[v, u, slot_edge.circuits] = (
                slot_edge.circuits * (min(map(len, found)) - 1) if found else _NO_PATH
            )
        return self._hops[key]


def _drawn(slots: Sequence[Sequence[int]], random: Random) -> Placement | None:
    """A random assignment, slots with the least choice first; None if servers run out."""
    taken: dict[int, int] = {}
    for slot in sorted(range(len(slots)), key=lambda s: (len(slots[s]), random.random())):
        left = [server for server in slots[slot] if server not in taken.values()]
        if not left:
            return None
        taken[slot] = random.choice(left)
    return tuple(taken[slot] for slot in range(len(slots)))


def _improved(servers: list[int], slots: Sequence[Sequence[int]], table: _Table) -> Placement:
    """The assignment after exchanging slots, or moving one to a free server, while that needs fewer fibres."""
    allowed = [set(choices) for choices in slots]
    better = True
    while better:
        better = False
        for a, b in combinations(range(len(servers)), 2):
            if servers[b] in allowed[a] and servers[a] in allowed[b]:
                before = table.of_slots(servers, a, b)
                servers[a], servers[b] = servers[b], servers[a]
                if table.of_slots(servers, a, b) < before:
                    better = True
                else:
                    servers[a], servers[b] = servers[b], servers[a]
        for a, choices in enumerate(slots):
            for server in (s for s in choices if s not in servers):
                before, old = table.of_slots(servers, a), servers[a]
                servers[a] = server
                if table.of_slots(servers, a) < before:
                    better = True
                    break
                servers[a] = old
    return tuple(servers)
