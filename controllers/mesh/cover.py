"""A cover of the pairs of given ports: partial matchings that the mesh can hold, and a bound that no cover is below.

Each pair of ports is in exactly one matching of the cover. Some pairs exclude each other in a matching: those that
share a port, and those that a corner of the mesh keeps apart (``controllers.mesh.corners``). The pairs at one port, or
at two ports that a corner keeps apart, exclude each other all, so a cover has at least as many matchings (a clique of
the graph of exclusions is a bound of its colouring). The search begins with a colouring in as many colours as the bound
says, lays each colour on the mesh, and moves the pairs that could not be laid. Pairs without a place then are looked
for by the states of the gates (``controllers.mesh.gate_search``), which finds more where most ports of the mesh are
given. What has no place when time is up goes to further matchings.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import combinations
from random import Random

from controllers.mesh.corners import dead_end, forced_exits
from controllers.mesh.exact import route_exact
from controllers.mesh.gate_search import GateSearch
from controllers.mesh.light_paths import Infeasible, Pair, Routed
from controllers.mesh.negotiation import fewest_gates, route
from topos.mesh import Mesh

COLOURED, LAID, SEARCHED = 0.2, 0.4, 0.9
"""Shares of the time at the end of which the searches for a colouring, for its layout and for states end."""
CROWDED = 0.6
"""The share of the mesh's ports from which on only states are looked for: a colouring hardly can be laid."""
ALONE_S = 10.0
"""The limit of the proof that a pair has no path even alone."""
TRIES, TRIED, ANYWHERE = 1, 6, 0.004
"""Negotiations for a slot; slots tried for a waiting pair; the share of pairs that go to any slot."""


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
    began = time.monotonic()
    mesh.check_ports(ports)
    asked = sorted(combinations(sorted(ports), 2))
    ways = {pair: _alone(mesh, pair, most) for pair in asked}
    pairs = [pair for pair in asked if isinstance(ways[pair], Routed)]
    sets = keeping_apart(mesh, ports, pairs)
    bound, why = least(sets, pairs, len(ports))
    search = _Search(mesh, pairs, sets, bound, most, Random(seed))
    if len(ports) < CROWDED * len(mesh.ports):
        search.fill(began + COLOURED * time_s)
        search.drop_unlaid()
        search.fill(began + LAID * time_s, on_mesh=True)
    search.change_gates(began + SEARCHED * time_s)
    search.fill(began + time_s, on_mesh=True)
    search.add_matchings()
    laid = tuple(routed for routed in map(search.laid, search.slots) if routed is not None and routed.paths)
    apart = tuple(pair for pair in asked if isinstance(ways[pair], Infeasible))
    return Cover(laid, bound, why, apart, tuple(pair for pair in asked if ways[pair] is None))


def _alone(mesh: Mesh, pair: Pair, most: int | None) -> Routed | Infeasible | None:
    """One circuit alone on the mesh; as ``route_exact``."""
    if dead_end(mesh, [pair]) or (most is not None and fewest_gates(mesh, pair) > most):
        return Infeasible((pair,))
    return route(mesh, [pair], most=most, tries=1) or route_exact(mesh, [pair], most=most, time_s=ALONE_S)


class _Search:
    """Matchings under construction (``slots``), and the pairs that are ``waiting`` for one.

    A pair uses the names of the sets that it is in; no two pairs of a slot use the same one.
    """

    def __init__(
        self,
        mesh: Mesh,
        pairs: Collection[Pair],
        sets: Mapping[str, Collection[Pair]],
        count: int,
        most: int | None,
        random: Random,
    ) -> None:
        self.mesh, self.most, self.random = mesh, most, random
        self.uses = {pair: [name for name, those in sets.items() if pair in those] for pair in pairs}
        self.length = {pair: fewest_gates(mesh, pair) for pair in pairs}
        self.slots: list[frozenset[Pair]] = [frozenset()] * count
        self.waiting = list(pairs)
        self._users: list[dict[str, Pair]] = [{} for _ in range(count)]
        self._laid: dict[frozenset[Pair], Routed | None] = {}

    def laid(self, slot: frozenset[Pair]) -> Routed | None:
        """The pairs of a slot as laid on the mesh, looked for once; None if no paths were found."""
        if slot not in self._laid:
            self._laid[slot] = route(self.mesh, sorted(slot), most=self.most, tries=TRIES)
        return self._laid[slot]

    def fill(self, until: float, *, on_mesh: bool = False) -> None:
        """Give every waiting pair a slot, ``on_mesh`` one that can be laid with it; others may lose their place.

        Source: J. Dinitz and D. Stinson, A hill-climbing algorithm for the construction of one-factorizations, 1987:
        the slot where the fewest lose their place, drawn among equals; here once in a while any slot, to get away from
        a cycle of exchanges.
        """
        while self.waiting and time.monotonic() < until:
            place = self.random.randrange(len(self.waiting))
            pair = self.waiting[place]
            anywhere = self.random.random() < ANYWHERE
            places = []
            for number, users in enumerate(self._users):
                lost = {users[name] for name in self.uses[pair] if name in users}
                places.append((0 if anywhere else len(lost), self.random.random(), number, lost))
            for _, _, number, lost in nsmallest(TRIED, places, key=lambda entry: entry[:2]):
                slot = self.slots[number] - lost | {pair}
                if not on_mesh or self.laid(slot):
                    self.waiting[place] = self.waiting[-1]
                    self.waiting[-1:] = lost
                    self._put(number, slot)
                    break

    def _put(self, number: int, slot: frozenset[Pair]) -> None:
        self.slots[number] = slot
        self._users[number] = {name: pair for pair in slot for name in self.uses[pair]}

    def drop_unlaid(self) -> None:
        """Take pairs out of the slots that cannot be laid, long ones first, until they can."""
        for number, slot in enumerate(self.slots):
            if self.laid(slot):
                continue
            kept = frozenset[Pair]()
            for pair in sorted(slot, key=lambda pair: self.length[pair]):
                kept = kept | {pair} if self.laid(kept | {pair}) else kept
            self.waiting += slot - kept
            self._put(number, kept)

    def change_gates(self, until: float) -> None:
        """Look for states of the gates with which fewer pairs wait, from those of the slots as laid on."""
        if not self.waiting:
            return
        before = [routed.states for routed in map(self.laid, self.slots) if routed is not None]
        search = GateSearch(self.mesh, list(self.uses), before, self.most, self.random)
        search.run(until)
        shares = [(tuple(states), frozenset(pairs)) for states, pairs in search.shares()]
        waiting = set(self.uses).difference(*(slot for _, slot in shares))
        if len(waiting) >= len(self.waiting):
            return
        self.waiting = sorted(waiting)
        for number, (states, slot) in enumerate(shares):
            if not self.laid(slot):
                self._laid[slot] = Routed(
                    states, {pair: self.mesh.trace(states, pair[0]).gates for pair in sorted(slot)}
                )
            self._put(number, slot)

    def add_matchings(self) -> None:
        """Put every pair that still waits into the first slot where it fits, or into a further one."""
        for pair in self.waiting:
            for number, users in enumerate(self._users):
                if not users.keys() & set(self.uses[pair]) and self.laid(self.slots[number] | {pair}):
                    self._put(number, self.slots[number] | {pair})
                    break
            else:
                self.slots.append(frozenset())
                self._users.append({})
                self._put(len(self.slots) - 1, frozenset({pair}))
        self.waiting.clear()
