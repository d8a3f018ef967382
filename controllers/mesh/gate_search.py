"""Search for states of the gates of several matchings that together join all of given pairs of ports.

Whatever the states of a mesh's gates are, light that enters at a port comes out at another one, so states always are a
partial matching and nothing has to be kept apart. Simulated annealing over the states of all matchings at once: a gate
of a matching changes its state, or a pair that no matching joins gets a path through one, over as few gates that change
as possible. What counts are the pairs that are in no matching.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from random import Random

from controllers.mesh.light_paths import Pair
from topos.mesh import Mesh, leaving_end

HOTTEST, COLDEST = 0.3, 0.07
"""Temperatures at the begin and at the end, in pairs: of 3x3 to 5x5 with all ports these left the fewest pairs."""
PATHS, FLIPS = 40, 2000
"""Pairs that are given a path, and gates that change, between two looks at the clock."""


class GateSearch:
    """The states of the gates of each matching (True: cross), and in how many matchings each pair is.

    ``most``: a path over more gates joins nothing.
    """

    def __init__(
        self, mesh: Mesh, pairs: Sequence[Pair], states: Sequence[Sequence[bool]], most: int | None, random: Random
    ) -> None:
        self.mesh, self.pairs, self.states = mesh, pairs, [[*gates] for gates in states]
        self._random = random
        self._most = most or 2 * len(mesh.gates)
        self._ports = len(mesh.ports)
        self._number = [-1] * self._ports**2
        for number, (a, b) in enumerate(pairs):
            self._number[a * self._ports + b] = self._number[b * self._ports + a] = number
        self._count = [0] * len(pairs)
        for gates in self.states:
            self._add(self.joined(gates), 1)

    def joined(self, gates: Sequence[bool]) -> list[int]:
        """The numbers of the pairs that these states join."""
        ends = (self._out(gates, port.end) for port in self.mesh.ports)
        lights = ((port, *out) for port, out in enumerate(ends) if out is not None)
        numbers = (self._pair(port, out, crossed) for port, out, crossed in lights if port < out)
        return [number for number in numbers if number >= 0]

    def run(self, until: float) -> None:
        """Search until every pair is in a matching, or until that time."""
        began = time.monotonic()
        while 0 in self._count and (now := time.monotonic()) < until:
            temperature = HOTTEST * (COLDEST / HOTTEST) ** ((now - began) / (until - began))
            waiting = [number for number, count in enumerate(self._count) if not count]
            for number in self._random.choices(waiting, k=PATHS):
                if not self._count[number]:
                    self._give_path(self.pairs[number], temperature)
            for _ in range(FLIPS):
                self._flip(temperature)

    def shares(self) -> Iterator[tuple[list[bool], list[Pair]]]:
        """The states of each matching with its pairs, each pair in the first matching that joins it."""
        taken: set[int] = set()
        for gates in self.states:
            new = [number for number in self.joined(gates) if number not in taken]
            taken.update(new)
            yield gates, [self.pairs[number] for number in new]

    def _out(self, gates: Sequence[bool], end: int, around: int = -1) -> tuple[int, int] | None:
        """The port where light comes out that enters a gate at ``end``, and the gates crossed.

        None if it comes to gate ``around``. ``Mesh.trace`` checks and remembers more, and takes twice as long, for what
        is asked a hundred thousand times a second.
        """
        facing, crossed = self.mesh.facing, 0
        while end >= 0:
            if end >> 2 == around:
                return None
            end = facing[end ^ (3 if gates[end >> 2] else 2)]
            crossed += 1
        return -1 - end, crossed

    def _pair(self, a: int, b: int, crossed: int) -> int:
        return self._number[a * self._ports + b] if crossed <= self._most else -1

    def _flip(self, temperature: float) -> None:
        """Change the state of any gate of any matching, unless that costs too many pairs."""
        gates = self.states[int(self._random.random() * len(self.states))]
        gate = int(self._random.random() * len(gates))
        lights = [self._out(gates, self.mesh.facing[4 * gate + side], gate) for side in range(4)]
        if None in lights:
            return  # light that comes twice to a gate
        ends: list[tuple[int, int]] = lights  # type: ignore[assignment]
        bar, cross = (
            [self._pair(ends[a][0], ends[b][0], ends[a][1] + ends[b][1] + 1) for a, b in ((0, across), (1, across ^ 1))]
            for across in (2, 3)
        )
        old, new = (cross, bar) if gates[gate] else (bar, cross)
        if self._exchange([n for n in old if n >= 0], [n for n in new if n >= 0], temperature):
            gates[gate] = not gates[gate]

    def _give_path(self, pair: Pair, temperature: float) -> None:
        """Join a pair in any matching, unless that costs too many pairs."""
        place = int(self._random.random() * len(self.states))
        gates = self._with_path(self.states[place], pair)
        if gates and self._exchange(self.joined(self.states[place]), self.joined(gates), temperature):
            self.states[place] = gates

    def _with_path(self, gates: Sequence[bool], pair: Pair) -> list[bool] | None:
        """States that join ``pair``, with the fewest gates changed; None if that path needs a gate in two states."""
        facing, start, goal = self.mesh.facing, self.mesh.ports[pair[0]].end, -1 - pair[1]
        changed, came_from = {start: 0}, dict[int, tuple[int, bool]]()
        front = deque([start])
        while front and (end := front.popleft()) != goal:
            for crossed in (False, True):
                beyond, count = facing[leaving_end(end, crossed)], changed[end] + (gates[end >> 2] is not crossed)
                if (beyond >= 0 or beyond == goal) and count < changed.get(beyond, count + 1):
                    changed[beyond], came_from[beyond] = count, (end, crossed)
                    (front.append if count > changed[end] else front.appendleft)(beyond)
        if goal not in came_from:
            return None
        made, set_to, end = [*gates], dict[int, bool](), goal
        while end != start:
            end, crossed = came_from[end]
            made[end >> 2] = crossed
            if set_to.setdefault(end >> 2, crossed) is not crossed:
                return None
        return made

    def _exchange(self, old: Sequence[int], new: Sequence[int], temperature: float) -> bool:
        """Count ``new`` in place of ``old`` unless that costs too many pairs; whether it was done."""
        lost = self._add(old, -1)
        gained = self._add(new, 1)
        if lost <= gained or self._random.random() < math.exp((gained - lost) / temperature):
            return True
        self._add(new, -1)
        self._add(old, 1)
        return False

    def _add(self, numbers: Sequence[int], by: int) -> int:
        """Count pairs; how many are in a matching now and were in none, or the reverse."""
        turned = 0
        for number in numbers:
            self._count[number] += by
            turned += self._count[number] == (by > 0)
        return turned
