"""Paths of light through a mesh: the states of its cells and the path of every circuit.

The cost of a path is the number of cells it crosses: loss and latency are proportional to it (arXiv 2501.18136).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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

    ``states[i]``: cell i is in state cross (else bar; False also for cells without light); ``cells``: the number of
    cells crossed by all paths together; ``proved``: no other way to lay the circuits crosses fewer.
    """

    states: tuple[bool, ...]
    paths: Paths
    cells: int
    proved: bool = False


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
        states = [crossed for crossed in (False, True) if _leads_to(mesh, end, crossed, after, pair[1])]
        if end < 0 or end >> 2 != cell or not states:
            break
        found.append((end, states[0]))
        end = mesh.facing[end ^ 3 if states[0] else end ^ 2]
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


def _leads_to(mesh: Mesh, end: int, crossed: bool, cell: int | None, port: int) -> bool:
    beyond = mesh.facing[end ^ 3 if crossed else end ^ 2]
    return beyond == -1 - port if cell is None else beyond >= 0 and beyond >> 2 == cell


def laid(mesh: Mesh, steps: Mapping[Pair, Sequence[CellStep]], *, proved: bool = False) -> Routed:
    """The configuration of the mesh for these paths; ``CircuitError`` if they need a cell in two states."""
    states: dict[int, bool] = {}
    for pair, path_steps in steps.items():
        for end, crossed in path_steps:
            if states.setdefault(end >> 2, crossed) != crossed:
                raise CircuitError(f"circuit {pair[0]}-{pair[1]} needs cell {end >> 2} in a state that it is not in")
    every = tuple(states.get(cell.number, False) for cell in mesh.cells)
    paths = {pair: tuple(end >> 2 for end, _ in steps[pair]) for pair in sorted(steps)}
    return Routed(every, paths, sum(map(len, paths.values())), proved)


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
    crossed_cells = {cell for cells in after.paths.values() for cell in cells}
    states = tuple(
        new if cell in crossed_cells else old for cell, (old, new) in enumerate(zip(before, after.states, strict=True))
    )
    return Routed(states, after.paths, after.cells, after.proved)


def flips(before: Sequence[bool], after: Sequence[bool] | Routed) -> int:
    """The number of cells that change their state.

    Of a ``Routed`` only the cells that light crosses count: the others may keep their states (``settled``).
    """
    states = settled(before, after).states if isinstance(after, Routed) else after
    return sum(old != new for old, new in zip(before, states, strict=True))


def path_latency_s(cells: Sequence[int], cell_latency_s: float) -> float:
    """Latency of light through ``cells`` in seconds, at ``cell_latency_s`` each (it depends on the chip)."""
    return len(cells) * cell_latency_s


def path_loss_db(cells: Sequence[int], cell_loss_db: float) -> float:
    """Optical loss along ``cells`` in dB, at ``cell_loss_db`` each (it depends on the chip)."""
    return len(cells) * cell_loss_db
