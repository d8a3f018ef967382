"""Circuits laid on a mesh with the fewest cells, or the proof that they cannot be: an integer program for CP-SAT.

For every circuit and every way through a cell (bar on the left, bar on the right, cross one way, cross the other):
does the circuit go this way? Light has no direction here, as a circuit has none. A waveguide is in use at both its ends
or at neither, by one circuit; a cell is in one state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from controllers.mesh.corners import dead_end
from controllers.mesh.light_paths import (
    CellStep,
    Infeasible,
    Pair,
    Paths,
    Routed,
    check,
    hops,
    laid,
    ordered_pairs,
    standing_ways,
)
from controllers.mesh.negotiation import cells_to
from railyard.errors import CircuitError
from topos.mesh import Mesh

WORKERS = 2
"""Threads of the solver; with one the optima of the larger meshes take three times as long."""

Way = tuple[int, int]
"""The two ends of a way through a cell, the lower first: which it is follows from them."""


def route_exact(
    mesh: Mesh,
    pairs: Iterable[Pair],
    *,
    fixed: Paths | None = None,
    hint: Routed | None = None,
    seed: int = 0,
    time_s: float = 60.0,
) -> Routed | Infeasible | None:
    """Lay the circuits with as few cells crossed in all as can be (``proved``), or prove that it cannot be done.

    After ``time_s`` seconds: the best found so far, without proof, else None. ``hint`` is a way to lay them that is
    known (``route``): what crosses more cells is not looked at, and it is the answer if nothing better turns up.
    ``fixed`` and errors as in ``route``; ``CircuitError`` also for a hint that is no way to lay them.
    """
    standing = standing_ways(mesh, fixed)
    asked = ordered_pairs(mesh, [*pairs, *standing])
    new = [pair for pair in asked if pair not in standing]
    if hint is not None:
        _check_hint(mesh, hint, asked, standing)
    if dead_end(mesh, asked):
        return Infeasible(tuple(new), tuple(sorted(standing)))
    least = [cells_to(mesh, b)[mesh.ports[a].end] for a, b in new]
    known = None if hint is None else sum(len(hint.paths[pair]) for pair in new)
    if hint is not None and known == sum(least):
        return Routed(hint.states, hint.paths, hint.cells, proved=True)
    program = _Program(mesh, new, standing, None if known is None else known - sum(least))
    status = program.solve(time_s, seed, hint)
    if status == "INFEASIBLE":
        return Infeasible(tuple(new), tuple(sorted(standing)))
    if status not in ("OPTIMAL", "FEASIBLE"):
        return hint
    return laid(mesh, {**program.ways(), **standing}, proved=status == "OPTIMAL")


def _check_hint(mesh: Mesh, hint: Routed, pairs: Iterable[Pair], standing: Mapping[Pair, Sequence[CellStep]]) -> None:
    check(mesh, hint, pairs)
    for pair, way in standing.items():
        if hint.paths[pair] != tuple(end >> 2 for end, _ in way):
            raise CircuitError(f"the hint lays circuit {pair[0]}-{pair[1]} otherwise than it stands; it has to stay")


class _Program:
    """The model and its variables. ``slack``: cells that all paths together may cross beyond the fewest, if known."""

    def __init__(
        self, mesh: Mesh, pairs: Sequence[Pair], standing: Mapping[Pair, Sequence[CellStep]], slack: int | None
    ) -> None:
        # 0.3 to 0.7 s the first time, so whoever needs no proof does not pay for it.
        from ortools.sat.python import cp_model

        self.cp_model: Any = cp_model
        self.model: Any = cp_model.CpModel()
        self.mesh = mesh
        self.pairs = pairs
        self.slack = slack
        self.cross = [self.model.new_bool_var("") for _ in mesh.cells]
        self.goes: list[dict[Way, Any]] = [self._variables(pair) for pair in pairs]
        self._stand(standing)
        for number, pair in enumerate(pairs):
            self._keep_going(number, pair)
        self._share()
        every = [goes for ways in self.goes for goes in ways.values()]
        self.model.minimize(sum(every))
        if slack is not None:
            self.model.add(sum(every) <= slack + sum(self._least(pair) for pair in pairs))

    def _least(self, pair: Pair) -> int:
        return cells_to(self.mesh, pair[1])[self.mesh.ports[pair[0]].end]

    def _variables(self, pair: Pair) -> dict[Way, Any]:
        """One for every way that a path short enough could take."""
        to_a, to_b = cells_to(self.mesh, pair[0]), cells_to(self.mesh, pair[1])
        longest = len(self.mesh.facing) if self.slack is None else self._least(pair) + self.slack

        def shortest(entering: int, leaving: int) -> int:
            """Of a path from a to b that goes from the one end to the other: followed back, it enters there."""
            before = _cells_on(self.mesh, entering, pair[0], to_a)
            after = _cells_on(self.mesh, leaving, pair[1], to_b)
            return before + 1 + after

        ways = [
            (4 * c.number + near, 4 * c.number + far)
            for c in self.mesh.cells
            for near, far in ((0, 2), (1, 3), (0, 3), (1, 2))
        ]
        return {(x, y): self.model.new_bool_var("") for x, y in ways if min(shortest(x, y), shortest(y, x)) <= longest}

    def _stand(self, standing: Mapping[Pair, Sequence[CellStep]]) -> None:
        """Circuits that stand: their cells in their states, their ends in nobody else's use."""
        for way in standing.values():
            for end, crossed in way:
                self.model.add(self.cross[end >> 2] == crossed)
                for taken in (end, end ^ 3 if crossed else end ^ 2):
                    for ways in self.goes:
                        for through in [w for w in ways if taken in w]:
                            self.model.add(ways[through] == 0)

    def _keep_going(self, number: int, pair: Pair) -> None:
        """What comes to a waveguide goes on beyond it; a path begins and ends at its ports and touches no other."""
        at: dict[int, list[Any]] = {}
        for way, goes in self.goes[number].items():
            for end in way:
                at.setdefault(end, []).append(goes)
        for end, beyond in enumerate(self.mesh.facing):
            if beyond < 0:
                self.model.add(sum(at.get(end, [])) == (-1 - beyond in pair))
            elif end < beyond and (end in at or beyond in at):
                self.model.add(sum(at.get(end, [])) == sum(at.get(beyond, [])))

    def _share(self) -> None:
        """One circuit on a waveguide, one state in a cell."""
        at: dict[int, list[Any]] = {}
        for ways in self.goes:
            for way, goes in ways.items():
                self.model.add_implication(goes, self.cross[way[0] >> 2] if _crosses(way) else ~self.cross[way[0] >> 2])
                for end in way:
                    at.setdefault(end, []).append(goes)
        for users in at.values():
            self.model.add_at_most_one(users)

    def solve(self, time_s: float, seed: int, hint: Routed | None) -> str:
        """The solver's status in words."""
        if hint is not None:
            self._hint(hint)
        self.solver: Any = self.cp_model.CpSolver()
        self.solver.parameters.max_time_in_seconds = max(time_s, 0.001)
        self.solver.parameters.num_workers = WORKERS
        self.solver.parameters.random_seed = seed
        return str(self.solver.status_name(self.solver.solve(self.model)))

    def _hint(self, hint: Routed) -> None:
        for pair, ways in zip(self.pairs, self.goes, strict=True):
            path = hops(self.mesh, pair, hint.paths[pair])
            taken = {_way(end, crossed) for end, crossed in path}
            for way, goes in ways.items():
                self.model.add_hint(goes, way in taken)
        for variable, crossed in zip(self.cross, hint.states, strict=True):
            self.model.add_hint(variable, crossed)

    def ways(self) -> dict[Pair, tuple[CellStep, ...]]:
        """What was found, followed from port to port."""
        return {pair: tuple(self._follow(pair, ways)) for pair, ways in zip(self.pairs, self.goes, strict=True)}

    def _follow(self, pair: Pair, ways: Mapping[Way, Any]) -> Iterable[CellStep]:
        taken = {way for way, goes in ways.items() if self.solver.boolean_value(goes)}
        end = self.mesh.ports[pair[0]].end
        while end >= 0:
            crossed = _way(end, True) in taken
            yield end, crossed
            end = self.mesh.facing[end ^ 3 if crossed else end ^ 2]


def _way(end: int, crossed: bool) -> Way:
    other = end ^ 3 if crossed else end ^ 2
    return min(end, other), max(end, other)


def _crosses(way: Way) -> bool:
    return way[0] ^ way[1] == 3


def _cells_on(mesh: Mesh, end: int, port: int, to_port: Sequence[int]) -> int:
    """The fewest cells from ``end``, where light leaves a cell, to ``port``."""
    beyond = mesh.facing[end]
    if beyond >= 0:
        return to_port[beyond]
    return 0 if beyond == -1 - port else len(mesh.facing)
