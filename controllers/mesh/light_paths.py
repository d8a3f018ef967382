"""Paths of light through a mesh: the states of its gates and the path of every circuit.

The cost of a path is the number of gates it crosses: loss and latency are proportional to it (arXiv 2501.18136).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from controllers.circuits.circuits import Matching
from railyard.errors import CircuitError
from topos.mesh import Mesh

Pair = tuple[int, int]
"""Two ports of the mesh joined by a circuit, the lower first."""

Paths = Mapping[Pair, tuple[int, ...]]
"""The gates of each circuit, in the order in which light from its lower port crosses them."""

GateStep = tuple[int, bool]
"""The end by which light enters a gate (``topos.mesh.Gate``), and whether the gate is in state cross."""


@dataclass(frozen=True)
class Routed:
    """Circuits laid on a mesh, with the states of its gates.

    ``states[i]``: gate i is in state cross (else bar; False also for gates without light); ``proved``: no other way to
    lay the circuits crosses fewer gates.
    """

    states: tuple[bool, ...]
    paths: Paths
    proved: bool = False

    @property
    def gates(self) -> int:
        return sum(map(len, self.paths.values()))

    @cached_property
    def crossed(self) -> frozenset[int]:
        """The gates that the light of some circuit crosses; the states of all others do not matter."""
        return frozenset(gate for gates in self.paths.values() for gate in gates)


@dataclass(frozen=True)
class Infeasible:
    """Proof that no configuration of the mesh carries ``pairs``."""

    pairs: tuple[Pair, ...]


def ordered_pairs(mesh: Mesh, pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """The pairs in order, each with its lower port first.

    ``ConfigError`` for a port that is not on the mesh, ``CircuitError`` for a port that is in two pairs.
    """
    asked = list(pairs)
    mesh.check_ports(port for pair in asked for port in pair)
    return tuple(circuit.ports for circuit in Matching(asked))


def hops(mesh: Mesh, pair: Pair, gates: Sequence[int]) -> tuple[GateStep, ...]:
    """The steps of light through ``gates`` from the lower port of ``pair`` to the other.

    ``CircuitError`` if the gates are no path between these ports.
    """
    end, found = mesh.ports[pair[0]].end, []
    for gate, after in zip(gates, [*gates[1:], None], strict=True):
        ends = {mesh.onward(end, crossed): crossed for crossed in (False, True)} if end >> 2 == gate else {}
        beyond = next((e for e in ends if (e == -1 - pair[1] if after is None else e >> 2 == after)), None)
        if beyond is None:
            break
        found.append((end, ends[beyond]))
        end = beyond
    if len(found) < len(gates) or end != -1 - pair[1]:
        raise CircuitError(
            f"gates {list(gates)} are no path from port {pair[0]} to port {pair[1]} of a mesh of {mesh.width} x "
            f"{mesh.height}; each must meet the next, the first and the last a port"
        )
    return tuple(found)


def fixed_steps(mesh: Mesh, fixed: Paths | None) -> dict[Pair, tuple[GateStep, ...]]:
    """The steps of light of circuits that must stay as they are.

    ``ConfigError`` for a port that is not on the mesh, ``CircuitError`` for gates that are no path between its ports.
    """
    steps = {}
    for (a, b), gates in (fixed or {}).items():
        mesh.check_ports((a, b))
        steps[min(a, b), max(a, b)] = hops(mesh, (min(a, b), max(a, b)), gates if a < b else gates[::-1])
    return steps


def laid(mesh: Mesh, steps: Mapping[Pair, Sequence[GateStep]], *, proved: bool = False) -> Routed:
    """The configuration of the mesh for these paths; ``CircuitError`` if they need a gate in two states."""
    states: dict[int, bool] = {}
    for pair, path_steps in steps.items():
        for end, crossed in path_steps:
            if states.setdefault(end >> 2, crossed) != crossed:
                raise CircuitError(f"circuit {pair[0]}-{pair[1]} needs gate {end >> 2} in a state that it is not in")
    every = tuple(states.get(gate.number, False) for gate in mesh.gates)
    paths = {pair: tuple(end >> 2 for end, _ in steps[pair]) for pair in sorted(steps)}
    return Routed(every, paths, proved)


def check(mesh: Mesh, routed: Routed, pairs: Iterable[Pair]) -> None:
    """Trace the light of every circuit from both ports and compare it with ``routed``.

    ``CircuitError`` unless the light of each port comes out at its partner after the gates of ``routed``, and exactly
    ``pairs`` are laid.
    """
    wanted = ordered_pairs(mesh, pairs)
    if set(wanted) != set(routed.paths):
        odd = min(set(wanted) ^ set(routed.paths))
        raise CircuitError(
            f"circuit {odd[0]}-{odd[1]} is {'wanted but not' if odd in wanted else 'not wanted but'} laid"
        )
    for pair in wanted:
        for (a, b), gates in ((pair, routed.paths[pair]), (pair[::-1], routed.paths[pair][::-1])):
            light = mesh.trace(routed.states, a)
            if light.port_out != b or light.gates != gates:
                raise CircuitError(
                    f"light that enters at port {a} must come out at port {b} after {len(gates)} gates; it comes out "
                    f"at port {light.port_out} after {len(light.gates)}"
                )


def settled(before: Sequence[bool], after: Routed) -> Routed:
    """A copy of ``after`` in which every gate that no path crosses keeps its state in ``before``."""
    both = enumerate(zip(before, after.states, strict=True))
    return replace(after, states=tuple(new if gate in after.crossed else old for gate, (old, new) in both))


def flips(before: Sequence[bool], after: Sequence[bool] | Routed) -> int:
    """The number of gates that change their state.

    Of a ``Routed`` only the gates that light crosses count: the others may keep their states (``settled``).
    """
    states = settled(before, after).states if isinstance(after, Routed) else after
    return sum(old != new for old, new in zip(before, states, strict=True))
