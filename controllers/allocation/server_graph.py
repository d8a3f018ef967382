"""The servers of a rack as a graph: neighbours, the fibres between them, and candidate paths."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from controllers.circuits.fibres import server_pair
from topos.torus import Torus

Edge = tuple[int, int]
"""Two neighbouring servers, the lower first."""
Path = tuple[int, ...]
"""The servers that circuits pass, both ends included; light passes servers in between without becoming electrical."""

SHORTEST_PATHS = 50
BEST_PATHS = 5
"""Of the 50 shortest simple paths between two servers the best 5 are candidates (MORPHLUX, arXiv 2508.03674)."""


def edges_of(path: Path) -> tuple[Edge, ...]:
    """The edges of a path, in order."""
    return tuple(server_pair(a, b) for a, b in pairwise(path))


@dataclass(frozen=True)
class ServerGraph:
    """The servers of ``torus``, which form a torus of blocks themselves."""

    torus: Torus
    _links: Mapping[Edge, int] = field(init=False, repr=False, compare=False)
    _neighbours: Mapping[int, tuple[int, ...]] = field(init=False, repr=False, compare=False)
    _found: dict[Edge, tuple[Path, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        links = self.links_between((1 << self.torus.chips) - 1)
        neighbours: dict[int, set[int]] = {server: set() for server in range(self.servers)}
        for a, b in links:
            neighbours[a].add(b)
            neighbours[b].add(a)
        object.__setattr__(self, "_links", links)
        object.__setattr__(self, "_neighbours", {a: tuple(sorted(bs)) for a, bs in neighbours.items()})

    @property
    def servers(self) -> int:
        """The number of servers of the torus."""
        return self.torus.chips // self.torus.chips_per_server

    @property
    def links(self) -> Mapping[Edge, int]:
        """The links of the torus of chips per edge: 4 in a rack of 4x4x4 with servers of 2x2x1."""
        return self._links

    def neighbours(self, server: int) -> tuple[int, ...]:
        """The servers next to ``server``."""
        return self._neighbours[server]

    def links_between(self, mask: int) -> dict[Edge, int]:
        """Links between servers among the chips of ``mask``: the fibres of a contiguous slice."""
        count: Counter[Edge] = Counter()
        for a, b, mine in _torus_links(self.torus):
            if mine & mask == mine:
                count[server_pair(a, b)] += 1
        return dict(count)

    def paths(self, source: int, target: int) -> tuple[Path, ...]:
        """The 50 shortest simple paths between two servers, shortest first, then by the numbers of their servers."""
        low, high = server_pair(source, target)
        if (low, high) not in self._found:
            self._found[low, high] = tuple(self._shortest(low, high))
        found = self._found[low, high]
        return found if source == low else tuple(path[::-1] for path in found)

    def candidates(self, source: int, target: int, used: Mapping[Edge, int], room: int) -> tuple[Path, ...]:
        """The best 5 of ``paths``: the least used at their fullest edge, then the shortest.

        Paths with an edge on which more than ``room`` fibres are ``used`` are left out.
        """
        rated = [(max(used.get(e, 0) for e in edges_of(path)), len(path), path) for path in self.paths(source, target)]
        return tuple(path for fullest, _, path in sorted(rated) if fullest <= room)[:BEST_PATHS]

    def distances(self, target: int) -> Mapping[int, int]:
        """Hops from every server to ``target``."""
        found = {target: 0}
        queue = deque([target])
        while queue:
            here = queue.popleft()
            for there in self.neighbours(here):
                if there not in found:
                    found[there] = found[here] + 1
                    queue.append(there)
        return found

    def _shortest(self, source: int, target: int) -> list[Path]:
        """The shortest paths by depth-first search for each length; branches that cannot arrive in time are pruned."""
        distances = self.distances(target)
        found: list[Path] = []
        for hops in range(distances[source], self.servers):
            for path in self._of_length((source,), hops, distances):
                found.append(path)
                if len(found) == SHORTEST_PATHS:
                    return found
        return found

    def _of_length(self, path: Path, hops: int, distances: Mapping[int, int]) -> Iterator[Path]:
        if hops == 0:
            if distances[path[-1]] == 0:
                yield path
            return
        if distances[path[-1]] == 0:
            return  # a simple path ends where it arrives
        for there in self.neighbours(path[-1]):
            if distances[there] < hops and there not in path:
                yield from self._of_length((*path, there), hops - 1, distances)


@lru_cache(maxsize=16)
def _torus_links(torus: Torus) -> tuple[tuple[int, int, int], ...]:
    """The links of the torus between servers: both servers, and both chips as bits."""
    found = []
    for a, _, b, _ in torus.links():
        first, second = torus.server_of(a), torus.server_of(b)
        if first != second:
            found.append((first, second, 1 << a | 1 << b))
    return tuple(found)


@lru_cache(maxsize=16)
def server_graph(torus: Torus) -> ServerGraph:
    """The server graph of ``torus``, cached so that its paths are searched once."""
    return ServerGraph(torus)
