"""Circuits laid on a mesh fast: negotiated congestion, as FPGA routers do.

Source: L. McMurchie and C. Ebeling, PathFinder, FPGA'95, section 3. Every circuit takes its cheapest path, even where
that clashes; what clashes becomes dearer, now and for good, until nothing does. Two things clash here: two circuits on
one waveguide, and two that want one cell in different states.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from random import Random

from controllers.mesh.corners import dead_end
from controllers.mesh.light_paths import CellStep, Pair, Paths, Routed, laid, ordered_pairs, standing_ways
from topos.mesh import Mesh

ROUNDS = 60
"""So many rounds of negotiation, then anew in another order."""

FIRST_PRICE = 0.5
PRICE_GROWS = 1.25
MOST_PRICE = 5.0
"""What a clash costs in the first round (in cells crossed), by how much more in each later one, and the most."""

REMEMBERED = 1.0
"""What every round of clash adds to the price for good. Of the matchings of crowded meshes (3x3 with 12 ports to 7x7
with 32) these two prices lay 7 % more than 40.0 and 0.4 do, in as many rounds.
"""

AGAIN = 40
TOGETHER = 3
"""When nothing clashes any more: so many times so many circuits are laid again, to make them shorter."""

NEVER = float("inf")


def route(
    mesh: Mesh,
    pairs: Iterable[Pair],
    *,
    fixed: Paths | None = None,
    seed: int = 0,
    time_s: float = 10.0,
    tries: int | None = None,
) -> Routed | None:
    """Lay a circuit between the two ports of every pair; None if no way was found in ``time_s`` seconds, or in
    ``tries`` negotiations, which proves nothing (``route_exact`` does).

    ``fixed`` are circuits that stand: they keep their cells and these their states, and are part of the answer. The
    same call gives the same answer, unless time ran out. ``ConfigError`` for a port that is not on the mesh,
    ``CircuitError`` for one that stands in two pairs, and for ``fixed`` cells that are no path.
    """
    standing = standing_ways(mesh, fixed)
    asked = ordered_pairs(mesh, [*pairs, *standing])
    new = [pair for pair in asked if pair not in standing]
    until = time.monotonic() + time_s
    if dead_end(mesh, asked):
        return None
    random = Random(seed)
    for _ in count() if tries is None else range(tries):
        negotiation = _Negotiation(mesh, new, standing)
        ways = negotiation.settle(random, until)
        if ways is not None:
            return laid(mesh, {**ways, **standing})
        if negotiation.hopeless or time.monotonic() >= until:
            break
    return None


@lru_cache(maxsize=512)
def cells_to(mesh: Mesh, port: int) -> tuple[int, ...]:
    """For every end by which light can enter a cell: the fewest cells that it crosses to come out at ``port``."""
    far = len(mesh.facing)
    left = [far] * len(mesh.facing)
    # Light can be followed backwards: what leaves by an end came in by one of the two at the other vertex.
    front = [mesh.ports[port].end]
    crossed = 0
    while front:
        crossed += 1
        before = []
        for leaving in front:
            for entering in (leaving ^ 2, leaving ^ 3):
                if left[entering] > crossed:
                    left[entering] = crossed
                    before.append(mesh.facing[entering])
        front = [end for end in before if end >= 0]
    return tuple(left)


def _length(ways: Mapping[Pair, Sequence[CellStep]], pairs: Iterable[Pair]) -> int:
    return sum(len(ways[pair]) for pair in pairs)


class _Negotiation:
    """The circuits to lay, what each cell and waveguide is asked for, and what it costs."""

    def __init__(self, mesh: Mesh, pairs: Sequence[Pair], standing: Mapping[Pair, Sequence[CellStep]]) -> None:
        self.mesh = mesh
        self.pairs = list(pairs)
        self.ways: dict[Pair, tuple[CellStep, ...]] = {}
        self.hopeless = False
        ends = len(mesh.facing)
        self.price = FIRST_PRICE
        # A waveguide goes by the lower of its two ends, a cell in a state by 2 * cell + state.
        self.guide = [min(end, other) if other >= 0 else end for end, other in enumerate(mesh.facing)]
        self.guide_users = [0] * ends
        self.guide_memory = [0.0] * ends
        self.guide_cost = [0.0] * ends
        self.cell_users = [0] * (ends // 2)
        self.cell_memory = [0.0] * (ends // 2)
        self.cell_cost = [1.0] * (ends // 2)
        for way in standing.values():
            for end, crossed in way:
                self.cell_memory[(end >> 1 & ~1) + (not crossed)] = NEVER
                for side in (end, end ^ 3 if crossed else end ^ 2):
                    self.guide_memory[self.guide[side]] = NEVER

    def settle(self, random: Random, until: float) -> dict[Pair, tuple[CellStep, ...]] | None:
        """Negotiate until nothing clashes, then straighten; None after ``ROUNDS`` rounds or at ``until``."""
        turn = list(self.pairs)
        random.shuffle(turn)
        self._reprice()
        for _ in range(ROUNDS):
            for pair in turn:
                self._lift(pair)
                way = self._cheapest(pair)
                if way is None:
                    self.hopeless = True
                    return None
                self._lay(pair, way)
            turn = self._clashing()
            if not turn:
                self._straighten(random)
                return self.ways
            if time.monotonic() >= until:
                return None
            random.shuffle(turn)
            self._remember()
            self.price = min(self.price * PRICE_GROWS, MOST_PRICE)
            self._reprice()
        return None

    def _straighten(self, random: Random) -> None:
        """Lay a few circuits again, ``AGAIN`` times, where only free ways count; keep what is not longer."""
        self.price = NEVER
        self.guide_memory = [m if m == NEVER else 0.0 for m in self.guide_memory]
        self.cell_memory = [m if m == NEVER else 0.0 for m in self.cell_memory]
        self._reprice()
        for _ in range(AGAIN if self.pairs else 0):
            lifted = random.sample(self.pairs, min(TOGETHER, len(self.pairs)))
            before = {pair: self.ways[pair] for pair in lifted}
            for pair in lifted:
                self._lift(pair)
            if not all(map(self._lay_free, lifted)) or _length(self.ways, lifted) > _length(before, lifted):
                for pair in lifted:
                    self._lift(pair)
                for pair, way in before.items():
                    self._lay(pair, way)

    def _lay_free(self, pair: Pair) -> bool:
        """Lay one circuit where nothing clashes; a search does not see where its path would clash with itself."""
        way = self._cheapest(pair)
        if way is not None:
            self._lay(pair, way)
        return way is not None and not self._clashes(way)

    def _cheapest(self, pair: Pair) -> tuple[CellStep, ...] | None:
        """A* from the one port to the other, over (cell entered, end)."""
        facing, cell_cost, guide_cost = self.mesh.facing, self.cell_cost, self.guide_cost
        left = cells_to(self.mesh, pair[1])
        start, goal = self.mesh.ports[pair[0]].end, -1 - pair[1]
        spent = [NEVER] * (len(facing) + 1)
        came = [-1] * (len(facing) + 1)
        spent[start] = 0.0
        front = [(float(left[start]), start)]
        arrived = len(facing)
        while front:
            total, end = heappop(front)
            if end == arrived:
                return self._walked(came, arrived)
            so_far = spent[end]
            if total > so_far + left[end]:
                continue
            state = end >> 1 & ~1
            for crossed in (0, 1):
                beyond = facing[end ^ 2 ^ crossed]
                cost = so_far + cell_cost[state + crossed]
                if beyond >= 0:
                    cost += guide_cost[beyond]
                    ahead = left[beyond]
                elif beyond == goal:
                    beyond, ahead = arrived, 0
                else:
                    continue
                if cost < spent[beyond]:
                    spent[beyond] = cost
                    came[beyond] = 2 * end + crossed
                    heappush(front, (cost + ahead, beyond))
        return None

    @staticmethod
    def _walked(came: Sequence[int], end: int) -> tuple[CellStep, ...]:
        way = []
        while came[end] >= 0:
            way.append((came[end] >> 1, bool(came[end] & 1)))
            end = came[end] >> 1
        return tuple(reversed(way))

    def _lay(self, pair: Pair, way: tuple[CellStep, ...]) -> None:
        self.ways[pair] = way
        self._count(way, 1)

    def _lift(self, pair: Pair) -> None:
        if pair in self.ways:
            self._count(self.ways.pop(pair), -1)

    def _count(self, way: Sequence[CellStep], by: int) -> None:
        for end, crossed in way:
            guide = self.guide[end]
            self.guide_users[guide] += by
            self._price_guide(guide)
            state = (end >> 1 & ~1) + crossed
            self.cell_users[state] += by
            self._price_cell(state ^ 1)

    def _reprice(self) -> None:
        for end, guide in enumerate(self.guide):
            if end == guide:
                self._price_guide(end)
        for state in range(len(self.cell_cost)):
            self._price_cell(state)

    def _price_guide(self, guide: int) -> None:
        users = self.guide_users[guide]
        cost = self.guide_memory[guide] + (self.price * users if users else 0.0)
        self.guide_cost[guide] = cost
        if self.mesh.facing[guide] >= 0:
            self.guide_cost[self.mesh.facing[guide]] = cost

    def _price_cell(self, state: int) -> None:
        others = self.cell_users[state ^ 1]
        self.cell_cost[state] = 1.0 + self.cell_memory[state] + (self.price * others if others else 0.0)

    def _remember(self) -> None:
        for guide, users in enumerate(self.guide_users):
            if users > 1:
                self.guide_memory[guide] += REMEMBERED * (users - 1)
        for state in range(0, len(self.cell_users), 2):
            if self.cell_users[state] and self.cell_users[state + 1]:
                self.cell_memory[state] += REMEMBERED
                self.cell_memory[state + 1] += REMEMBERED

    def _clashing(self) -> list[Pair]:
        """The circuits whose path clashes with another one's, or with itself."""
        return [pair for pair, way in self.ways.items() if self._clashes(way)]

    def _clashes(self, way: Sequence[CellStep]) -> bool:
        users, guides, guide = self.cell_users, self.guide_users, self.guide
        return any(guides[guide[end]] > 1 or users[(end >> 1 & ~1) + (not crossed)] for end, crossed in way)
