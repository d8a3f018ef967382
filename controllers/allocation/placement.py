"""The placement of a fragmented slice: its layout in parts, the server of each part, and the routes of its circuits.

A layout consists of slots, parts that each fit one server, and of the neighbours among them (``layouts``). Slices of
whole servers keep the shape that they would have as a block (a grid of slots, closed where the block spans the torus);
if there are not enough fibres for it, or the number has no such shape, the parts form one ring. A slice that is not a
multiple of a server, or larger than all free servers, is a ring of parts as large as the free chips of servers allow,
so it shares servers with others. Rings with half of the circuits, and with one circuit per hop, come last: such a slice
is slower but possible.

An integer program (``place``) assigns slots to free servers and each edge of the slice to a path. MORPHLUX
(arXiv 2508.03674) minimises z with z >= 4 (paths over e) + b(e) for every edge e between servers: 4 circuits for each
edge of the slice (a server has 2x2 chips), b(e) the circuits already present. Here z is read as the number of fibres
that the fullest edge needs, since each circuit uses a fibre of every edge that it passes. The formula does not bound z
by the fibres available (4), but a circuit without a fibre is impossible: that is a separate constraint here, and
``check_fibres`` checks it again without the solver. Variables: x[slot, server], and y[edge, path] for each candidate
path (the best 5 of the 50 shortest) between any two servers that the ends of the edge may take; the paths that leave a
server for an edge add up to x of that end.

The whole program has thousands of variables for a slice of half a rack and takes seconds. So slots are first assigned
to servers near each other (``placement``: a quadratic assignment problem, solved approximately, by exchanges from a
random start as long as the circuits need fewer fibres), and the program is solved for these servers alone, which takes
milliseconds. An answer whose z is that of the fullest edge before, or of one edge of the slice alone, cannot be
improved and ends the search. Only if all such attempts fail is the whole program solved, which can also prove that
there is no answer. Among answers of the same z for the same servers the one with the fewest fibres is taken.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from random import Random
from typing import Any, Literal

from controllers.allocation.boxes import shapes
from controllers.circuits.fibres import BEST_ROUTES, Edge, FibrePlant, Route, edges_of, fibres_used, server_pair
from railyard.errors import CircuitError
from topos.torus import Extents, Torus

_NO_PATH = 1_000
"""The cost, in hops, of an edge for which no candidate path has room."""


@dataclass(frozen=True)
class SlotEdge:
    """Neighbouring slots ``a`` and ``b`` of a slice, with ``circuits`` between them along one path."""

    a: int
    b: int
    circuits: int


@dataclass(frozen=True)
class SliceLayout:
    """The parts of a slice: for each slot the servers that it may take, the edges, and the chips of each slot."""

    slots: tuple[tuple[int, ...], ...]
    edges: tuple[SlotEdge, ...]
    sizes: tuple[int, ...] = ()


Placement = tuple[int, ...]
"""The server of each slot, by number of the slot."""


def placement(
    plant: FibrePlant, layout: SliceLayout, used: Mapping[Edge, int], fibres: int, attempts: int, seed: int
) -> Iterator[Placement]:
    """Up to ``attempts`` different assignments, each slot to one of its servers and no server twice.

    Nothing is yielded if there is no such assignment, or if none was found that gives every edge of the slice a path
    with room.
    """
    random, seen = Random(seed), set[Placement]()
    table = _Table(plant, layout.edges, used, fibres)
    for _ in range(attempts):
        start = _drawn(layout.slots, random)
        if start is None:
            return
        better = _improved(list(start), layout.slots, table)
        if better not in seen and table.total(better) < _NO_PATH:
            seen.add(better)
            yield better


class _Table:
    """The cost of assignments in fibres, over the best candidate path of each edge on its own."""

    def __init__(self, plant: FibrePlant, edges: Sequence[SlotEdge], used: Mapping[Edge, int], fibres: int) -> None:
        self._plant, self._used, self._fibres = plant, used, fibres
        self._edges = edges
        self._of_slot: dict[int, list[SlotEdge]] = {}
        for slot_edge in edges:
            self._of_slot.setdefault(slot_edge.a, []).append(slot_edge)
            self._of_slot.setdefault(slot_edge.b, []).append(slot_edge)
        self._hops: dict[tuple[int, int, int], int] = {}

    def total(self, servers: Sequence[int]) -> int:
        return sum(self._cost(slot_edge, servers) for slot_edge in self._edges)

    def of_slots(self, servers: Sequence[int], *slots: int) -> int:
        return sum(self._cost(slot_edge, servers) for slot in slots for slot_edge in self._of_slot.get(slot, ()))

    def _cost(self, slot_edge: SlotEdge, servers: Sequence[int]) -> int:
        u, v = servers[slot_edge.a], servers[slot_edge.b]
        key = (u, v, slot_edge.circuits)
        if key not in self._hops:
            found = self._plant.candidates(u, v, self._used, self._fibres - slot_edge.circuits)
            self._hops[key] = self._hops[v, u, slot_edge.circuits] = (
                slot_edge.circuits * (min(map(len, found)) - 1) if found else _NO_PATH
            )
        return self._hops[key]


def _drawn(slots: Sequence[Sequence[int]], random: Random) -> Placement | None:
    """A random assignment, slots with the least choice first; None if servers run out."""
    taken: dict[int, int] = {}
    for slot in sorted(range(len(slots)), key=lambda s: (len(slots[s]), random.random())):
        left = [server for server in slots[slot] if server not in taken.values()]
        if not left:
            return None
        taken[slot] = random.choice(left)
    return tuple(taken[slot] for slot in range(len(slots)))


def _improved(servers: list[int], slots: Sequence[Sequence[int]], table: _Table) -> Placement:
    """The assignment after exchanging slots, or moving one to a free server, while that needs fewer fibres."""
    allowed = [set(choices) for choices in slots]
    better = True
    while better:
        better = False
        for a, b in combinations(range(len(servers)), 2):
            if servers[b] in allowed[a] and servers[a] in allowed[b]:
                before = table.of_slots(servers, a, b)
                servers[a], servers[b] = servers[b], servers[a]
                if table.of_slots(servers, a, b) < before:
                    better = True
                else:
                    servers[a], servers[b] = servers[b], servers[a]
        for a, choices in enumerate(slots):
            for server in (s for s in choices if s not in servers):
                before, old = table.of_slots(servers, a), servers[a]
                servers[a] = server
                if table.of_slots(servers, a) < before:
                    better = True
                    break
                servers[a] = old
    return tuple(servers)


CHOICE = 4
"""The servers beyond the number of slots that a slot may choose from, nearest ones first: more are only slower."""


def layouts(
    plant: FibrePlant, chips: int, free: Mapping[int, int], fibres: int, extents: Extents | None = None
) -> Iterator[SliceLayout]:
    """The layouts of a slice of ``chips``, best first; ``free`` is the number of free chips of each server.

    ``extents``: the only block, in any orientation, whose grid is wanted; a ring still comes last.

    Every edge has as many circuits as two adjacent servers have links (``fibres`` at most): 4. A part of a single chip
    has only 3 of its 6 ports for each of two neighbours.
    """
    torus = plant.torus
    each = torus.chips_per_server
    whole = sorted(server for server, count in free.items() if count == each)
    count, rest = divmod(chips, each)
    bundle = min(fibres, each)
    if rest == 0 and 0 < count <= len(whole):
        near = _nearest(plant, whole, count)
        same = (each,) * count
        for edges in [*_grids(torus, chips, bundle, extents), *_rings(same, torus, bundle)]:
            yield SliceLayout((near,) * count, edges, same)
        return
    sizes = _sizes(chips, free)
    if sizes:
        eligible = tuple(tuple(sorted(s for s, n in free.items() if n >= size)) for size in sizes)
        for edges in _rings(sizes, torus, bundle):
            yield SliceLayout(eligible, edges, sizes)


def _sizes(chips: int, free: Mapping[int, int]) -> tuple[int, ...]:
    """The sizes of the fewest possible parts, largest first; empty if there are too few free chips."""
    sizes = []
    for count in sorted(free.values(), reverse=True):
        if chips and count:
            sizes.append(min(count, chips))
            chips -= sizes[-1]
    return () if chips else tuple(sizes)


def _grids(torus: Torus, chips: int, circuits: int, wanted: Extents | None) -> list[tuple[SlotEdge, ...]]:
    """The edges of each shape that the block could have; shapes that differ only in orientation count as one."""
    found: dict[tuple[tuple[int, bool], ...], tuple[SlotEdge, ...]] = {}
    for extents in shapes(torus, chips):
        if wanted is not None and sorted(extents) != sorted(wanted):
            continue
        blocks = [e // s for e, s in zip(extents, torus.server, strict=True)]
        closed = [b == n and n > 2 for b, n in zip(blocks, torus.blocks, strict=True)]
        found.setdefault(tuple(sorted(zip(blocks, closed, strict=True))), _grid(blocks, closed, circuits))
    return list(found.values())


def _grid(blocks: list[int], closed: list[bool], circuits: int) -> tuple[SlotEdge, ...]:
    import networkx  # here, because it takes 0.1 s and few slices are fragmented

    number = {place: slot for slot, place in enumerate(product(*map(range, blocks)))}
    grid = networkx.grid_graph(blocks[::-1], periodic=closed[::-1])
    pairs = sorted(server_pair(number[a], number[b]) for a, b in grid.edges)
    return tuple(SlotEdge(a, b, circuits) for a, b in pairs)


def _rings(sizes: tuple[int, ...], torus: Torus, bundle: int) -> list[tuple[SlotEdge, ...]]:
    """The edges of the ring with full bundles of circuits, with half of them, and with single circuits."""
    widths = dict.fromkeys((bundle, max(1, bundle // 2), 1))
    return list(dict.fromkeys(_ring(sizes, torus, width) for width in widths))


def _ring(sizes: tuple[int, ...], torus: Torus, bundle: int) -> tuple[SlotEdge, ...]:
    """The edges of a ring of the parts; two parts are joined once, a single part has no edge."""
    if len(sizes) == 1:
        return ()
    ends = list(pairwise(range(len(sizes)))) + ([(0, len(sizes) - 1)] if len(sizes) > 2 else [])
    ports = len(torus.directions)
    sides = 1 if len(sizes) == 2 else 2
    return tuple(SlotEdge(a, b, max(1, min(bundle, ports * min(sizes[a], sizes[b]) // sides))) for a, b in ends)


def _nearest(plant: FibrePlant, servers: list[int], count: int) -> tuple[int, ...]:
    """The servers of ``servers`` that are nearest together: ``count`` and ``CHOICE`` more."""
    if len(servers) <= count + CHOICE:
        return tuple(servers)
    groups = []
    for centre in servers:
        hops = plant.hops(centre)
        group = sorted(servers, key=lambda server: (hops[server], server))[: count + CHOICE]
        groups.append((sum(hops[server] for server in group), sorted(group)))
    return tuple(min(groups)[1])


LIMIT_S = 0.5
"""Wall-clock limit of one program; MORPHLUX reports less than 0.6 s for a request."""
ATTEMPTS = 24
"""The number of assignments of slots to servers that are tried before the whole program."""
ROUTE_S = 1e-4
"""Time to write down one route of the program and solve it, roughly; a program without enough time is not begun."""


@dataclass(frozen=True)
class SlicePlacement:
    """A placement: ``servers`` by slot, ``routes`` by edge from a's server to b's, ``z`` fibres on the fullest edge."""

    servers: tuple[int, ...]
    routes: tuple[Route, ...]
    z: int


def place(
    plant: FibrePlant,
    layout: SliceLayout,
    used: Mapping[Edge, int],
    *,
    fibres: int,
    limit_s: float = LIMIT_S,
    seed: int = 1,
    whole: bool = True,
) -> SlicePlacement | Literal["impossible", "time"]:
    """Solve the program with CP-SAT: one worker and a fixed seed, so the result is deterministic unless time runs out.

    ``limit_s`` is wall-clock time, without the first import of the solver. ``whole``: whether the whole program is
    solved if the attempts fail. A placement that fails is ``impossible`` (proved, for these candidates) or takes too
    much ``time``.
    """
    import_solver()
    until = time.monotonic() + limit_s
    least = max([*used.values(), *(slot_edge.circuits for slot_edge in layout.edges)], default=0)
    best: SlicePlacement | None = None
    for servers in placement(plant, layout, used, fibres, ATTEMPTS, seed):
        assigned = SliceLayout(tuple((server,) for server in servers), layout.edges)
        found = _Program(plant, assigned, used, fibres).solve(until - time.monotonic(), seed)
        if isinstance(found, SlicePlacement) and (best is None or found.z < best.z):
            best = found
        if (best is not None and best.z <= least) or until - time.monotonic() < limit_s / 2:
            break
    if best is not None:
        return best
    routes = BEST_ROUTES * sum(len(layout.slots[e.a]) * len(layout.slots[e.b]) for e in layout.edges)
    if not whole or time.monotonic() + routes * ROUTE_S > until:
        return "time"
    found = _Program(plant, layout, used, fibres).solve(until - time.monotonic(), seed)
    if isinstance(found, SlicePlacement):
        return found
    return "impossible" if found == "INFEASIBLE" else "time"


def import_solver() -> Any:
    """The module of CP-SAT, imported only when needed: the first import takes 0.3 to 0.7 s."""
    from ortools.sat.python import cp_model

    return cp_model


def fibres_of(edges: Sequence[SlotEdge], routes: Sequence[Route]) -> Counter[Edge]:
    """The number of fibres that the circuits of ``edges`` use along ``routes``, by edge between servers."""
    return fibres_used(route for edge, route in zip(edges, routes, strict=True) for _ in range(edge.circuits))


def check_fibres(plant: FibrePlant, used: Mapping[Edge, int], fibres: int) -> None:
    """Check the fibres in use against ``fibres`` per edge.

    ``CircuitError`` names an edge with too many circuits, or servers that are not adjacent.
    """
    for (a, b), count in used.items():
        if not plant.graph.has_edge(a, b):
            raise CircuitError(f"servers {a} and {b} are not adjacent, so no circuit can join them directly")
        if count > fibres:
            raise CircuitError(f"servers {a} and {b} have {fibres} fibres for {count} circuits; each needs its own")


class _Program:
    """The integer program of a placement: the model and its variables."""

    def __init__(self, plant: FibrePlant, layout: SliceLayout, used: Mapping[Edge, int], fibres: int) -> None:
        self.cp_model = import_solver()
        self.model: Any = self.cp_model.CpModel()
        self.layout = layout
        self.used = used
        self.complete = True
        self.x = [{v: self.model.new_bool_var("") for v in servers} for servers in layout.slots]
        self.y: list[dict[Route, Any]] = []
        self.load: dict[Edge, list[Any]] = defaultdict(list)
        self._slots()
        for slot_edge in layout.edges:
            self._routes(plant, slot_edge, fibres)
        self._objective(fibres)

    def _slots(self) -> None:
        takers: dict[int, list[Any]] = defaultdict(list)
        for choices in self.x:
            self.model.add_exactly_one(choices.values())
            for server, taken in choices.items():
                takers[server].append(taken)
        for together in takers.values():
            if len(together) > 1:
                self.model.add_at_most_one(together)

    def _routes(self, plant: FibrePlant, slot_edge: SlotEdge, fibres: int) -> None:
        """Add one route for the edge, from the server of its one end to that of the other."""
        chosen: dict[Route, Any] = {}
        leaving: dict[int, list[Any]] = defaultdict(list)
        arriving: dict[int, list[Any]] = defaultdict(list)
        for u, v in product(self.layout.slots[slot_edge.a], self.layout.slots[slot_edge.b]):
            for route in plant.candidates(u, v, self.used, fibres - slot_edge.circuits) if u != v else ():
                chosen[route] = self.model.new_bool_var("")
                leaving[u].append(chosen[route])
                arriving[v].append(chosen[route])
                for e in edges_of(route):
                    self.load[e].append(slot_edge.circuits * chosen[route])
        self.y.append(chosen)
        self.complete = self.complete and bool(chosen)
        for variables, here in ((leaving, slot_edge.a), (arriving, slot_edge.b)):
            for server, taken in self.x[here].items():
                self.model.add(sum(variables[server]) == taken)

    def _objective(self, fibres: int) -> None:
        """Minimise z; if the servers are given, use the fewest fibres among the answers with the least z."""
        least = max(self.used.values(), default=0)
        z = self.model.new_int_var(least, max(fibres, least), "z")
        for e, terms in self.load.items():
            self.model.add(sum(terms) + self.used.get(e, 0) <= z)
        given = all(len(servers) == 1 for servers in self.layout.slots)
        total = [term for terms in self.load.values() for term in terms] if given else []
        self.model.minimize((1 + len(self.load) * fibres) * z + sum(total))

    def solve(self, limit_s: float, seed: int) -> SlicePlacement | str:
        """The placement, or the status of CP-SAT if there is no answer."""
        if not self.complete:
            return "INFEASIBLE"
        if limit_s <= 0:
            return "UNKNOWN"
        solver = self.cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed
        solver.parameters.catch_sigint_signal = False  # Ctrl-C is Python's
        solver.parameters.max_time_in_seconds = limit_s
        status = solver.solve(self.model)
        if status not in (self.cp_model.OPTIMAL, self.cp_model.FEASIBLE):
            return str(solver.status_name(status))
        servers = tuple(next(v for v, taken in choices.items() if solver.value(taken)) for choices in self.x)
        routes = tuple(next(r for r, taken in chosen.items() if solver.value(taken)) for chosen in self.y)
        total = Counter(self.used) + fibres_of(self.layout.edges, routes)
        return SlicePlacement(servers, routes, max(total.values(), default=0))
