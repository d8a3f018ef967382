"""The integer program of a fragmented slice: it assigns slots to free servers and each edge of the slice to a path.

MORPHLUX (arXiv 2508.03674) minimises z with z >= 4 (paths over e) + b(e) for every edge e between servers: 4 circuits
for each edge of the slice (a server has 2x2 chips), b(e) the circuits already present. Here z is read as the number of
fibres that the fullest edge needs, since each circuit uses a fibre of every edge that it passes. The formula does not
bound z by the fibres available (4), but a circuit without a fibre is impossible: that is a separate constraint here,
and ``check_fibres`` checks it again without the solver.

Variables: x[slot, server], and y[edge, path] for each candidate path (the best 5 of the 50 shortest) between any two
servers that the ends of the edge may take; the paths that leave a server for an edge add up to x of that end.

The whole program has thousands of variables for a slice of half a rack and takes seconds. So slots are first assigned
to servers near each other (``controllers.allocation.placement``), and the program is solved for these servers alone,
which takes milliseconds. An answer whose z is that of the fullest edge before, or of one edge of the slice alone,
cannot be improved and ends the search. Only if all such attempts fail is the whole program solved, which can also prove
that there is no answer. Among answers of the same z for the same servers the one with the fewest fibres is taken.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from controllers.allocation.placement import SlotEdge, placement
from controllers.allocation.server_graph import BEST_PATHS, Edge, Path, ServerGraph, edges_of
from railyard.errors import CircuitError

LIMIT_S = 0.5
"""Wall-clock limit of one program; MORPHLUX reports less than 0.6 s for a request."""
ATTEMPTS = 24
"""The number of assignments of slots to servers that are tried before the whole program."""
PATH_S = 1e-4
"""Time to write down one path of the program and solve it, roughly; a program without enough time is not begun."""


@dataclass(frozen=True)
class SlicePlacement:
    """The slice to place: for each slot the servers that it may take, and the neighbouring slots (edges)."""

    slots: tuple[tuple[int, ...], ...]
    edges: tuple[SlotEdge, ...]


@dataclass(frozen=True)
class Placed:
    """A placement: ``servers`` by slot, ``paths`` by edge from a's server to b's, ``z`` fibres on the fullest edge."""

    servers: tuple[int, ...]
    paths: tuple[Path, ...]
    z: int
    attempts: int
    solve_s: float


@dataclass(frozen=True)
class Unplaced:
    """A failed placement: ``impossible`` (proved, for these candidates) or ``time`` (no answer within the limits)."""

    reason: Literal["impossible", "time"]
    solve_s: float


def place(
    graph: ServerGraph,
    layout: SlicePlacement,
    used: Mapping[Edge, int],
    *,
    fibres: int,
    limit_s: float = LIMIT_S,
    seed: int = 1,
    whole: bool = True,
) -> Placed | Unplaced:
    """Solve the program with CP-SAT: one worker and a fixed seed, so the result is deterministic unless time runs out.

    ``limit_s`` is wall-clock time, without the first import of the solver. ``whole``: whether the whole program is
    solved if the attempts fail.
    """
    import_solver()
    begin = time.monotonic()
    least = max([*used.values(), *(slot_edge.circuits for slot_edge in layout.edges)], default=0)
    best: Placed | None = None
    attempts = 0
    for servers in placement(graph, layout.slots, layout.edges, used, fibres, ATTEMPTS, seed):
        attempts += 1
        assigned = SlicePlacement(tuple((server,) for server in servers), layout.edges)
        found = _Program(graph, assigned, used, fibres).solve(limit_s - (time.monotonic() - begin), seed)
        if not isinstance(found, str):
            placed = _placed(layout, used, found, attempts, begin)
            best = placed if best is None or placed.z < best.z else best
            if best.z <= least:
                break
        if time.monotonic() - begin > limit_s / 2:
            break
    if best is not None:
        return best
    paths = BEST_PATHS * sum(len(layout.slots[e.a]) * len(layout.slots[e.b]) for e in layout.edges)
    if not whole or time.monotonic() - begin + paths * PATH_S > limit_s:
        return Unplaced("time", time.monotonic() - begin)
    found = _Program(graph, layout, used, fibres).solve(limit_s - (time.monotonic() - begin), seed)
    if isinstance(found, str):
        return Unplaced("impossible" if found == "INFEASIBLE" else "time", time.monotonic() - begin)
    return _placed(layout, used, found, attempts + 1, begin)


def import_solver() -> Any:
    """The module of CP-SAT, imported only when needed: the first import takes 0.3 to 0.7 s."""
    from ortools.sat.python import cp_model

    return cp_model


Found = tuple[tuple[int, ...], tuple[Path, ...]]


def _placed(layout: SlicePlacement, used: Mapping[Edge, int], found: Found, attempts: int, begin: float) -> Placed:
    servers, paths = found
    total = Counter(used) + fibres_of(layout.edges, paths)
    return Placed(servers, paths, max(total.values(), default=0), attempts, time.monotonic() - begin)


def fibres_of(edges: Sequence[SlotEdge], paths: Sequence[Path]) -> Counter[Edge]:
    """The number of fibres that circuits along ``paths`` use, by edge between servers."""
    count: Counter[Edge] = Counter()
    for slot_edge, path in zip(edges, paths, strict=True):
        for e in edges_of(path):
            count[e] += slot_edge.circuits
    return count


def check_fibres(graph: ServerGraph, used: Mapping[Edge, int], fibres: int) -> None:
    """Check the fibres in use against ``fibres`` per edge.

    ``CircuitError`` names an edge with too many circuits, or servers that are not adjacent.
    """
    for (a, b), count in used.items():
        if b not in graph.neighbours(a):
            raise CircuitError(f"servers {a} and {b} are not adjacent, so no circuit can join them directly")
        if count > fibres:
            raise CircuitError(f"servers {a} and {b} have {fibres} fibres for {count} circuits; each needs its own")


class _Program:
    """The integer program of a placement: the model and its variables."""

    def __init__(self, graph: ServerGraph, layout: SlicePlacement, used: Mapping[Edge, int], fibres: int) -> None:
        self.cp_model = import_solver()
        self.model: Any = self.cp_model.CpModel()
        self.layout = layout
        self.complete = True
        self.x = [{v: self.model.new_bool_var("") for v in servers} for servers in layout.slots]
        self.y: list[dict[Path, Any]] = []
        self.load: dict[Edge, list[Any]] = defaultdict(list)
        self._slots()
        for slot_edge in layout.edges:
            self._paths(graph, slot_edge, used, fibres)
        self._objective(used, fibres)

    def _slots(self) -> None:
        takers: dict[int, list[Any]] = defaultdict(list)
        for choices in self.x:
            self.model.add_exactly_one(choices.values())
            for server, taken in choices.items():
                takers[server].append(taken)
        for together in takers.values():
            if len(together) > 1:
                self.model.add_at_most_one(together)

    def _paths(self, graph: ServerGraph, slot_edge: SlotEdge, used: Mapping[Edge, int], fibres: int) -> None:
        """Add one path for the edge, from the server of its one end to that of the other."""
        chosen: dict[Path, Any] = {}
        leaving: dict[int, list[Any]] = defaultdict(list)
        arriving: dict[int, list[Any]] = defaultdict(list)
        for u, v in product(self.layout.slots[slot_edge.a], self.layout.slots[slot_edge.b]):
            for path in graph.candidates(u, v, used, fibres - slot_edge.circuits) if u != v else ():
                chosen[path] = self.model.new_bool_var("")
                leaving[u].append(chosen[path])
                arriving[v].append(chosen[path])
                for e in edges_of(path):
                    self.load[e].append(slot_edge.circuits * chosen[path])
        self.y.append(chosen)
        self.complete = self.complete and bool(chosen)
        for variables, here in ((leaving, slot_edge.a), (arriving, slot_edge.b)):
            for server, taken in self.x[here].items():
                self.model.add(sum(variables[server]) == taken)

    def _objective(self, used: Mapping[Edge, int], fibres: int) -> None:
        """Minimise z; if the servers are given, use the fewest fibres among the answers with the least z."""
        least = max(used.values(), default=0)
        z = self.model.new_int_var(least, max(fibres, least), "z")
        for e, terms in self.load.items():
            self.model.add(sum(terms) + used.get(e, 0) <= z)
        given = all(len(servers) == 1 for servers in self.layout.slots)
        total = [term for terms in self.load.values() for term in terms] if given else []
        self.model.minimize((1 + len(self.load) * fibres) * z + sum(total))

    def solve(self, limit_s: float, seed: int) -> Found | str:
        """Servers by slot and paths by edge, or the status of CP-SAT if there is no answer."""
        if not self.complete:
            return "INFEASIBLE"
        if limit_s <= 0:
            return "UNKNOWN"
        solver = self.cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed
        solver.parameters.max_time_in_seconds = limit_s
        status = solver.solve(self.model)
        if status not in (self.cp_model.OPTIMAL, self.cp_model.FEASIBLE):
            return str(solver.status_name(status))
        servers = tuple(next(v for v, taken in choices.items() if solver.value(taken)) for choices in self.x)
        paths = tuple(next(p for p, taken in chosen.items() if solver.value(taken)) for chosen in self.y)
        return servers, paths
