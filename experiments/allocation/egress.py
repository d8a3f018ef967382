"""Share of a chip's egress that is usable inside its slice: split statically over X, Y, Z, or steered to its peers.

Electrical tori split a chip's egress evenly over their dimensions, and a slice that cannot use a dimension loses that
share: 2 of 3 usable leave two thirds, 1 of 3 one third (MORPHLUX, arXiv 2508.03674). A photonic fabric in the server
steers all ports of a chip to peers in its slice, as far as there are fibres between servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from controllers.allocation.boxes import closed_rings
from controllers.circuits.fibres import FibrePlant
from controllers.policies.shares import PortDemand, share
from topos.plan import RackPlan
from topos.slices import Slice
from topos.torus import Extents, Torus

UsableRule = Literal["ring", "link", "port"]
"""Rule for what a slice can use of a chip's egress.

``ring``: where the slice spans the torus, so that the ring of that dimension closes without links of other slices; a
slice that closes no ring still has one ring through all of its chips, and so the share of one dimension. ``link``:
wherever the slice is more than one chip wide (a line of chips counts as much as a ring). ``port``: every port of a chip
whose neighbour is in the slice, so that a chip at the end of a line uses one of its two ports of that dimension.
"""


def static_share(torus: Torus, extents: Extents, rule: UsableRule = "ring") -> float:
    """The share of a chip's egress that a slice of ``extents`` (two chips or more) can use, 0 to 1."""
    dimensions = sum(extent > 1 for extent in torus.shape)
    if rule == "port":
        return sum(map(_used_ports, extents, torus.shape)) / sum(_used_ports(n, n) for n in torus.shape)
    usable = max(1, closed_rings(torus, extents)) if rule == "ring" else sum(extent > 1 for extent in extents)
    return usable / dimensions


def _used_ports(extent: int, whole: int) -> float:
    """Mean number of a chip's two ports in a dimension of ``whole`` chips that lead to chips of the slice."""
    return 2.0 if extent == whole > 1 else 2 * (extent - 1) / extent


def steered_shares(torus: Torus, slices: Sequence[Slice], fibres: int) -> tuple[float | None, ...]:
    """The share of a chip's egress that each slice of a rack can use with a photonic fabric; None for one chip.

    Each slice has one ring that goes server by server, with one circuit for each hop and lane; with P ports at most
    P // 2 lanes (P for two chips). The rings share the ``fibres`` between two adjacent servers as jobs do (``share``).
    """
    plant = FibrePlant(RackPlan(torus.shape, torus.server, 1, ()), torus.chips, per_pair=fibres)
    rings = [server_ring(torus, each) for each in slices]
    ports = len(torus.directions)
    most = [0 if len(ring) < 2 else ports if len(ring) == 2 else max(1, ports // 2) for ring in rings]
    demands = [
        PortDemand(str(number), tuple({(number, lane, a): (a, b) for a, b in _hops(ring)} for lane in range(lanes)))
        for number, (ring, lanes) in enumerate(zip(rings, most, strict=True))
    ]
    lanes_of = share(plant, demands).counts
    return tuple(lanes_of[str(number)] / lanes if lanes else None for number, lanes in enumerate(most))


def server_ring(torus: Torus, slice_: Slice) -> tuple[int, ...]:
    """The chips of a slice as a ring, server by server, with adjacent servers in succession where the slice allows.

    This order needs the fewest fibres.
    """
    chips = slice_.ring(torus)
    if all(e % s == 0 and o % s == 0 for e, o, s in zip(slice_.extents, slice_.origin, torus.server, strict=True)):
        servers = Slice(_blocks(slice_.extents, torus), _blocks(slice_.origin, torus)).ring(
            Torus(torus.blocks, (1, 1, 1))
        )
    else:
        servers = tuple(dict.fromkeys(torus.server_of(chip) for chip in chips))
    return tuple(chip for server in servers for chip in sorted(chips) if torus.server_of(chip) == server)


def _blocks(lengths: Sequence[int], torus: Torus) -> Extents:
    x, y, z = (length // block for length, block in zip(lengths, torus.server, strict=True))
    return x, y, z


def _hops(ring: Sequence[int]) -> list[tuple[int, int]]:
    """The two chips of each hop of a ring; a ring of two chips has one hop."""
    return list(pairwise(ring)) + ([(ring[-1], ring[0])] if len(ring) > 2 else [])
