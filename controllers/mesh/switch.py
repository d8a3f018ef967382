"""A programmable photonic mesh as an optical switch (PIP): it holds the matchings that can be laid on its mesh.

Source: arXiv 2501.18136. Besides its circuits the switch holds a layout: the state of every gate and the path of each
circuit. A port stays up through a reconfiguration if it keeps its circuit and its path; a circuit that moves to make
room for another goes dark with it.
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
"""The names of the two states of a gate, bar first."""


class LaidMatching(Matching):
    """A matching with a given layout on the mesh."""

    __slots__ = ("layout",)

    def __init__(self, layout: MeshLayout) -> None:
        super().__init__(layout.matching)
        self.layout = layout


@dataclass(frozen=True)
class Relaying(Change):
    """A change to another layout; ``ports`` includes those whose circuit stays and whose path moves."""

    layout: MeshLayout = field(compare=False, kw_only=True)


class PipSwitch(OpticalSwitch):
    """An OCS whose matchings are limited by the mesh of ``plan``.

    ``layout`` has the paths of the circuits of ``target``. ``latency`` is the state of the latency emulation in words.
    """

    def __init__(self, plan: SwitchPlan) -> None:
        assert plan.mesh is not None
        numbers = [port.number for port in plan.ports]
        super().__init__(plan.name, numbers)
        self.mesh = plan.mesh
        self.layouts = MeshLayouts(plan.name, plan.mesh, numbers)
        self.layout = self.layouts.nothing
        self.latency = "not emulated"

    def change_to(self, after: Matching) -> Change | None:
        """The change that leads to ``after``, as of any OCS; ``CircuitError`` if no paths were found on the mesh."""
        self._check(after.ports)
        layout = after.layout if isinstance(after, LaidMatching) else self.layouts.find(after, self.layout)
        ports = self.target.changed_ports(after) | self.layout.moved(layout)
        if ports:
            return Relaying(ports, self.target, after, layout=layout)
        self.layout = layout  # gates that no light crosses may change at any time
        return None

    def begin(self, change: Change, reconfiguration_id: int) -> None:
        """Begin ``change``, as of any OCS: gates are set at once, and ports are up once the gates have settled."""
        layout = change.layout if isinstance(change, Relaying) else self.layouts.find(change.after, self.layout)
        if not self.layout.moved(layout) <= change.ports:
            raise CircuitError(f"{self.name} has changed since this reconfiguration was planned; plan it again")
        begun = Relaying(change.ports, change.before, change.after, layout=layout)
        super().begin(begun, reconfiguration_id)
        self.layout, self.target = layout, layout.matching

    def abort(self, reconfiguration_id: int) -> Change:
        change = super().abort(reconfiguration_id)
        self.layout = self.layouts.find(self.target, self.layout)
        self.target = self.layout.matching
        return change

    def return_of_lost(self) -> Change | None:
        """The change that restores lost circuits, as of any OCS: those for which the mesh has paths beside the others.

        If it has not for all, they are tried one by one from the lowest port on.
        """
        change = super().return_of_lost()
        kept: list[Circuit] = []
        for circuit in sorted(self.returning) if change is None else ():
            more = self._return_of([*kept, circuit])
            if more is not None:
                change, kept = more, [*kept, circuit]
        return change

    def _return_of(self, circuits: Iterable[Circuit]) -> Change | None:
        """The change that adds ``circuits``, as of any OCS; None if the mesh has no paths for them beside others."""
        try:
            change = super()._return_of(circuits)
        except CircuitError:
            return None
        return change if change is not None and change.ports.isdisjoint(self.target.ports) else None

    def warm(self, matchings: Iterable[Matching], search_s: float = SEARCH_S) -> None:
        """Find the layouts of a rotation before its first slot: from each matching to the next, cyclically.

        ``search_s``: the limit for each, in seconds. ``CircuitError`` for the first matching that the mesh cannot hold.
        """
        layout, matchings = self.layout, list(matchings)
        for matching in [*matchings, *matchings[:1]]:
            layout = self.layouts.find(matching, layout, search_s)

    def with_gates(self, states: Sequence[bool], blocked: Iterable[int] = ()) -> LaidMatching:
        """The circuits that a state per gate (True: cross) produces, with these states as their layout.

        ``blocked`` ports hold no circuit, wherever their light would go. ``CircuitError`` if the number of states is
        wrong, or if the light of another port comes out at no usable port.
        """
        count = len(self.layouts.mesh.gates)
        if len(states) != count:
            raise CircuitError(f"{self.name} has {count} gates; give a state for each, not {len(states)}")
        dark = frozenset(blocked)
        self._check(dark)
        return LaidMatching(self.layouts.traced(states, dark))

    def path(self, circuit: Circuit) -> tuple[int, ...]:
        """The gates of one circuit of ``target``, from its lower port; ``KeyError`` if there is no such circuit."""
        return self.layout.path(circuit)

    def latency_us(self, circuit: Circuit) -> float:
        """The latency of ``circuit`` in the mesh, in emulated microseconds."""
        return len(self.path(circuit)) * self.mesh.gate_latency_us
