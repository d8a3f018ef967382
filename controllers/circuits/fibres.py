"""The servers of a rack as a graph, the fibres between them, and the routes of circuits through them.

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
from functools import lru_cache
from heapq import heappop, heappush
from itertools import islice, pairwise
from typing import TypeVar

from railyard.errors import CircuitError
from topos.plan import RackPlan
from topos.torus import Torus

FIBRES = 4
"""Fibres between two adjacent servers (MORPHLUX, arXiv 2508.03674)."""
SHORTEST_ROUTES = 50
BEST_ROUTES = 5
"""Of the 50 shortest simple routes between two servers the best 5 are candidates (MORPHLUX, arXiv 2508.03674)."""

Edge = tuple[int, int]
"""Two adjacent servers, the lower first."""
Route = tuple[int, ...]
"""The servers that a circuit passes, both ends included; a circuit inside one server uses no fibre."""

Key = TypeVar("Key", bound=Hashable)


class FibrePlant:
    """The servers and fibres of the rack ``rack`` with ``ranks`` chips in all, including spare servers outside it.

    ``per_pair`` fibres join two adjacent servers. The paper does not say how a spare server outside the torus is
    reached: here it is adjacent to ``spare_neighbours`` servers, spread evenly over the torus (None: to every server,
    through the fabric of the rack), with ``per_pair`` fibres to each. No circuit passes through a spare server.
    """

    def __init__(
        self, rack: RackPlan, ranks: int, *, per_pair: int = FIBRES, spare_neighbours: int | None = None
    ) -> None:
        import networkx  # here, because it takes 0.1 s and not every fabric has fibres

        self.per_pair = per_pair
        self.torus = Torus(rack.torus, rack.server)
        inside = self.torus.servers * rack.racks
        self.graph = networkx.Graph()
        self.graph.add_nodes_from(range(inside))
        for first in range(0, inside, self.torus.servers):
            self.graph.add_edges_from((first + a, first + b) for a, b in sorted(self.links))
        self._outside = range(inside, -(-ranks // self.torus.chips_per_server))
        reach = inside if spare_neighbours is None else min(spare_neighbours, inside)
        self.graph.add_nodes_from(self._outside)
        self.graph.add_edges_from((spare, i * inside // reach) for spare in self._outside for i in range(reach))
        self._shortest: dict[Edge, tuple[Route, ...]] = {}

    @staticmethod
    @lru_cache(maxsize=16)
    def of(torus: Torus) -> FibrePlant:
        """The fibres of one rack without spare servers, cached so that its routes are searched once."""
        return FibrePlant(RackPlan(torus.shape, torus.server, 1, ()), torus.chips)

    @property
    def links(self) -> Counter[Edge]:
        """The links of one torus per edge: 4 in a rack of 4x4x4 with servers of 2x2x1."""
        return self.links_between((1 << self.torus.chips) - 1)

    def links_between(self, mask: int) -> Counter[Edge]:
        """Links between servers of one torus among the chips of ``mask``: the fibres of a contiguous slice."""
        return Counter(edge for edge, both in _torus_links(self.torus) if both & mask == both)

    def hops(self, target: int) -> Mapping[int, int]:
        import networkx

        found: dict[int, int] = networkx.single_source_shortest_path_length(self.graph, target)
        return found

    def shortest(self, source: int, target: int) -> tuple[Route, ...]:
        """The 50 shortest simple routes between two servers, shortest first, then by the numbers of their servers.

        Not by networkx, whose ``shortest_simple_paths`` takes about ten times as long (0.3 s of the limit of a request)
        and leaves open which of many equally long routes are among the 50.
        """
        low, high = server_pair(source, target)
        if (low, high) not in self._shortest:
            left = self.hops(high)
            lengths = range(left[low], len(self.graph))
            routes = (route for length in lengths for route in self._of_length((low,), length, left))
            self._shortest[low, high] = tuple(islice(routes, SHORTEST_ROUTES))
        found = self._shortest[low, high]
        return found if source == low else tuple(route[::-1] for route in found)

    def _of_length(self, route: Route, hops: int, left: Mapping[int, int]) -> Iterator[Route]:
        """The extensions of ``route`` by ``hops`` to the server where ``left``, the hops to it, is 0."""
        if hops == 0:
            yield route
        elif left[route[-1]]:  # a simple route ends where it arrives
            for there in sorted(self.graph[route[-1]]):
                if left[there] < hops and there not in route:
                    yield from self._of_length((*route, there), hops - 1, left)

    def candidates(self, source: int, target: int, used: Mapping[Edge, int], room: int) -> tuple[Route, ...]:
        """The best 5 of the ``shortest`` routes: the least used at their fullest edge, then the shortest.

        Routes with an edge on which more than ``room`` fibres are ``used`` are left out.
        """
        routes = self.shortest(source, target)
        rated = sorted((max([used.get(edge, 0) for edge in edges_of(route)]), len(route), route) for route in routes)
        return tuple(route for fullest, _, route in rated if fullest <= room)[:BEST_ROUTES]

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
            if all(used[edge] < self.per_pair for edge in edges_of(route)):
                routes[key] = route
                used.update(edges_of(route))
        server_of = self.torus.server_of
        ends = {key: (server_of(a), server_of(b)) for key, (a, b) in circuits.items() if key not in routes}
        length = {pair: len(self._search(*pair) or ()) for pair in set(ends.values())}
        for key, (a, b) in sorted(ends.items(), key=lambda item: length[item[1]]):
            found = self._search(a, b, used)
            if found is None:
                raise self._used_up(a, b, circuits[key], used)
            routes[key] = found
            used.update(edges_of(found))
        return routes

    def _search(self, a: int, b: int, used: Mapping[Edge, int] | None = None) -> Route | None:
        """The best route from server ``a`` to ``b`` over all fibres, or over those not ``used``; None without one.

        Dijkstra's algorithm over (hops, used fibres, servers): that of networkx leaves open which of equals it takes.
        """
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
            for there in self.graph[here]:
                taken = 0 if used is None else used.get(server_pair(here, there), 0)
                if there not in done and (used is None or taken < self.per_pair):
                    heappush(queue, (hops + 1, load + taken, (*route, there)))
        return None

    def _used_up(self, a: int, b: int, chips: tuple[int, int], used: Mapping[Edge, int]) -> CircuitError:
        circuit = f"the circuit from chip {chips[0]} to chip {chips[1]}"
        route = self._search(a, b)
        if route is None:
            return CircuitError(f"no fibres lead from server {a} to server {b}, which {circuit} would need")
        full = next(pair for pair in pairwise(route) if used.get(server_pair(*pair), 0) >= self.per_pair)
        return CircuitError(
            f"no fibre between server {full[0]} and server {full[1]} is free (of {self.per_pair}), nor is any other "
            f"route, for {circuit}"
        )


def server_pair(a: int, b: int) -> Edge:
    return (a, b) if a < b else (b, a)


@lru_cache(maxsize=1 << 16)
def edges_of(route: Route) -> tuple[Edge, ...]:
    return tuple(server_pair(a, b) for a, b in pairwise(route))


def fibres_used(routes: Iterable[Route]) -> Counter[Edge]:
    return Counter(edge for route in routes for edge in edges_of(route))


@lru_cache(maxsize=16)
def _torus_links(torus: Torus) -> tuple[tuple[Edge, int], ...]:
    """The links of the torus between servers: the two servers, and both chips as bits."""
    links = ((torus.server_of(a), torus.server_of(b), 1 << a | 1 << b) for a, _, b, _ in torus.links)
    return tuple((server_pair(a, b), both) for a, b, both in links if a != b)
