"""Circuits laid on a mesh with the fewest gates, or the proof that it is impossible: an integer program for CP-SAT.

There is a variable for every circuit and every passage through a gate (bar on the left, bar on the right, cross one
way, cross the other): whether the circuit uses it. Light has no direction here, as a circuit has none. A waveguide is
used at both its ends or at neither, by one circuit; a gate is in one state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from controllers.mesh.corners import dead_end
from controllers.mesh.light_paths import (
    GateStep,
    Infeasible,
    Pair,
    Routed,
    check,
    hops,
    laid,
    ordered_pairs,
)
from controllers.mesh.negotiation import fewest_gates, gates_to
from topos.mesh import Mesh, leaving_end

WORKERS = 2
"""Threads of the solver; with one thread the optima of the larger meshes take three times as long."""

Passage = tuple[int, int]
"""The two ends of a passage through a gate, the lower first; they determine the state that it needs."""


def route_exact(
    mesh: Mesh,
    pairs: Iterable[Pair],
    *,
    hint: Routed | None = None,
    most: int | None = None,
    time_s: float = 60.0,
) -> Routed | Infeasible | None:
    """Lay the circuits with the fewest gates crossed in all (``proved``), or prove that it is impossible.

    After ``time_s`` seconds: the best found so far, without proof, else None. ``hint`` is a known way to lay them (from
    ``route``): routes that cross more gates are not considered, and the hint is the answer if nothing better is found.
    ``most`` and errors are as in ``route``; ``CircuitError`` also for a hint that does not lay the circuits.
    """
    asked = ordered_pairs(mesh, pairs)
    if hint is not None:
        check(mesh, hint, asked)
    if dead_end(mesh, asked):
        return Infeasible(asked)
    known = None if hint is None else hint.gates
    if hint is not None and known == sum(fewest_gates(mesh, pair) for pair in asked):
        return replace(hint, proved=True)
    program = _Program(mesh, asked, known)
    if most is not None:
        program.shorten(most)
    status = program.solve(time_s, hint)
    if status == "INFEASIBLE":
        return Infeasible(asked)
    if status not in ("OPTIMAL", "FEASIBLE"):
        return hint
    return laid(mesh, program.steps(), proved=status == "OPTIMAL")


class _Program:
    """The model and its variables; ``most``: the gates that all paths together may cross, if limited."""

    def __init__(self, mesh: Mesh, pairs: Sequence[Pair], most: int | None) -> None:
        # The import takes 0.3 to 0.7 s the first time, so it is made only where a proof is needed.
        from ortools.sat.python import cp_model

        self.cp_model: Any = cp_model
        self.model: Any = cp_model.CpModel()
        self.mesh = mesh
        self.pairs = pairs
        self.cross = [self.model.new_bool_var("") for _ in mesh.gates]
        slack = len(mesh.facing) if most is None else most - sum(fewest_gates(mesh, pair) for pair in pairs)
        self.goes: list[dict[Passage, Any]] = [self._variables(pair, slack) for pair in pairs]
        for number, pair in enumerate(pairs):
            self._connect_paths(number, pair)
        self._share()
        every = [goes for passages in self.goes for goes in passages.values()]
        self.model.minimize(sum(every))
        if most is not None:
            self.model.add(sum(every) <= most)

    def _variables(self, pair: Pair, slack: int) -> dict[Passage, Any]:
        """A variable for every passage of a path of ``pair`` with at most ``slack`` gates more than the shortest."""
        longest = min(fewest_gates(self.mesh, pair) + slack, len(self.mesh.facing))

        def shortest(entering: int, leaving: int) -> int:
            """Gates of the shortest path from a to b by ``entering`` and ``leaving``, two ends of one gate."""
            return _gates_on(self.mesh, entering, pair[0]) + 1 + _gates_on(self.mesh, leaving, pair[1])

        passages = [
            (4 * c.number + near, 4 * c.number + far)
            for c in self.mesh.gates
            for near, far in ((0, 2), (1, 3), (0, 3), (1, 2))
        ]
        return {
            (x, y): self.model.new_bool_var("") for x, y in passages if min(shortest(x, y), shortest(y, x)) <= longest
        }

    def _connect_paths(self, number: int, pair: Pair) -> None:
        """Continue each path over its waveguides, from its one port to the other and through no other port."""
        at = _users([self.goes[number]])
        for end, beyond in enumerate(self.mesh.facing):
            if beyond < 0:
                self.model.add(sum(at.get(end, [])) == (-1 - beyond in pair))
            elif end < beyond and (end in at or beyond in at):
                self.model.add(sum(at.get(end, [])) == sum(at.get(beyond, [])))

    def _share(self) -> None:
        """Allow one circuit per waveguide and one state per gate."""
        for passages in self.goes:
            for (end, other), goes in passages.items():
                crossed = self.cross[end >> 2]
                self.model.add_implication(goes, crossed if end ^ other == 3 else ~crossed)
        for users in _users(self.goes).values():
            self.model.add_at_most_one(users)

    def shorten(self, most: int) -> None:
        """Let no path cross more than ``most`` gates."""
        for passages in self.goes:
            self.model.add(sum(passages.values()) <= most)

    def solve(self, time_s: float, hint: Routed | None) -> str:
        """Solve the model within ``time_s`` seconds; the status of the solver (``OPTIMAL``, ``INFEASIBLE``, ...)."""
        if hint is not None:
            self._hint(hint)
        self.solver: Any = self.cp_model.CpSolver()
        self.solver.parameters.max_time_in_seconds = max(time_s, 0.001)
        self.solver.parameters.num_workers = WORKERS
        self.solver.parameters.random_seed = 0
        self.solver.parameters.catch_sigint_signal = False  # Ctrl-C is Python's
        return str(self.solver.status_name(self.solver.solve(self.model)))

    def _hint(self, hint: Routed) -> None:
        for pair, passages in zip(self.pairs, self.goes, strict=True):
            path = hops(self.mesh, pair, hint.paths[pair])
            taken = {_passage(end, crossed) for end, crossed in path}
            for passage, goes in passages.items():
                self.model.add_hint(goes, passage in taken)
        for variable, crossed in zip(self.cross, hint.states, strict=True):
            self.model.add_hint(variable, crossed)

    def steps(self) -> dict[Pair, tuple[GateStep, ...]]:
        """The path of every circuit in the solution, as steps from its lower port to the other."""
        return {pair: tuple(self._follow(pair, passages)) for pair, passages in zip(self.pairs, self.goes, strict=True)}

    def _follow(self, pair: Pair, passages: Mapping[Passage, Any]) -> Iterable[GateStep]:
        taken = {passage for passage, goes in passages.items() if self.solver.boolean_value(goes)}
        end = self.mesh.ports[pair[0]].end
        while end >= 0:
            crossed = _passage(end, True) in taken
            yield end, crossed
            end = self.mesh.onward(end, crossed)


def _passage(end: int, crossed: bool) -> Passage:
    other = leaving_end(end, crossed)
    return min(end, other), max(end, other)


def _users(goes: Iterable[Mapping[Passage, Any]]) -> dict[int, list[Any]]:
    at: dict[int, list[Any]] = {}
    for passages in goes:
        for passage, variable in passages.items():
            for end in passage:
                at.setdefault(end, []).append(variable)
    return at


def _gates_on(mesh: Mesh, end: int, port: int) -> int:
    """The fewest gates from ``end``, where light leaves a gate, to ``port``."""
    beyond = mesh.facing[end]
    if beyond >= 0:
        return gates_to(mesh, port)[beyond]
    return 0 if beyond == -1 - port else len(mesh.facing)
