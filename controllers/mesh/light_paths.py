"""A mesh that carries circuits: its cells' states and the way that the light of every circuit takes.

What a path costs is counted in cells crossed: loss and latency are proportional to it (arXiv 2501.18136).
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
    """Circuits laid on a mesh. ``states[i]``: cell i is in state cross (else bar; False too where no light comes);
    ``cells``: crossed by all paths together; ``proved``: no way to lay them crosses fewer.
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
    """The pairs, each with its lower port first, in order. ``ConfigError`` for a port that is not on the mesh,
    ``CircuitError`` for one that stands in two pairs.
    """
    asked = list(pairs)
    mesh.check_ports(port for pair in asked for port in pair)
    return tuple(circuit.ports for circuit in Matching(asked))


def hops(mesh: Mesh, pair: Pair, cells: Sequence[int]) -> tuple[CellStep, ...]:
    """How light crosses ``cells`` from the lower port of ``pair`` to the other; ``CircuitError`` if they do not lead
    there.
    """
    end, found = mesh.ports[pair[0]].end, []
    for cell, after in zip(cells, [*cells[1:], None], strict=True):
        ways = [crossed for crossed in (False, True) if _leads_to(mesh, end, crossed, after, pair[1])]
        if end < 0 or end >> 2 != cell or not ways:
            break
        found.append((end, ways[0]))
        end = mesh.facing[end ^ 3 if ways[0] else end ^ 2]
    if len(found) < len(cells) or end != -1 - pair[1]:
        raise CircuitError(
            f"cells {list(cells)} are no path from port {pair[0]} to port {pair[1]} of a mesh of {mesh.width} x "
            f"{mesh.height}; each must meet the next, the first and the last a port"
        )
    return tuple(found)


def standing_ways(mesh: Mesh, fixed: Paths | None) -> dict[Pair, tuple[CellStep, ...]]:
    """How light takes the paths of circuits that stand. ``ConfigError`` for a port that is not on the mesh,
    ``CircuitError`` for cells that are no path between its ports.
    """
    ways = {}
    for (a, b), cells in (fixed or {}).items():
        mesh.check_ports((a, b))
        ways[min(a, b), max(a, b)] = hops(mesh, (min(a, b), max(a, b)), cells if a < b else cells[::-1])
    return ways


def _leads_to(mesh: Mesh, end: int, crossed: bool, cell: int | None, port: int) -> bool:
    beyond = mesh.facing[end ^ 3 if crossed else end ^ 2]
    return beyond == -1 - port if cell is None else beyond >= 0 and beyond >> 2 == cell


def laid(mesh: Mesh, ways: Mapping[Pair, Sequence[CellStep]], *, proved: bool = False) -> Routed:
    """The configuration in which light goes these ways; ``CircuitError`` if they want a cell in two states."""
    states: dict[int, bool] = {}
    for pair, way in ways.items():
        for end, crossed in way:
            if states.setdefault(end >> 2, crossed) != crossed:
                raise CircuitError(f"circuit {pair[0]}-{pair[1]} needs cell {end >> 2} in a state that it is not in")
    every = tuple(states.get(cell.number, False) for cell in mesh.cells)
    paths = {pair: tuple(end >> 2 for end, _ in ways[pair]) for pair in sorted(ways)}
    return Routed(every, paths, sum(map(len, paths.values())), proved)


def check(mesh: Mesh, routed: Routed, pairs: Iterable[Pair]) -> None:
    """Follow the light of every circuit, from both ports: ``CircuitError`` unless it comes out at its partner, having
    crossed the cells that ``routed`` says, and nothing but ``pairs`` is laid.
    """
    wanted = ordered_pairs(mesh, pairs)
    if set(wanted) != set(routed.paths):
        odd = min(set(wanted) ^ set(routed.paths))
        raise CircuitError(f"circuit {odd[0]}-{odd[1]} is {'asked and not' if odd in wanted else 'not asked and'} laid")
    for pair in wanted:
        for (a, b), cells in ((pair, routed.paths[pair]), (pair[::-1], routed.paths[pair][::-1])):
            light = mesh.trace(routed.states, a)
            if light.port_out != b or light.cells != cells:
                raise CircuitError(
                    f"light that enters at port {a} must come out at port {b} after {len(cells)} cells; it comes out "
                    f"at port {light.port_out} after {len(light.cells)}"
                )


def settled(before: Sequence[bool], after: Routed) -> Routed:
    """``after`` with every cell that none of its paths crosses left in the state that it has in ``before``."""
    lit = {cell for cells in after.paths.values() for cell in cells}
    states = tuple(
        new if cell in lit else old for cell, (old, new) in enumerate(zip(before, after.states, strict=True))
    )
    return Routed(states, after.paths, after.cells, after.proved)


def flips(before: Sequence[bool], after: Sequence[bool] | Routed) -> int:
    """How many cells change their state. Of a ``Routed`` only the cells that light crosses count: the others may keep
    theirs (``settled``).
    """
    states = settled(before, after).states if isinstance(after, Routed) else after
    return sum(old != new for old, new in zip(before, states, strict=True))


def path_latency_s(cells: Sequence[int], cell_latency_s: float) -> float:
    """Seconds that light takes through ``cells``, at ``cell_latency_s`` each (it depends on the chip)."""
    return len(cells) * cell_latency_s


def path_loss_db(cells: Sequence[int], cell_loss_db: float) -> float:
    """Optical loss along ``cells`` in dB, at ``cell_loss_db`` each (it depends on the chip)."""
    return len(cells) * cell_loss_db
