"""Layouts of a fragmented slice: parts that each fit one server, and the neighbours among the parts.

Slices of whole servers keep the shape that they would have as a block (a grid of slots, closed where the block spans
the torus); if there are not enough fibres for it, or the number has no such shape, the parts form one ring. A slice
that is not a multiple of a server, or larger than all free servers, is a ring of parts as large as the free chips of
servers allow, so it shares servers with others. Rings with half of the circuits, and with one circuit per hop, come
last: such a slice is slower but possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise, product

from controllers.allocation.boxes import shapes
from controllers.allocation.placement import SliceLayout, SlotEdge
from controllers.circuits.fibres import FibrePlant, server_pair
from topos.torus import Extents, Torus

CHOICE = 4
"""The servers beyond the number of slots that a slot may choose from, nearest ones first: more are only slower."""


def layouts(
    plant: FibrePlant, chips: int, free: Mapping[int, int], fibres: int, extents: Extents | None = None
) -> Iterator[SliceLayout]:
    """The layouts of a slice of ``chips``, best first; ``free`` is the number of free chips of each server.

    ``extents``: the only block, in any orientation, whose grid is wanted; a ring still comes last.

    Every edge has as many circuits as two adjacent servers have links (``fibres`` at most): 4. A part of a single chip
    has only 3 of its 6 ports for each of two neighbours.
    """
    torus = plant.torus
    each = torus.chips_per_server
    whole = sorted(server for server, count in free.items() if count == each)
    count, rest = divmod(chips, each)
    bundle = min(fibres, each)
    if rest == 0 and 0 < count <= len(whole):
        near = _nearest(plant, whole, count)
        same = (each,) * count
        for edges in [*_grids(torus, chips, bundle, extents), *_rings(same, torus, bundle)]:
            yield SliceLayout((near,) * count, edges, same)
        return
    sizes = _sizes(chips, free)
    if sizes:
        eligible = tuple(tuple(sorted(s for s, n in free.items() if n >= size)) for size in sizes)
        for edges in _rings(sizes, torus, bundle):
            yield SliceLayout(eligible, edges, sizes)


def _sizes(chips: int, free: Mapping[int, int]) -> tuple[int, ...]:
    """The sizes of the fewest possible parts, largest first; empty if there are too few free chips."""
    sizes = []
    for count in sorted(free.values(), reverse=True):
        if chips and count:
            sizes.append(min(count, chips))
            chips -= sizes[-1]
    return () if chips else tuple(sizes)


def _grids(torus: Torus, chips: int, circuits: int, wanted: Extents | None) -> list[tuple[SlotEdge, ...]]:
    """The edges of each shape that the block could have; shapes that differ only in orientation count as one."""
    found: dict[tuple[tuple[int, bool], ...], tuple[SlotEdge, ...]] = {}
    for extents in shapes(torus, chips):
        if wanted is not None and sorted(extents) != sorted(wanted):
            continue
        blocks = [e // s for e, s in zip(extents, torus.server, strict=True)]
        closed = [b == n and n > 2 for b, n in zip(blocks, torus.blocks, strict=True)]
        found.setdefault(tuple(sorted(zip(blocks, closed, strict=True))), _grid(blocks, closed, circuits))
    return list(found.values())


def _grid(blocks: list[int], closed: list[bool], circuits: int) -> tuple[SlotEdge, ...]:
    import networkx  # here, because it takes 0.1 s and few slices are fragmented

    number = {place: slot for slot, place in enumerate(product(*map(range, blocks)))}
    grid = networkx.grid_graph(blocks[::-1], periodic=closed[::-1])
    pairs = sorted(server_pair(number[a], number[b]) for a, b in grid.edges)
    return tuple(SlotEdge(a, b, circuits) for a, b in pairs)


def _rings(sizes: tuple[int, ...], torus: Torus, bundle: int) -> list[tuple[SlotEdge, ...]]:
    """The edges of the ring with full bundles of circuits, with half of them, and with single circuits."""
    widths = dict.fromkeys((bundle, max(1, bundle // 2), 1))
    return list(dict.fromkeys(_ring(sizes, torus, width) for width in widths))


def _ring(sizes: tuple[int, ...], torus: Torus, bundle: int) -> tuple[SlotEdge, ...]:
    """The edges of a ring of the parts; two parts are joined once, a single part has no edge."""
    if len(sizes) == 1:
        return ()
    ends = list(pairwise(range(len(sizes)))) + ([(0, len(sizes) - 1)] if len(sizes) > 2 else [])
    ports = len(torus.directions)
    sides = 1 if len(sizes) == 2 else 2
    return tuple(SlotEdge(a, b, max(1, min(bundle, ports * min(sizes[a], sizes[b]) // sides))) for a, b in ends)


def _nearest(plant: FibrePlant, servers: list[int], count: int) -> tuple[int, ...]:
    """The servers of ``servers`` that are nearest together: ``count`` and ``CHOICE`` more."""
    if len(servers) <= count + CHOICE:
        return tuple(servers)
    groups = []
    for centre in servers:
        hops = plant.hops(centre)
        group = sorted(servers, key=lambda server: (hops[server], server))[: count + CHOICE]
        groups.append((sum(hops[server] for server in group), sorted(group)))
    return tuple(min(groups)[1])
