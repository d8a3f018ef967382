"""A cover of the pairs of given ports: partial matchings that the mesh can hold, and a bound that no cover is below.

Each pair of ports is in exactly one matching of the cover. Some pairs exclude each other in a matching: those that
share a port, and those that a corner of the mesh keeps apart (``controllers.mesh.corners``). The pairs at one port, or
at two ports that a corner keeps apart, exclude each other all, so a cover has at least as many matchings (a clique of
the graph of exclusions is a bound of its colouring). States of the gates are looked for with which as many matchings
join all pairs (``controllers.mesh.gate_search``). Where some still wait for a matching, there is a further one.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

from controllers.mesh.corners import dead_end, forced_exits
from controllers.mesh.exact import route_exact
from controllers.mesh.gate_search import GateSearch
from controllers.mesh.light_paths import Infeasible, Pair, Routed
from controllers.mesh.negotiation import fewest_gates, route
from topos.mesh import Mesh

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
