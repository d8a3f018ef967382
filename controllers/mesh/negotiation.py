"""Fast routing of circuits on a mesh by negotiated congestion, as in FPGA routers.

Source: L. McMurchie and C. Ebeling, PathFinder, FPGA'95, section 3. Every circuit takes its cheapest path, even one
that clashes with others; clashing resources become more expensive, now and for all later rounds, until there are no
clashes. A clash is two circuits on one waveguide, or two that need one gate in different states.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from controllers.mesh.corners import dead_end
from controllers.mesh.light_paths import GateStep, Pair, Paths, Routed, fixed_steps, laid, ordered_pairs
from topos.mesh import Mesh, leaving_end

ROUNDS = 60
"""Rounds of negotiation before it starts again in another order."""

FIRST_PRICE = 0.5
PRICE_GROWTH = 1.25
MAX_PRICE = 5.0
"""The price of a clash in the first round (in gates crossed), its growth factor per round, and its maximum."""

HISTORY_PRICE = 1.0
"""The permanent price added by every round of clash. On matchings of crowded meshes (3x3 with 12 ports to 7x7 with 32)
these two prices lay 7 % more than 40.0 and 0.4 do, in as many rounds.
"""

IMPROVE_TIMES = 40
IMPROVE_CIRCUITS = 3
"""How often, once there are no clashes, and how many circuits are laid again to shorten their paths."""

NEVER = float("inf")


def route(
    mesh: Mesh,
    pairs: Iterable[Pair],
    *,
    fixed: Paths | None = None,
    most: int | None = None,
    seed: int = 0,
    time_s: float = 10.0,
    tries: int | None = None,
) -> Routed | None:
    """Lay a circuit between the two ports of every pair; None if no paths were found.

    The search ends after ``time_s`` seconds or ``tries`` negotiations; None proves nothing (``route_exact`` does).
    ``fixed`` are circuits that stay: they keep their gates with their states, and are part of the answer. No path of
    the others crosses more than ``most`` gates. The result is deterministic unless time runs out. ``ConfigError`` for a
    port that is not on the mesh, ``CircuitError`` for a port in two pairs, and for ``fixed`` gates that are no path.
    """
    kept = fixed_steps(mesh, fixed)
    asked = ordered_pairs(mesh, [*pairs, *kept])
    new = [pair for pair in asked if pair not in kept]
    until = time.monotonic() + time_s
    if dead_end(mesh, asked):
        return None
    random = Random(seed)
    for _ in count() if tries is None else range(tries):
        negotiation = _Negotiation(mesh, new, kept)
        steps = negotiation.settle(random, until)
        if steps is not None and (most is None or all(len(steps[pair]) <= most for pair in new)):
            return laid(mesh, {**steps, **kept})
        if negotiation.impossible or time.monotonic() >= until:
            break
    return None


def without_one(
    mesh: Mesh, pairs: Sequence[Pair], *, most: int | None = None, seed: int = 0, time_s: float
) -> Pair | None:
    """The first of ``pairs`` without which the others can be laid; None if none is found in ``time_s`` seconds each."""
    for pair in pairs:
        rest = [other for other in pairs if other != pair]
        if rest and route(mesh, rest, most=most, seed=seed, time_s=time_s) is not None:
            return pair
    return None


@lru_cache(maxsize=512)
def gates_to(mesh: Mesh, port: int) -> tuple[int, ...]:
    """For every end by which light can enter a gate: the fewest gates that it crosses to come out at ``port``."""
    import networkx  # here and below, because it takes 0.1 s and few fabrics have a mesh

    found = networkx.single_source_shortest_path_length(_backwards(mesh), -1 - port)
    return tuple(found.get(end, len(mesh.facing)) for end in range(len(mesh.facing)))


def fewest_gates(mesh: Mesh, pair: Pair) -> int:
    """The fewest gates that light crosses between two ports that are alone on the mesh."""
    return gates_to(mesh, pair[1])[mesh.ports[pair[0]].end]


@lru_cache(maxsize=16)
def _backwards(mesh: Mesh) -> Any:
    """The ways of light backwards, as a graph: from an end (or ``-1 - port``) to the ends that lead there by a gate."""
    import networkx

    ends = range(len(mesh.facing))
    return networkx.DiGraph((mesh.onward(end, crossed), end) for end in ends for crossed in (False, True))


def _length(steps: Mapping[Pair, Sequence[GateStep]], pairs: Iterable[Pair]) -> int:
    return sum(len(steps[pair]) for pair in pairs)


class _Negotiation:
    """The circuits to lay, the use of each gate and waveguide, and their prices."""

    def __init__(self, mesh: Mesh, pairs: Sequence[Pair], kept: Mapping[Pair, Sequence[GateStep]]) -> None:
        self.mesh = mesh
        self.pairs = list(pairs)
        self.steps: dict[Pair, tuple[GateStep, ...]] = {}
        self.impossible = False
        ends = len(mesh.facing)
        self.price = FIRST_PRICE
        # The index of a waveguide is the lower of its two ends, that of a gate in a state is 2 * gate + state.
        self.guide = [min(end, other) if other >= 0 else end for end, other in enumerate(mesh.facing)]
        self.guide_users = [0] * ends
        self.guide_history = [0.0] * ends
        self.guide_cost = [0.0] * ends
        self.gate_users = [0] * (ends // 2)
        self.gate_history = [0.0] * (ends // 2)
        self.gate_cost = [1.0] * (ends // 2)
        for path_steps in kept.values():
            for end, crossed in path_steps:
                self.gate_history[(end >> 1 & ~1) + (not crossed)] = NEVER
                for side in (end, leaving_end(end, crossed)):
                    self.guide_history[self.guide[side]] = NEVER

    def settle(self, random: Random, until: float) -> dict[Pair, tuple[GateStep, ...]] | None:
        """Negotiate until there are no clashes, then shorten paths; None after ``ROUNDS`` rounds or at ``until``."""
        waiting = list(self.pairs)
        random.shuffle(waiting)
        self._reprice()
        for _ in range(ROUNDS):
            for pair in waiting:
                self._remove(pair)
                path_steps = self._cheapest(pair)
                if path_steps is None:
                    self.impossible = True
                    return None
                self._lay(pair, path_steps)
            waiting = self._clashing()
            if not waiting:
                self._shorten(random)
                return self.steps
            if time.monotonic() >= until:
                return None
            random.shuffle(waiting)
            self._raise_history()
            self.price = min(self.price * PRICE_GROWTH, MAX_PRICE)
            self._reprice()
        return None

    def _shorten(self, random: Random) -> None:
        """Lay a few circuits again, ``IMPROVE_TIMES`` times, over free gates; keep paths that are not longer."""
        self.price = NEVER
        self.guide_history = [m if m == NEVER else 0.0 for m in self.guide_history]
        self.gate_history = [m if m == NEVER else 0.0 for m in self.gate_history]
        self._reprice()
        for _ in range(IMPROVE_TIMES if self.pairs else 0):
            removed = random.sample(self.pairs, min(IMPROVE_CIRCUITS, len(self.pairs)))
            before = {pair: self.steps[pair] for pair in removed}
            for pair in removed:
                self._remove(pair)
            if not all(map(self._lay_free, removed)) or _length(self.steps, removed) > _length(before, removed):
                for pair in removed:
                    self._remove(pair)
                for pair, path_steps in before.items():
                    self._lay(pair, path_steps)

    def _lay_free(self, pair: Pair) -> bool:
        """Lay one circuit; whether nothing clashes (the search does not see a path that clashes with itself)."""
        path_steps = self._cheapest(pair)
        if path_steps is not None:
            self._lay(pair, path_steps)
        return path_steps is not None and not self._clashes(path_steps)

    def _cheapest(self, pair: Pair) -> tuple[GateStep, ...] | None:
        """The cheapest path between the two ports by A*, over (gate entered, end); None if there is none."""
        facing, gate_cost, guide_cost = self.mesh.facing, self.gate_cost, self.guide_cost
        left = gates_to(self.mesh, pair[1])
        start, goal = self.mesh.ports[pair[0]].end, -1 - pair[1]
        spent = [NEVER] * (len(facing) + 1)
        came_from = [-1] * (len(facing) + 1)
        spent[start] = 0.0
        front = [(float(left[start]), start)]
        arrived = len(facing)
        while front:
            total, end = heappop(front)
            if end == arrived:
                return self._followed(came_from, arrived)
            so_far = spent[end]
            if total > so_far + left[end]:
                continue
            state = end >> 1 & ~1
            for crossed in (0, 1):
                beyond = facing[end ^ 2 ^ crossed]
                cost = so_far + gate_cost[state + crossed]
                if beyond >= 0:
                    cost += guide_cost[beyond]
                    ahead = left[beyond]
                elif beyond == goal:
                    beyond, ahead = arrived, 0
                else:
                    continue
                if cost < spent[beyond]:
                    spent[beyond] = cost
                    came_from[beyond] = 2 * end + crossed
                    heappush(front, (cost + ahead, beyond))
        return None

    @staticmethod
    def _followed(came_from: Sequence[int], end: int) -> tuple[GateStep, ...]:
        path_steps = []
        while came_from[end] >= 0:
            path_steps.append((came_from[end] >> 1, bool(came_from[end] & 1)))
            end = came_from[end] >> 1
        return tuple(reversed(path_steps))

    def _lay(self, pair: Pair, path_steps: tuple[GateStep, ...]) -> None:
        self.steps[pair] = path_steps
        self._count(path_steps, 1)

    def _remove(self, pair: Pair) -> None:
        if pair in self.steps:
            self._count(self.steps.pop(pair), -1)

    def _count(self, path_steps: Sequence[GateStep], by: int) -> None:
        for end, crossed in path_steps:
            guide = self.guide[end]
            self.guide_users[guide] += by
            self._price_guide(guide)
            state = (end >> 1 & ~1) + crossed
            self.gate_users[state] += by
            self._price_gate(state ^ 1)

    def _reprice(self) -> None:
        for end, guide in enumerate(self.guide):
            if end == guide:
                self._price_guide(end)
        for state in range(len(self.gate_cost)):
            self._price_gate(state)

    def _price_guide(self, guide: int) -> None:
        users = self.guide_users[guide]
        cost = self.guide_history[guide] + (self.price * users if users else 0.0)
        self.guide_cost[guide] = cost
        if self.mesh.facing[guide] >= 0:
            self.guide_cost[self.mesh.facing[guide]] = cost

    def _price_gate(self, state: int) -> None:
        others = self.gate_users[state ^ 1]
        self.gate_cost[state] = 1.0 + self.gate_history[state] + (self.price * others if others else 0.0)

    def _raise_history(self) -> None:
        for guide, users in enumerate(self.guide_users):
            if users > 1:
                self.guide_history[guide] += HISTORY_PRICE * (users - 1)
        for state in range(0, len(self.gate_users), 2):
            if self.gate_users[state] and self.gate_users[state + 1]:
                self.gate_history[state] += HISTORY_PRICE
                self.gate_history[state + 1] += HISTORY_PRICE

    def _clashing(self) -> list[Pair]:
        """The circuits whose path clashes with another one, or with itself."""
        return [pair for pair, path_steps in self.steps.items() if self._clashes(path_steps)]

    def _clashes(self, path_steps: Sequence[GateStep]) -> bool:
        users, guides, guide = self.gate_users, self.guide_users, self.guide
        return any(guides[guide[end]] > 1 or users[(end >> 1 & ~1) + (not crossed)] for end, crossed in path_steps)
