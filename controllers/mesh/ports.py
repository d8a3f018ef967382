"""The choice of mesh ports, and of their order, such that every matching of an all-to-all can be laid.

Evenly spaced ports are tried first, then ports that do not block each other at the corners, from several starting
points; then the same ports in other orders, which is another 1-factorization over them; then random ports.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from controllers.circuits.matchings import one_factorization
from controllers.mesh.corners import forced_exits
from controllers.mesh.light_paths import Pair, Routed
from controllers.mesh.negotiation import route
from railyard.errors import ConfigError
from topos.mesh import Mesh, evenly_spaced

SEARCH_S = 60.0
"""The limit of the search for ports; those of 9x9 with 32 take a second."""

STARTS = 4
"""The number of starting points of evenly spaced ports."""

ORDERS = 6
"""The number of orders tried of the same ports."""

DRAWN = 40
"""The number of random choices of ports."""

TRIES = (2, 8, 40)
"""Negotiations for each matching: few for all choices first, then more."""


@dataclass(frozen=True)
class Choice:
    """Ports between which every matching of an all-to-all can be laid.

    Position i of ``one_factorization`` is at ``ports[i]``, ``matchings`` are its matchings as laid, in order, and
    ``how`` describes the choice in words.
    """

    ports: tuple[int, ...]
    matchings: tuple[Routed, ...]
    how: str


def choose_ports(mesh: Mesh, n: int) -> tuple[int, ...]:
    return choose(mesh, n).ports


@lru_cache(maxsize=64)
def choose(mesh: Mesh, n: int, *, seed: int = 0, time_s: float = SEARCH_S) -> Choice:
    """``n`` ports of the mesh, in an order in which every matching of ``one_factorization(n)`` can be laid.

    The result is deterministic unless time runs out. ``ConfigError`` if the mesh has fewer ports, or if no choice was
    found in ``time_s`` seconds.
    """
    evenly_spaced(mesh, n)  # checks that the mesh has n ports
    until = time.monotonic() + time_s
    matchings = one_factorization(n)
    for tries in TRIES:
        for ports, how in choices(mesh, n, seed):
            found = _all_routed(mesh, [[(ports[a], ports[b]) for a, b in turn] for turn in matchings], tries, until)
            if found is not None:
                return Choice(ports, found, how)
            if time.monotonic() > until:
                break
    raise ConfigError(
        f"no {n} ports of a mesh of {mesh.width} x {mesh.height} were found between which all {len(matchings)} "
        "matchings of an all-to-all can be laid; use fewer ports or a larger mesh",
        key="ports",
    )


def choices(mesh: Mesh, n: int, seed: int = 0) -> Iterator[tuple[tuple[int, ...], str]]:
    """Choices of ports to try, each with a description; ports that block each other are left out."""
    seen: set[tuple[int, ...]] = set()
    for ports, how in _candidates(mesh, n, Random(seed)):
        if ports not in seen and not forced_exits(mesh, ports):
            seen.add(ports)
            yield ports, how


def _candidates(mesh: Mesh, n: int, random: Random) -> Iterator[tuple[tuple[int, ...], str]]:
    spread = [(evenly_spaced(mesh, n), "evenly spaced")]
    for start in _starts(mesh, n):
        ports = spaced_clear(mesh, n, start)
        if ports is not None:
            spread.append((ports, f"evenly spaced from {start:g}, not blocking each other at the corners"))
    yield from spread
    for order in range(ORDERS):
        for ports, how in spread:
            yield tuple(random.sample(ports, n)), f"{how}; in another order ({order + 1})"
    for number in range(DRAWN):
        drawn = _drawn(mesh, n, random)
        if drawn is not None:
            yield drawn, f"drawn ({number + 1})"


def spaced_clear(mesh: Mesh, n: int, start: float = 0.0) -> tuple[int, ...] | None:
    """``n`` ports, the k-th of them near ``start + k P / n`` of P, that do not block each other at the corners."""
    count = len(mesh.ports)
    places = (int(start + k * count / n) for k in range(n))
    nearest = (sorted(range(count), key=lambda port: _distance(port, place, count)) for place in places)
    taken = _first_clear(mesh, nearest)
    return None if taken is None else tuple(sorted(taken))


def _distance(port: int, place: int, count: int) -> tuple[int, bool]:
    """Distance of a port from a place along the border; of two equally far ports the later is nearer."""
    ahead = (port - place) % count
    return min(ahead, count - ahead), ahead > count - ahead


def _drawn(mesh: Mesh, n: int, random: Random) -> tuple[int, ...] | None:
    """A random choice of ports in random order; None if they would block each other."""
    order = random.sample(range(len(mesh.ports)), len(mesh.ports))
    taken = _first_clear(mesh, [order] * n)
    return None if taken is None else tuple(taken)


def _first_clear(mesh: Mesh, wishes: Iterable[Sequence[int]]) -> list[int] | None:
    """For each wish the first of its ports that is free and blocks no other; None if a wish cannot be met."""
    taken: list[int] = []
    for ports in wishes:
        fitting = (p for p in ports if p not in taken and not forced_exits(mesh, [*taken, p]))
        port = next(fitting, None)
        if port is None:
            return None
        taken.append(port)
    return taken


def _starts(mesh: Mesh, n: int) -> tuple[float, ...]:
    """Starting points spread over one gap between two ports."""
    return tuple(round(k * len(mesh.ports) / n / STARTS, 2) for k in range(STARTS))


def _all_routed(mesh: Mesh, matchings: Iterable[Sequence[Pair]], tries: int, until: float) -> tuple[Routed, ...] | None:
    """Every matching as laid on the mesh; None as soon as one cannot be laid."""
    found = []
    for pairs in matchings:
        routed = route(mesh, pairs, tries=tries, time_s=until - time.monotonic())
        if routed is None:
            return None
        found.append(routed)
    return tuple(found)
