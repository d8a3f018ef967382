"""Paths of light through a mesh: the states of its cells and the path of every circuit.

The cost of a path is the number of cells it crosses: loss and latency are proportional to it (arXiv 2501.18136).
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
"""The cells of each circuit, in the order in which light from its lower port crosses them."""

CellStep = tuple[int, bool]
"""The end by which light enters a cell (``topos.mesh.Cell``), and whether the cell is in state cross."""


@dataclass(frozen=True)
class Routed:
    """Circuits laid on a mesh, with the states of its cells.

    ``states[i]``: cell i is in state cross (else bar; False also for cells without light); ``proved``: no other way to
    lay the circuits crosses fewer cells.
    """

    states: tuple[bool, ...]
    paths: Paths
    proved: bool = False

    @property
    def cells(self) -> int:
        """The number of cells crossed by all paths together."""
        return sum(map(len, self.paths.values()))

    @cached_property
    def crossed(self) -> frozenset[int]:
        """The cells that the light of some circuit crosses; the states of all others do not matter."""
        return frozenset(cell for cells in self.paths.values() for cell in cells)


@dataclass(frozen=True)
class Infeasible:
    """Proof that no configuration of the mesh carries ``pairs``, with the circuits ``fixed`` staying as they are."""

    pairs: tuple[Pair, ...]
    fixed: tuple[Pair, ...] = ()


def ordered_pairs(mesh: Mesh, pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """The pairs in order, each with its lower port first.

    ``ConfigError`` for a port that is not on the mesh, ``CircuitError`` for a port that is in two pairs.
    """
    asked = list(pairs)
    mesh.check_ports(port for pair in asked for port in pair)
    return tuple(circuit.ports for circuit in Matching(asked))


def hops(mesh: Mesh, pair: Pair, cells: Sequence[int]) -> tuple[CellStep, ...]:
    """The steps of light through ``cells`` from the lower port of ``pair`` to the other.

    ``CircuitError`` if the cells are no path between these ports.
    """
    end, found = mesh.ports[pair[0]].end, []
    for cell, after in zip(cells, [*cells[1:], None], strict=True):
        ends = {mesh.onward(end, crossed): crossed for crossed in (False, True)} if end >> 2 == cell else {}
        beyond = next((e for e in ends if (e == -1 - pair[1] if after is None else e >> 2 == after)), None)
        if beyond is None:
            break
        found.append((end, ends[beyond]))
        end = beyond
    if len(found) < len(cells) or end != -1 - pair[1]:
        raise CircuitError(
            f"cells {list(cells)} are no path from port {pair[0]} to port {pair[1]} of a mesh of {mesh.width} x "
            f"{mesh.height}; each must meet the next, the first and the last a port"
        )
    return tuple(found)


def fixed_steps(mesh: Mesh, fixed: Paths | None) -> dict[Pair, tuple[CellStep, ...]]:
    """The steps of light of circuits that must stay as they are.

    ``ConfigError`` for a port that is not on the mesh, ``CircuitError`` for cells that are no path between its ports.
    """
    steps = {}
    for (a, b), cells in (fixed or {}).items():
        mesh.check_ports((a, b))
        steps[min(a, b), max(a, b)] = hops(mesh, (min(a, b), max(a, b)), cells if a < b else cells[::-1])
    return steps


def laid(mesh: Mesh, steps: Mapping[Pair, Sequence[CellStep]], *, proved: bool = False) -> Routed:
    """The configuration of the mesh for these paths; ``CircuitError`` if they need a cell in two states."""
    states: dict[int, bool] = {}
    for pair, path_steps in steps.items():
        for end, crossed in path_steps:
            if states.setdefault(end >> 2, crossed) != crossed:
                raise CircuitError(f"circuit {pair[0]}-{pair[1]} needs cell {end >> 2} in a state that it is not in")
    every = tuple(states.get(cell.number, False) for cell in mesh.cells)
    paths = {pair: tuple(end >> 2 for end, _ in steps[pair]) for pair in sorted(steps)}
    return Routed(every, paths, proved)


def check(mesh: Mesh, routed: Routed, pairs: Iterable[Pair]) -> None:
    """Trace the light of every circuit from both ports and compare it with ``routed``.

    ``CircuitError`` unless the light of each port comes out at its partner after the cells of ``routed``, and exactly
    ``pairs`` are laid.
    """
    wanted = ordered_pairs(mesh, pairs)
    if set(wanted) != set(routed.paths):
        odd = min(set(wanted) ^ set(routed.paths))
        raise CircuitError(
            f"circuit {odd[0]}-{odd[1]} is {'wanted but not' if odd in wanted else 'not wanted but'} laid"
        )
    for pair in wanted:
        for (a, b), cells in ((pair, routed.paths[pair]), (pair[::-1], routed.paths[pair][::-1])):
            light = mesh.trace(routed.states, a)
            if light.port_out != b or light.cells != cells:
                raise CircuitError(
                    f"light that enters at port {a} must come out at port {b} after {len(cells)} cells; it comes out "
                    f"at port {light.port_out} after {len(light.cells)}"
                )


def settled(before: Sequence[bool], after: Routed) -> Routed:
    """A copy of ``after`` in which every cell that no path crosses keeps its state in ``before``."""
    both = enumerate(zip(before, after.states, strict=True))
    return replace(after, states=tuple(new if cell in after.crossed else old for cell, (old, new) in both))


def flips(before: Sequence[bool], after: Sequence[bool] | Routed) -> int:
    """The number of cells that change their state.

    Of a ``Routed`` only the cells that light crosses count: the others may keep their states (``settled``).
    """
    states = settled(before, after).states if isinstance(after, Routed) else after
    return sum(old != new for old, new in zip(before, states, strict=True))
