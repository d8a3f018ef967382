"""How circuits of a PIP switch can lie on its mesh: found once, then remembered. Ports here are the switch's own.

A matching that was laid before is laid the same way again wherever the circuits that stand allow it, so the turns of a
rotation cost a search each only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from controllers.circuits.circuits import Circuit, Matching
from controllers.mesh.corners import dead_end
from controllers.mesh.light_paths import Infeasible, Pair, Routed, check, settled
from controllers.mesh.negotiation import route
from railyard.errors import CircuitError
from topos.mesh import Mesh
from topos.plan import MeshPlan

SEARCH_S = 0.5
"""How long the search for a way beside what stands may take. One that succeeds takes milliseconds (5x5, 16 ports)."""
PROOF_S = 2.0
"""How long it may take to prove that there is none. Only what is about to be refused waits for it."""
HINT_S = 0.05
"""How long to look for what would work instead, for each circuit left out."""
MOST_REMEMBERED, MOST_WAYS = 4096, 8
"""Matchings, and ways of each."""

_Search = tuple[Matching, frozenset[tuple[Pair, tuple[int, ...]]]]
"""What was searched for, and the paths that had to stay."""


@dataclass(frozen=True)
class MeshLayout:
    """Circuits of a switch and how they lie: ``routed`` on the mesh, ``behind`` the mesh port of each port."""

    matching: Matching
    routed: Routed
    behind: Mapping[int, int]

    def path(self, circuit: Circuit) -> tuple[int, ...]:
        """The cells that light crosses from the circuit's lower port to the other; ``KeyError`` if it is not laid."""
        a, b = (self.behind[port] for port in circuit.ports)
        return self.routed.paths[a, b] if a < b else self.routed.paths[b, a][::-1]

    def moved(self, after: MeshLayout) -> frozenset[int]:
        """Ports of the circuits that both have, on another path."""
        both = self.matching.circuits & after.matching.circuits
        return frozenset(port for c in both if self.path(c) != after.path(c) for port in c.ports)

    @cached_property
    def crossed(self) -> frozenset[int]:
        """The cells that some circuit's light crosses; the state of others does not matter."""
        return frozenset(cell for cells in self.routed.paths.values() for cell in cells)

    def over(self, before: MeshLayout) -> MeshLayout:
        """The same with the cells that no light crosses left as they are in ``before``."""
        return MeshLayout(self.matching, settled(before.routed.states, self.routed), self.behind)


@dataclass(frozen=True)
class _Refusal:
    """Why a matching cannot be laid, and how long a search this came of (inf: it is proved)."""

    reason: str
    search_s: float


class MeshLayouts:
    """The ways to lay matchings on the mesh of switch ``name``, whose ports are ``ports`` in order."""

    def __init__(self, name: str, plan: MeshPlan, ports: Sequence[int]) -> None:
        self.name = name
        self.plan = plan
        self.mesh = Mesh.of(plan.width, plan.height)
        self.behind = dict(zip(ports, plan.ports, strict=True))
        self._port = {mesh_port: port for port, mesh_port in self.behind.items()}
        self._found: dict[Matching, list[MeshLayout]] = {}
        self._unfound: dict[_Search, float] = {}
        self._refused: dict[Matching, _Refusal] = {}

    @cached_property
    def nothing(self) -> MeshLayout:
        """No circuit, all cells in state bar."""
        return MeshLayout(Matching(), Routed((False,) * len(self.mesh.cells), {}, 0), self.behind)

    def find(self, after: Matching, now: MeshLayout, search_s: float = SEARCH_S) -> MeshLayout:
        """How ``after`` lies when ``now`` stands: circuits of both keep their paths, if there is any way so.

        Otherwise those that have to move do. ``CircuitError`` if there is no way at all or none was found in
        ``search_s`` seconds (and ``PROOF_S`` for the proof).
        """
        if after.circuits <= now.matching.circuits:
            return self._less(after, now)
        known = self._found.get(after, [])
        for layout in known:
            if not now.moved(layout):
                return layout.over(now)
        layout = (
            self._beside(after, now, search_s)
            or self._making_way(after, now)
            or self._least_moved(known, now)
            or self._anew(after, search_s)
        )
        return layout.over(now)

    def traced(self, states: Sequence[bool], blocked: Iterable[int]) -> MeshLayout:
        """The circuits that light makes of a state per cell (True: cross), between all ports that are not ``blocked``.

        ``CircuitError`` where the light of a port comes out at none, or at one that is blocked.
        """
        dark = frozenset(blocked)
        paths: dict[Pair, tuple[int, ...]] = {}
        circuits = []
        for port in sorted(self.behind.keys() - dark):
            light = self.mesh.trace(states, self.behind[port])
            far = self._port.get(light.port_out)
            if far is None or far in dark:
                where = f"mesh port {light.port_out}, which is no port of {self.name}" if far is None else f"port {far}"
                also = f"list {port} as blocked too" if far is not None else f"list {port} as blocked"
                raise CircuitError(
                    f"with these cells the light of port {port} comes out at {where}"
                    f"{'' if far is None else ', which is to be blocked'}; set other states, or {also}"
                )
            circuits.append(Circuit(port, far))
            if self.behind[port] < light.port_out:
                paths[self.behind[port], light.port_out] = light.cells
        routed = Routed(tuple(states), paths, sum(map(len, paths.values())))
        return MeshLayout(Matching(circuits), routed, self.behind)

    def joined(self, kept: MeshLayout, back: Iterable[Circuit], was: MeshLayout) -> MeshLayout:
        """``kept`` and beside it the circuits of ``back`` as they lay in ``was``, as far as no cell is taken."""
        states, taken = list(kept.routed.states), set(kept.crossed)
        paths, circuits = dict(kept.routed.paths), list(kept.matching)
        for circuit in sorted(back):
            cells = was.path(circuit)
            if any(cell in taken and states[cell] != was.routed.states[cell] for cell in cells):
                continue
            for cell in cells:
                states[cell] = was.routed.states[cell]
            taken.update(cells)
            paths[self._pair(circuit)] = was.routed.paths[self._pair(circuit)]
            circuits.append(circuit)
        return MeshLayout(Matching(circuits), Routed(tuple(states), paths, sum(map(len, paths.values()))), self.behind)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _pair(self, circuit: Circuit) -> Pair:
        a, b = (self.behind[port] for port in circuit.ports)
        return (a, b) if a < b else (b, a)

    def _less(self, after: Matching, now: MeshLayout) -> MeshLayout:
        """Circuits that all stand, and no cell changes for them."""
        if after == now.matching:
            return now
        paths = {pair: now.routed.paths[pair] for pair in map(self._pair, after)}
        routed = Routed(now.routed.states, paths, sum(map(len, paths.values())))
        return MeshLayout(after, routed, self.behind)

    def _beside(self, after: Matching, now: MeshLayout, search_s: float) -> MeshLayout | None:
        """``after`` with the paths of what stands kept; None if no way was found."""
        return self._search(after, now, after.circuits & now.matching.circuits, search_s)

    def _making_way(self, after: Matching, now: MeshLayout) -> MeshLayout | None:
        """The same with one of those free to move."""
        both = after.circuits & now.matching.circuits
        found = (self._search(after, now, both - {circuit}, HINT_S) for circuit in sorted(both))
        return next((layout for layout in found if layout is not None), None) if len(both) > 1 else None

    def _search(
        self, after: Matching, now: MeshLayout, staying: Iterable[Circuit], search_s: float
    ) -> MeshLayout | None:
        kept = {pair: now.routed.paths[pair] for pair in map(self._pair, staying)}
        key = after, frozenset(kept.items())
        if self._unfound.get(key, 0.0) >= search_s:
            return None
        routed = route(self.mesh, map(self._pair, after), fixed=kept, time_s=search_s)
        if routed is None:
            if len(self._unfound) >= MOST_REMEMBERED:
                self._unfound.clear()
            self._unfound[key] = search_s
            return None
        return self._keep(after, routed)

    def _least_moved(self, known: Sequence[MeshLayout], now: MeshLayout) -> MeshLayout | None:
        return min(known, key=lambda layout: len(now.moved(layout)), default=None)

    def _anew(self, after: Matching, search_s: float) -> MeshLayout:
        """``after`` with every path free; ``CircuitError`` if there is no way, or none was found."""
        before = self._refused.get(after)
        if before is not None and before.search_s >= search_s:
            raise CircuitError(before.reason)
        layout = self._search(after, self.nothing, (), search_s)
        if layout is not None:
            return layout
        from controllers.mesh.exact import route_exact  # loads a solver, which few ever need

        found = route_exact(self.mesh, map(self._pair, after), time_s=PROOF_S)
        if isinstance(found, Routed):
            return self._keep(after, found)
        proved = isinstance(found, Infeasible)
        refusal = _Refusal(self._reason(after, proved), inf if proved else search_s)
        self._refused[after] = refusal
        raise CircuitError(refusal.reason)

    def _keep(self, after: Matching, routed: Routed) -> MeshLayout:
        check(self.mesh, routed, map(self._pair, after))
        layout = MeshLayout(after, routed, self.behind)
        if after not in self._found and len(self._found) >= MOST_REMEMBERED:
            del self._found[next(iter(self._found))]
        self._found[after] = [layout, *self._found.get(after, [])][:MOST_WAYS]
        return layout

    def _reason(self, after: Matching, proved: bool) -> str:
        """Why ``after`` is refused and what would work, in one sentence."""
        size = f"{self.plan.width}x{self.plan.height}"
        circuits = " ".join(map(str, after))
        how = "has no way for" if proved else "was searched in vain for a way for"
        sure = f"proved{self._because(after)}" if proved else "not proved that there is none"
        return (
            f"the mesh of {self.name} ({size}) {how} {circuits} at once ({sure}); {self._hint(after)}other mesh ports "
            f"may do (mesh={size}@choose), or a larger mesh"
        )

    def _because(self, after: Matching) -> str:
        """The shortest proof, where it is that short."""
        lost = dead_end(self.mesh, [self._pair(circuit) for circuit in after])
        if lost is None:
            return ""
        port, out = self._port[lost[0]], self._port.get(lost[1])
        where = f"mesh port {lost[1]}, which is no port of {self.name}" if out is None else f"port {out}"
        return f": light of port {port} can only come out at {where}"

    def _hint(self, after: Matching) -> str:
        """One circuit without which it would work, if there is one."""
        for circuit in sorted(after, reverse=True):
            rest = [self._pair(other) for other in after if other != circuit]
            if rest and route(self.mesh, rest, time_s=HINT_S) is not None:
                return f"without {circuit} it works, and "
        return ""
