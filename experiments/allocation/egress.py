"""How much of its egress a chip can use inside its slice: split over X, Y, Z for good, or steered to its peers.

Today a chip's egress is split evenly over the dimensions of the torus, and a slice that cannot use a dimension loses
that share: 2 of 3 usable leave two thirds, 1 of 3 one third (MORPHLUX, arXiv 2508.03674). A photonic fabric in the
server steers all ports of a chip to the peers that its slice has, as far as there are fibres between servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

from controllers.allocation.boxes import closed_rings
from controllers.circuits.fibres import FibrePlant, Route
from railyard.errors import CircuitError
from topos.plan import RackPlan
from topos.slices import Slice
from topos.torus import Extents, Torus

UsableRule = Literal["ring", "link"]
"""When a slice can use a dimension.

``ring``: where it goes round the torus, so that the ring of that dimension closes without the links of others; a slice
that closes none still has one ring through all of its chips, and so the share of one dimension. ``link``: wherever it
is more than one chip wide (a line of chips counts as much as a ring).
"""


def static_share(torus: Torus, extents: Extents, rule: UsableRule = "ring") -> float:
    """The share of a chip's egress that a slice of ``extents`` (two chips or more) can use, 0 to 1."""
    dimensions = sum(extent > 1 for extent in torus.shape)
    usable = max(1, closed_rings(torus, extents)) if rule == "ring" else sum(extent > 1 for extent in extents)
    return usable / dimensions


def steered_shares(torus: Torus, slices: Sequence[Slice], fibres: int) -> tuple[float | None, ...]:
    """The same with a photonic fabric, all slices of a rack together: None for a slice of one chip.

    Each slice has one ring that goes server by server, with one circuit for each hop and lane; with P ports at most
    P // 2 lanes (P for two chips). Lanes are added in turns, slice by slice, as long as every circuit finds fibres.
    """
    plant = FibrePlant(RackPlan(torus.shape, torus.server, 1, ()), torus.chips, per_pair=fibres)
    rings = [server_ring(torus, each) for each in slices]
    ports = len(torus.directions)
    most = [0 if len(ring) < 2 else ports if len(ring) == 2 else max(1, ports // 2) for ring in rings]
    lanes = [0] * len(slices)
    growing = [number for number in range(len(slices)) if most[number]]
    routes: Mapping[tuple[int, int, int], Route] = {}
    while growing:
        for number in list(growing):
            circuits = {(number, lanes[number], hop): ends for hop, ends in enumerate(_hops(rings[number]))}
            try:
                routes = plant.routed(circuits, routes)
            except CircuitError:
                growing.remove(number)
                continue
            lanes[number] += 1
            if lanes[number] == most[number]:
                growing.remove(number)
    return tuple(have / may if may else None for have, may in zip(lanes, most, strict=True))


def server_ring(torus: Torus, slice_: Slice) -> tuple[int, ...]:
    """The chips of a block, server by server, servers next to each other where the block allows: fewest fibres."""
    chips = slice_.ring(torus)
    if all(e % s == 0 and o % s == 0 for e, o, s in zip(slice_.extents, slice_.origin, torus.server, strict=True)):
        servers = _in_blocks(torus, slice_).ring(Torus(torus.blocks, (1, 1, 1)))
    else:
        servers = tuple(dict.fromkeys(torus.server_of(chip) for chip in chips))
    return tuple(chip for server in servers for chip in sorted(chips) if torus.server_of(chip) == server)


def _in_blocks(torus: Torus, slice_: Slice) -> Slice:
    return Slice(_blocks(slice_.extents, torus), _blocks(slice_.origin, torus))


def _blocks(lengths: Sequence[int], torus: Torus) -> Extents:
    x, y, z = (length // block for length, block in zip(lengths, torus.server, strict=True))
    return x, y, z


def _hops(ring: Sequence[int]) -> list[tuple[int, int]]:
    """The ends of one circuit for each hop; two chips have one hop."""
    return list(pairwise(ring)) + ([(ring[-1], ring[0])] if len(ring) > 2 else [])
