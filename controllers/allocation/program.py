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

from controllers.allocation.placement import SliceLayout, SlotEdge, placement
from controllers.circuits.fibres import BEST_ROUTES, Edge, FibrePlant, Route, edges_of, fibres_used
from railyard.errors import CircuitError

LIMIT_S = 0.5
"""Wall-clock limit of one program; MORPHLUX reports less than 0.6 s for a request."""
ATTEMPTS = 24
"""The number of assignments of slots to servers that are tried before the whole program."""
ROUTE_S = 1e-4
"""Time to write down one route of the program and solve it, roughly; a program without enough time is not begun."""


@dataclass(frozen=True)
class Placed:
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
) -> Placed | Literal["impossible", "time"]:
    """Solve the program with CP-SAT: one worker and a fixed seed, so the result is deterministic unless time runs out.

    ``limit_s`` is wall-clock time, without the first import of the solver. ``whole``: whether the whole program is
    solved if the attempts fail. A placement that fails is ``impossible`` (proved, for these candidates) or takes too
    much ``time``.
    """
    import_solver()
    until = time.monotonic() + limit_s
    least = max([*used.values(), *(slot_edge.circuits for slot_edge in layout.edges)], default=0)
    best: Placed | None = None
    for servers in placement(plant, layout, used, fibres, ATTEMPTS, seed):
        assigned = SliceLayout(tuple((server,) for server in servers), layout.edges)
        found = _Program(plant, assigned, used, fibres).solve(until - time.monotonic(), seed)
        if isinstance(found, Placed) and (best is None or found.z < best.z):
            best = found
        if (best is not None and best.z <= least) or until - time.monotonic() < limit_s / 2:
            break
    if best is not None:
        return best
    routes = BEST_ROUTES * sum(len(layout.slots[e.a]) * len(layout.slots[e.b]) for e in layout.edges)
    if not whole or time.monotonic() + routes * ROUTE_S > until:
        return "time"
    found = _Program(plant, layout, used, fibres).solve(until - time.monotonic(), seed)
    if isinstance(found, Placed):
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

    def solve(self, limit_s: float, seed: int) -> Placed | str:
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
        return Placed(servers, routes, max(total.values(), default=0))
