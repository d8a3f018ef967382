"""A cover of the pairs of given ports: partial matchings that the mesh can hold, and a bound that no cover is below.

Each pair of ports is in exactly one matching of the cover. Some pairs exclude each other in a matching: those that
share a port, and those that a corner of the mesh keeps apart (``controllers.mesh.corners``). The pairs at one port, or
at two ports that a corner keeps apart, exclude each other all, so a cover has at least as many matchings (a clique of
the graph of exclusions is a bound of its colouring). States of the gates are looked for with which as many matchings
join all pairs (``GateSearch``). Where some still wait for a matching, there is a further one.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

from controllers.mesh.corners import dead_end, forced_exits
from controllers.mesh.exact import route_exact
from controllers.mesh.light_paths import Infeasible, Pair, Routed
from controllers.mesh.negotiation import fewest_gates, route
from topos.mesh import Mesh, leaving_end

SEARCHED = 0.8
"""The share of the time after which there is a further matching."""
ALONE_S = 10.0
"""The limit of the proof that a pair has no path even alone."""


@dataclass(frozen=True)
class Cover:
    """Matchings as laid, in which each pair of the ports that can be joined is once.

    ``bound``: no cover has fewer matchings (proved), for the reason ``why``. ``apart`` are the pairs that no states of
    the gates join (proved); ``unlaid`` those for which neither a path nor that proof was found in time.
    """

    matchings: tuple[Routed, ...]
    bound: int
    why: str
    apart: tuple[Pair, ...] = ()
    unlaid: tuple[Pair, ...] = ()


def keeping_apart(mesh: Mesh, ports: Sequence[int], pairs: Collection[Pair]) -> dict[str, frozenset[Pair]]:
    """Sets of pairs of which a matching has at most one, each under its name: those at a port, those at a corner."""
    at = {port: frozenset(pair for pair in pairs if port in pair) for port in ports}
    sets = {f"port {port}": those for port, those in at.items()}
    gates = defaultdict[int, set[int]](set)
    for port in mesh.ports:
        gates[port.gate].add(port.number)
    for u, v in combinations(sorted(ports), 2):
        exits = {} if mesh.ports[u].gate == mesh.ports[v].gate else forced_exits(mesh, (u, v))
        if exits:
            spared = {
                (min(a, b), max(a, b))
                for a, other in ((u, v), (v, u))
                for b in {*gates[mesh.ports[a].gate], exits.get(a, other)} - {a, other}
            }
            sets[f"ports {u} and {v}, which a corner keeps apart"] = (at[u] | at[v]) - spared
    return sets


def least(sets: Mapping[str, Collection[Pair]], pairs: Collection[Pair], ports: int) -> tuple[int, str]:
    """The number that no cover is below, and why: the largest of ``sets``, or all pairs over those of a matching."""
    name = max(sets, key=lambda name: len(sets[name]), default="")
    largest, together = len(sets.get(name, ())), -(-len(pairs) // max(1, ports // 2))
    if together > largest:
        return together, f"{len(pairs)} pairs, of which a matching has {ports // 2}"
    return largest, f"{largest} pairs at {name}, of which a matching has one"


def cover(mesh: Mesh, ports: Sequence[int], *, most: int | None = None, seed: int = 0, time_s: float = 60.0) -> Cover:
    """A cover of all pairs of ``ports``, of as few matchings as were found in ``time_s`` seconds.

    ``most``: the most gates that a path may cross, as in ``route``. ``ConfigError`` for a port that is not on the mesh.
    """
    until = time.monotonic() + time_s
    mesh.check_ports(ports)
    asked = sorted(combinations(sorted(ports), 2))
    ways = {pair: _alone(mesh, pair, most) for pair in asked}
    alone = {pair: way for pair, way in ways.items() if isinstance(way, Routed)}
    bound, why = least(keeping_apart(mesh, ports, alone), alone, len(ports))
    search = GateSearch(mesh, list(alone), bound, most, Random(seed))
    search.run(until - (1 - SEARCHED) * time_s)
    while waiting := search.waiting:
        search.add(alone[search.pairs[waiting[0]]].states)
        search.run((until + time.monotonic()) / 2)
    laid = tuple(_laid(mesh, states, pairs, most, until) for states, pairs in search.matchings() if pairs)
    apart = tuple(pair for pair in asked if isinstance(ways[pair], Infeasible))
    return Cover(laid, bound, why, apart, tuple(pair for pair in asked if ways[pair] is None))


def _alone(mesh: Mesh, pair: Pair, most: int | None) -> Routed | Infeasible | None:
    """One circuit alone on the mesh; as ``route_exact``."""
    if dead_end(mesh, [pair]) or (most is not None and fewest_gates(mesh, pair) > most):
        return Infeasible((pair,))
    return route(mesh, [pair], most=most, tries=1) or route_exact(mesh, [pair], most=most, time_s=ALONE_S)


def _laid(mesh: Mesh, states: Sequence[bool], pairs: Sequence[Pair], most: int | None, until: float) -> Routed:
    """The matching of these states; over fewer gates if ``route`` finds such a way until that time."""
    routed = Routed(tuple(states), {pair: mesh.trace(states, pair[0]).gates for pair in pairs})
    again = route(mesh, pairs, most=most, tries=1, time_s=until - time.monotonic())
    return again if again is not None and again.gates < routed.gates else routed


TEMPERATURE, HEAVIER = 0.1, 0.2
"""The temperature, and what a pair without a matching gains in every round, in weights of a pair at the begin."""
PATHS, FLIPS = 10, 2000
"""Pairs that are given a path, and gates that change, in a round."""

Light = tuple[int, int]
"""The port where light comes out, and how many gates it crosses until then."""


class GateSearch:
    """The states of the gates of each matching (True: cross), ``count`` matchings at first, and where each pair is.

    Whatever the states of a mesh's gates are, light that enters at a port comes out at another one, so states always
    are a partial matching and nothing has to be kept apart. Local search over the states of all matchings at once: a
    gate of a matching changes its state, or a pair that no matching joins gets a path through one, over as few gates
    that change as possible. What counts are the weights of the pairs in no matching; a pair grows heavier as long as it
    is in none, so that the search leaves every local optimum.

    Source of the weights: P. Morris, The breakout method for escaping from local minima, AAAI 1993; that a change for
    the worse is accepted now and then is Metropolis' rule, here at one temperature.

    ``most``: a path over more gates joins nothing.
    """

    def __init__(self, mesh: Mesh, pairs: Sequence[Pair], count: int, most: int | None, random: Random) -> None:
        self.mesh, self.pairs = mesh, pairs
        self._random = random
        self._most = most
        self._ports = len(mesh.ports)
        self._number = [-1] * self._ports**2
        for number, (a, b) in enumerate(pairs):
            self._number[a * self._ports + b] = self._number[b * self._ports + a] = number
        self._count = [0] * len(pairs) + [1 << 60]
        """How many matchings join each pair; the last is for ports that are no pair, and never matters."""
        self._weight = [1.0] * len(pairs) + [0.0]
        self._states: list[list[bool]] = []
        self._lights: list[list[Light | None]] = []
        for _ in range(count):
            self.add([False] * len(mesh.gates))

    @property
    def waiting(self) -> list[int]:
        """The numbers of the pairs that no matching joins."""
        return [number for number, count in enumerate(self._count) if not count]

    def add(self, gates: Sequence[bool]) -> None:
        """Add a matching, with these states of the gates."""
        self._states.append([*gates])
        self._lights.append(self._lit(gates))
        for number in self._joined(gates, self._lights[-1]):
            self._count[number] += 1

    def run(self, until: float) -> None:
        """Search until every pair is in a matching, or until that time."""
        while (waiting := self.waiting) and time.monotonic() < until:
            for number in waiting:
                self._weight[number] += HEAVIER
            for number in self._random.choices(waiting, k=PATHS):
                if not self._count[number]:
                    self._give_path(self.pairs[number])
            for _ in range(FLIPS):
                self._flip()

    def matchings(self) -> Iterator[tuple[list[bool], list[Pair]]]:
        """The states of each matching with its pairs, each pair in the matching where its path is shortest."""
        joined = [self._joined(gates, lights) for gates, lights in zip(self._states, self._lights, strict=True)]
        shortest: dict[int, int] = {}
        for place, lengths in enumerate(joined):
            for number, length in lengths.items():
                if number not in shortest or length < joined[shortest[number]][number]:
                    shortest[number] = place
        for place, gates in enumerate(self._states):
            yield gates, [pair for number, pair in enumerate(self.pairs) if shortest.get(number) == place]

    def _lit(self, gates: Sequence[bool]) -> list[Light | None]:
        """For each end of a gate: what becomes of light that leaves the gate there; None if it goes round and round."""
        lights: list[Light | None] = [None] * len(self.mesh.facing)
        self._follow(gates, lights, range(self._ports))
        return lights

    def _follow(
        self, gates: Sequence[bool], lights: list[Light | None], ports: Iterable[int], *, dark: bool = False
    ) -> None:
        """Enter the light that comes out at ``ports`` at all ends on its way, or (``dark``) take it out.

        The way is followed backwards. ``Mesh.trace`` checks more and takes longer, for what is asked ten thousand times
        a second.
        """
        facing = self.mesh.facing
        for port in ports:
            end, crossed = self.mesh.ports[port].end, 0
            while end >= 0:
                lights[end] = None if dark else (port, crossed)
                end = facing[end ^ (3 if gates[end >> 2] else 2)]
                crossed += 1

    def _joined(self, gates: Sequence[bool], lights: Sequence[Light | None]) -> Mapping[int, int]:
        """The numbers of the pairs that these states join, each with the gates that its light crosses."""
        found = {}
        for port in self.mesh.ports:
            light = lights[leaving_end(port.end, gates[port.gate])]
            if light is not None and (number := self._pair((port.number, 0), light)) >= 0:
                found[number] = light[1] + 1
        return found

    def _pair(self, a: Light, b: Light) -> int:
        """The number of the pair that a gate makes of these lights; -1 if it is none, or its path too long."""
        if self._most is not None and a[1] + b[1] >= self._most:
            return -1
        return self._number[a[0] * self._ports + b[0]]

    def _flip(self) -> None:
        """Change the state of any gate of any matching, unless that costs too much."""
        place = int(self._random.random() * len(self._states))
        gates, lights = self._states[place], self._lights[place]
        gate = int(self._random.random() * len(gates))
        a, b, c, d = lights[4 * gate : 4 * gate + 4]
        ports = {light[0] for light in (a, b, c, d) if light}
        if a and b and c and d and len(ports) == 4:
            bar, cross = (self._pair(a, c), self._pair(b, d)), (self._pair(a, d), self._pair(b, c))
            old, new = (cross, bar) if gates[gate] else (bar, cross)
            if not self._exchange(old, new):
                return
        elif self._most is not None:
            return
        else:  # one light comes to the gate, twice or beside light that goes round: it comes out where it did
            self._follow(gates, lights, ports, dark=True)
        gates[gate] = not gates[gate]
        self._follow(gates, lights, ports)

    def _give_path(self, pair: Pair) -> None:
        """Join a pair in any matching, unless that costs too much."""
        place = int(self._random.random() * len(self._states))
        if gates := self._with_path(self._states[place], pair):
            lights = self._lit(gates)
            old, new = self._joined(self._states[place], self._lights[place]), self._joined(gates, lights)
            if self._exchange(old.keys() - new.keys(), new.keys() - old.keys()):
                self._states[place], self._lights[place] = gates, lights

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

    def _exchange(self, old: Collection[int], new: Collection[int]) -> bool:
        """Count ``new`` in place of ``old``, none of which they share, unless that costs too much; whether done."""
        count, weight = self._count, self._weight
        cost = 0.0
        for number in old:
            if count[number] == 1:
                cost += weight[number]
        for number in new:
            if not count[number]:
                cost -= weight[number]
        if cost > 0 and self._random.random() >= math.exp(-cost / TEMPERATURE):
            return False
        for number in old:
            count[number] -= 1
        for number in new:
            count[number] += 1
        return True
