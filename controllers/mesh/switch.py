"""An optical switch made of a programmable photonic mesh (PIP): it holds the matchings that its mesh has paths for.

Source: arXiv 2501.18136. Beside its circuits it holds a layout: the state of every cell and each circuit's path. A
port keeps its light through a reconfiguration if it keeps its circuit and its path; a circuit that has to move to make
way for another goes dark with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from controllers.circuits.circuits import Circuit, Matching
from controllers.circuits.ocs import Change, OpticalSwitch
from controllers.mesh.layouts import SEARCH_S, MeshLayout, MeshLayouts
from railyard.errors import CircuitError
from topos.plan import SwitchPlan

STATES = ("bar", "cross")
"""The states of a cell, as people write them."""


class LaidMatching(Matching):
    """A matching that comes with the layout it shall have."""

    __slots__ = ("layout",)

    def __init__(self, layout: MeshLayout) -> None:
        super().__init__(layout.matching)
        self.layout = layout


@dataclass(frozen=True)
class Relaying(Change):
    """A change with the layout that it leads to: ``ports`` includes those whose circuit stays and whose path moves."""

    layout: MeshLayout = field(compare=False, kw_only=True)


class PipSwitch(OpticalSwitch):
    """An OCS whose matchings are limited by the mesh of ``plan``.

    ``layout`` is how the circuits of ``target`` lie. ``latency``: whether packets are held back for as long as light
    is under way in the mesh, in words.
    """

    def __init__(self, plan: SwitchPlan) -> None:
        assert plan.mesh is not None
        numbers = [port.number for port in plan.ports]
        super().__init__(plan.name, numbers)
        self.mesh = plan.mesh
        self.layouts = MeshLayouts(plan.name, plan.mesh, numbers)
        self.layout = self.layouts.nothing
        self.latency = "not emulated"
        self._was: dict[int, MeshLayout] = {}

    def change_to(self, after: Matching) -> Change | None:
        """As of any OCS; ``CircuitError`` if the mesh has no paths for ``after``, or none were found."""
        after.check_ports(self.ports, self.name)
        layout = after.layout if isinstance(after, LaidMatching) else self.layouts.find(after, self.layout)
        ports = self.target.changed_ports(after) | self.layout.moved(layout)
        if ports:
            return Relaying(ports, self.target, after, layout=layout)
        self.layout = layout  # the cells that no light crosses may be set at any time
        return None

    def begin(self, change: Change, reconfiguration_id: int) -> None:
        """As of any OCS: cells are set at once, the ports of ``change`` pass light when they have settled."""
        layout = change.layout if isinstance(change, Relaying) else self.layouts.find(change.after, self.layout)
        if not self.layout.moved(layout) <= change.ports:
            raise CircuitError(f"{self.name} has changed since this reconfiguration was planned; plan it again")
        super().begin(change, reconfiguration_id)
        self._was[reconfiguration_id] = self.layout
        self.layout, self.target = layout, layout.matching

    def finish(self, reconfiguration_id: int) -> Change:
        """As of any OCS."""
        self._was.pop(reconfiguration_id, None)
        return super().finish(reconfiguration_id)

    def abort(self, reconfiguration_id: int) -> Change:
        """As of any OCS, with the paths of before; a circuit whose cells others have taken since does not come back."""
        change = super().abort(reconfiguration_id)
        was, mine = self._was.pop(reconfiguration_id), change.ports - self.dark
        back = [circuit for circuit in self.target if mine.issuperset(circuit.ports)]
        kept = self.layouts.find(self.target.without_ports(mine), self.layout)
        self.layout = self.layouts.joined(kept, back, was)
        self.target = self.layout.matching
        return change

    def return_of_repaired(self) -> Change | None:
        """As of any OCS; nothing comes back if the mesh has no way for it any more."""
        try:
            return super().return_of_repaired()
        except CircuitError:
            return None

    def warm(self, matchings: Iterable[Matching], search_s: float = SEARCH_S) -> None:
        """Find the layouts of a rotation before its first turn: from each matching to the next and round again.

        ``search_s``: seconds for each. ``CircuitError`` for the first that the mesh cannot hold.
        """
        layout, turns = self.layout, list(matchings)
        for matching in [*turns, *turns[:1]]:
            layout = self.layouts.find(matching, layout, search_s)

    def with_cells(self, states: Sequence[bool], blocked: Iterable[int] = ()) -> LaidMatching:
        """The circuits that a state per cell (True: cross) makes, and the states with them.

        ``blocked`` ports hold no circuit, wherever their light would go. ``CircuitError`` if the number of states is
        wrong, or if light of another port comes out where it is no use.
        """
        count = len(self.layouts.mesh.cells)
        if len(states) != count:
            raise CircuitError(f"{self.name} has {count} cells; give a state for each, not {len(states)}")
        dark = frozenset(blocked)
        for port in sorted(dark):
            self._check(port)
        return LaidMatching(self.layouts.traced(states, dark))

    def path(self, circuit: Circuit) -> tuple[int, ...]:
        """The cells of one circuit of ``target``, from its lower port; ``KeyError`` if there is no such circuit."""
        return self.layout.path(circuit)

    def latency_us(self, circuit: Circuit) -> float:
        """How long its light is under way in the mesh, in emulated microseconds."""
        return len(self.path(circuit)) * self.mesh.cell_latency_us
