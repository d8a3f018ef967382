"""Layouts of circuits on the mesh of a PIP switch: found once, then remembered. Ports here are those of the switch.

A matching that was laid before is laid on the same paths again if the present circuits allow it, so the slots of a
rotation cost one search each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from controllers.circuits.circuits import Circuit, Matching
from controllers.mesh.corners import dead_end
from controllers.mesh.light_paths import Infeasible, Pair, Routed, check, settled
from controllers.mesh.negotiation import gates_to, route, without_one
from railyard.errors import CircuitError
from topos.mesh import Mesh
from topos.plan import MeshPlan

SEARCH_S = 0.5
"""The limit of the search for paths that leave present circuits in place. A successful one takes milliseconds (5x5, 16
ports).
"""
PROOF_S = 2.0
"""The limit of the proof that a matching is impossible, which is only sought before a refusal."""
HINT_S = 0.05
"""The limit of the search for a suggestion in an error, for each circuit left out."""
MAX_MATCHINGS, MAX_LAYOUTS = 4096, 8
"""The most matchings remembered, and the most layouts of each."""

_Search = tuple[Matching, frozenset[tuple[Pair, tuple[int, ...]]]]
"""The matching of a search, and the paths that had to stay."""


@dataclass(frozen=True)
class MeshLayout:
    """The circuits of a switch with their paths (``routed``); ``behind`` is the mesh port of each switch port."""

    matching: Matching
    routed: Routed
    behind: Mapping[int, int]

    def path(self, circuit: Circuit) -> tuple[int, ...]:
        """The gates that light crosses from the circuit's lower port to the other; ``KeyError`` if it is not laid."""
        a, b = (self.behind[port] for port in circuit.ports)
        return self.routed.paths[a, b] if a < b else self.routed.paths[b, a][::-1]

    def moved(self, after: MeshLayout) -> frozenset[int]:
        """The ports of circuits that both layouts have, on different paths."""
        both = self.matching.circuits & after.matching.circuits
        return frozenset(port for c in both if self.path(c) != after.path(c) for port in c.ports)

    def over(self, before: MeshLayout) -> MeshLayout:
        """A copy of the layout in which gates that no light crosses keep their states in ``before``."""
        return replace(self, routed=settled(before.routed.states, self.routed))


class MeshLayouts:
    """The layouts of matchings on the mesh of switch ``name``, whose ports are ``ports`` in order."""

    def __init__(self, name: str, plan: MeshPlan, ports: Sequence[int]) -> None:
        self.name = name
        self.plan = plan
        self.mesh = Mesh.of(plan.width, plan.height)
        self.behind = dict(zip(ports, plan.ports, strict=True))
        self._port = {mesh_port: port for port, mesh_port in self.behind.items()}
        self._found: dict[Matching, list[MeshLayout]] = {}
        self._unfound: dict[_Search, float] = {}
        self._refused: dict[Matching, tuple[str, float]] = {}
        """The reason why a matching cannot be laid, and the length of the search behind it (inf: proved)."""
        for port in plan.ports:
            gates_to(self.mesh, port)  # kept from now on, so that the first request does not wait for it

    @cached_property
    def nothing(self) -> MeshLayout:
        return MeshLayout(Matching(), Routed((False,) * len(self.mesh.gates), {}), self.behind)

    def find(self, after: Matching, now: MeshLayout, search_s: float = SEARCH_S) -> MeshLayout:
        """The layout of ``after`` in place of ``now``: circuits of both keep their paths if possible.

        Otherwise some of them move. ``CircuitError`` if ``after`` is impossible or no paths were found in ``search_s``
        seconds (and ``PROOF_S`` for the proof).
        """
        if after.circuits <= now.matching.circuits:
            return self._without_removed(after, now)
        known = self._found.get(after, [])
        for layout in known:
            if not now.moved(layout):
                return layout.over(now)
        layout = (
            self._search(after, now, after.circuits & now.matching.circuits, search_s)
            or self._keeping_all_but_one(after, now)
            or min(known, key=lambda layout: len(now.moved(layout)), default=None)
            or self._from_scratch(after, search_s)
        )
        return layout.over(now)

    def traced(self, states: Sequence[bool], blocked: Iterable[int]) -> MeshLayout:
        """The layout that results from a state per gate (True: cross) between all ports that are not ``blocked``.

        ``CircuitError`` if the light of a port comes out at no port of the switch, or at a blocked one.
        """
        dark = frozenset(blocked)
        paths: dict[Pair, tuple[int, ...]] = {}
        circuits = []
        for port in sorted(self.behind.keys() - dark):
            light = self.mesh.trace(states, self.behind[port])
            far = self._port.get(light.port_out)
            if far is None or far in dark:
                where = self._named(light.port_out) + ("" if far is None else ", which is to be blocked")
                raise CircuitError(
                    f"with these gates the light of port {port} comes out at {where}; set other states, or list {port} "
                    f"as blocked{'' if far is None else ' too'}"
                )
            if len(light.gates) > (self.plan.most_gates or inf):
                raise CircuitError(
                    f"with these gates the light of port {port} crosses {len(light.gates)} gates, and is lost after "
                    f"{self.plan.most_gates}; set other states, or list ports {port} and {far} as blocked"
                )
            circuits.append(Circuit(port, far))
            if self.behind[port] < light.port_out:
                paths[self.behind[port], light.port_out] = light.gates
        return MeshLayout(Matching(circuits), Routed(tuple(states), paths), self.behind)

    def _pair(self, circuit: Circuit) -> Pair:
        a, b = (self.behind[port] for port in circuit.ports)
        return (a, b) if a < b else (b, a)

    def _without_removed(self, after: Matching, now: MeshLayout) -> MeshLayout:
        """The layout of ``after``, all of whose circuits are in ``now``: no gate changes."""
        if after == now.matching:
            return now
        paths = {pair: now.routed.paths[pair] for pair in map(self._pair, after)}
        return MeshLayout(after, Routed(now.routed.states, paths), self.behind)

    def _keeping_all_but_one(self, after: Matching, now: MeshLayout) -> MeshLayout | None:
        """The layout of ``after`` in which one of the present circuits may move; None if none was found."""
        both = after.circuits & now.matching.circuits
        found = (self._search(after, now, both - {circuit}, HINT_S) for circuit in sorted(both))
        return next((layout for layout in found if layout is not None), None) if len(both) > 1 else None

    def _search(
        self, after: Matching, now: MeshLayout, staying: Iterable[Circuit], search_s: float
    ) -> MeshLayout | None:
        """The layout of ``after`` in which the circuits ``staying`` keep their paths; None if none was found."""
        kept = {pair: now.routed.paths[pair] for pair in map(self._pair, staying)}
        key = after, frozenset(kept.items())
        if self._unfound.get(key, 0.0) >= search_s:
            return None
        routed = route(self.mesh, map(self._pair, after), fixed=kept, most=self.plan.most_gates, time_s=search_s)
        if routed is None:
            if len(self._unfound) >= MAX_MATCHINGS:
                self._unfound.clear()
            self._unfound[key] = search_s
            return None
        return self._keep(after, routed)

    def _from_scratch(self, after: Matching, search_s: float) -> MeshLayout:
        """The layout of ``after`` with all paths free; ``CircuitError`` if it is impossible or none was found."""
        reason, searched_s = self._refused.get(after, ("", 0.0))
        if reason and searched_s >= search_s:
            raise CircuitError(reason)
        layout = self._search(after, self.nothing, (), search_s)
        if layout is not None:
            return layout
        from controllers.mesh.exact import route_exact  # here, because it loads a solver that is rarely needed

        found = route_exact(self.mesh, map(self._pair, after), most=self.plan.most_gates, time_s=PROOF_S)
        if isinstance(found, Routed):
            return self._keep(after, found)
        proved = isinstance(found, Infeasible)
        reason = self._reason(after, proved)
        self._refused[after] = reason, inf if proved else search_s
        raise CircuitError(reason)

    def _keep(self, after: Matching, routed: Routed) -> MeshLayout:
        check(self.mesh, routed, map(self._pair, after))
        layout = MeshLayout(after, routed, self.behind)
        if after not in self._found and len(self._found) >= MAX_MATCHINGS:
            del self._found[next(iter(self._found))]
        self._found[after] = [layout, *self._found.get(after, [])][:MAX_LAYOUTS]
        return layout

    def _reason(self, after: Matching, proved: bool) -> str:
        """The reason why ``after`` is refused and what would work, in one sentence."""
        size = f"{self.plan.width}x{self.plan.height}"
        circuits = " ".join(map(str, after))
        most = "" if self.plan.most_gates is None else f", paths of at most {self.plan.most_gates} gates"
        switch = f"the mesh of {self.name} ({size}{most})"
        if proved:
            problem = f"{switch} cannot carry {circuits} at once (proved{self._proof(after)})"
        else:
            problem = f"no paths were found on {switch} for {circuits} at once (not proved impossible)"
        return f"{problem}; {self._suggestion(after)}other mesh ports may do (mesh={size}@choose), or a larger mesh"

    def _proof(self, after: Matching) -> str:
        """A proof that fits in an error, for circuits that a corner of the mesh rules out; empty otherwise."""
        lost = dead_end(self.mesh, [self._pair(circuit) for circuit in after])
        if lost is None:
            return ""
        return f": light of port {self._port[lost[0]]} can only come out at {self._named(lost[1])}"

    def _named(self, mesh_port: int) -> str:
        """The port of the switch before ``mesh_port``, in words."""
        port = self._port.get(mesh_port)
        return f"mesh port {mesh_port}, which is no port of {self.name}" if port is None else f"port {port}"

    def _suggestion(self, after: Matching) -> str:
        """A circuit whose removal makes the others possible, as part of an error; empty if there is none."""
        circuits = {self._pair(circuit): circuit for circuit in sorted(after, reverse=True)}
        found = without_one(self.mesh, list(circuits), most=self.plan.most_gates, time_s=HINT_S)
        return "" if found is None else f"without {circuits[found]} it works, and "
