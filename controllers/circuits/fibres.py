"""The fibres between the servers of a rack, and the routes of circuits through them.

A server has its own photonic fabric, which joins any port of its chips to another one or to a fibre. Adjacent servers
of the torus are joined by 4 fibres (MORPHLUX, arXiv 2508.03674). In its rack of 4 x 4 x 4 chips in servers of 2 x 2 x 1
these are the links of the torus between two servers: along z one for each of 4 chips; along x (and y) one for each of 2
chips that face the neighbour, and, as there are two servers on that circle, one for each of 2 that reach the same
neighbour on its other side. A fibre belongs to the pair of servers, not to a chip: the circuit of any chip may use any
of the 4, and so may circuits of third servers that pass through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import pairwise
from typing import TypeVar

from railyard.errors import CircuitError
from topos.plan import RackPlan
from topos.torus import Torus

FIBRES = 4
"""Fibres between two adjacent servers (MORPHLUX, arXiv 2508.03674)."""

Route = tuple[int, ...]
"""The servers that a circuit passes, both ends included; a circuit inside one server uses no fibre."""

Key = TypeVar("Key", bound=Hashable)


class FibrePlant:
    """The fibres of the rack ``rack`` with ``ranks`` chips in all, including spare servers outside the torus.

    ``per_pair`` fibres join two adjacent servers. The paper does not say how a spare server outside the torus is
    reached: here it is adjacent to ``spare_neighbours`` servers, spread evenly over the torus (None: to every server,
    through the fabric of the rack), with ``per_pair`` fibres to each. No circuit passes through a spare server.
    """

    def __init__(
        self, rack: RackPlan, ranks: int, *, per_pair: int = FIBRES, spare_neighbours: int | None = None
    ) -> None:
        self.per_pair = per_pair
        self._chips_per_server = Torus(rack.torus, rack.server).chips_per_server
        self._neighbours: dict[int, set[int]] = {}
        for a, b in _torus_pairs(rack):
            self._join(a, b)
        inside = Torus(rack.torus, rack.server).chips // self._chips_per_server * rack.racks
        self._outside = range(inside, -(-ranks // self._chips_per_server))
        reach = inside if spare_neighbours is None else min(spare_neighbours, inside)
        for spare in self._outside:
            for index in range(reach):
                self._join(spare, index * inside // reach)

    def server_of(self, rank: int) -> int:
        """The server that chip ``rank`` is in."""
        return rank // self._chips_per_server

    def neighbours(self, server: int) -> list[int]:
        """The servers that fibres join to ``server``, ascending."""
        return sorted(self._neighbours.get(server, ()))

    def routed(
        self,
        circuits: Mapping[Key, tuple[int, int]],
        kept: Mapping[Key, Route] | None = None,
        preferred: Mapping[Key, Route] | None = None,
    ) -> dict[Key, Route]:
        """``kept`` and a route over free fibres for each of ``circuits`` (its two chips).

        Circuits with a ``preferred`` route come first and get it if it is free. Of the others, those between servers
        close to each other come first, since they have the least choice; each gets the fewest hops, then the least used
        fibres, then the lowest servers. So the same circuits always get the same routes. No route is changed for a
        later circuit, so a circuit may be refused although other routes would have left room: ``CircuitError`` naming
        two servers whose fibres are used up.
        """
        routes = dict(kept or {})
        used = fibres_used(routes.values())
        for key in [key for key in preferred or {} if key in circuits and key not in routes]:
            route = (preferred or {})[key]
            if all(used[server_pair(*pair)] < self.per_pair for pair in pairwise(route)):
                routes[key] = route
                used.update(fibres_used([route]))
        ends = {key: (self.server_of(a), self.server_of(b)) for key, (a, b) in circuits.items() if key not in routes}
        length = {pair: len(self._search(*pair) or ()) for pair in set(ends.values())}
        for key, (a, b) in sorted(ends.items(), key=lambda item: length[item[1]]):
            found = self._search(a, b, used)
            if found is None:
                raise self._used_up(a, b, circuits[key], used)
            routes[key] = found
            used.update(fibres_used([found]))
        return routes

    def _join(self, a: int, b: int) -> None:
        self._neighbours.setdefault(a, set()).add(b)
        self._neighbours.setdefault(b, set()).add(a)

    def _search(self, a: int, b: int, used: Mapping[tuple[int, int], int] | None = None) -> Route | None:
        """The best route from server ``a`` to ``b`` over all fibres, or over those not ``used``; None without one."""
        queue: list[tuple[int, int, Route]] = [(0, 0, (a,))]
        done: set[int] = set()
        while queue:
            hops, load, route = heappop(queue)
            here = route[-1]
            if here == b:
                return route
            if here in done or (here in self._outside and here != a):
                continue
            done.add(here)
            for there in self.neighbours(here):
                taken = 0 if used is None else used.get(server_pair(here, there), 0)
                if there not in done and (used is None or taken < self.per_pair):
                    heappush(queue, (hops + 1, load + taken, (*route, there)))
        return None

    def _used_up(self, a: int, b: int, chips: tuple[int, int], used: Mapping[tuple[int, int], int]) -> CircuitError:
        circuit = f"the circuit from chip {chips[0]} to chip {chips[1]}"
        route = self._search(a, b)
        if route is None:
            return CircuitError(f"no fibres lead from server {a} to server {b}, which {circuit} would need")
        full = next(pair for pair in pairwise(route) if used.get(server_pair(*pair), 0) >= self.per_pair)
        return CircuitError(
            f"no fibre between server {full[0]} and server {full[1]} is free (of {self.per_pair}), nor is any other "
            f"route, for {circuit}"
        )


def server_pair(a: int, b: int) -> tuple[int, int]:
    """The pair of two adjacent servers, the lower first."""
    return (a, b) if a < b else (b, a)


def fibres_used(routes: Iterable[Route]) -> Counter[tuple[int, int]]:
    """The number of fibres that ``routes`` use between each pair of servers."""
    return Counter(server_pair(a, b) for route in routes for a, b in pairwise(route))


def _torus_pairs(rack: RackPlan) -> Iterator[tuple[int, int]]:
    """Adjacent servers of every torus of the rack."""
    servers = Torus(Torus(rack.torus, rack.server).blocks, (1, 1, 1))
    for first in range(0, rack.racks * servers.chips, servers.chips):
        yield from ((first + a, first + b) for a, _, b, _ in servers.links())
