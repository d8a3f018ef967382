"""Ports at the corners of a mesh that block each other, whatever the states of the other gates.

A gate on the border may have two ports, both on its outer side. In state bar it joins them, so it must be in state
cross as soon as one of them has a circuit to another port. Where two such gates meet, at a corner of the mesh, light
that enters at one can be forced out of the other: the ports of both gates cannot be used together. Evenly spaced ports
fail first because of this, and it is found without a search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from controllers.mesh.light_paths import Pair
from topos.mesh import Mesh


def forced_exits(mesh: Mesh, ports: Collection[int], joined: Iterable[Pair] = ()) -> dict[int, int]:
    """The ports among ``ports``, all in use at once, whose light can come out at one port only -> that port.

    ``joined`` are the circuits, if known: a gate whose two ports are joined to each other is not forced into cross.
    """
    ports_of = Counter(port.gate for port in mesh.ports)
    free = {mesh.ports[a].gate for a, b in joined if mesh.ports[a].gate == mesh.ports[b].gate}
    crossed = {mesh.ports[p].gate for p in ports if ports_of[mesh.ports[p].gate] == 2} - free
    exits = {}
    for port in ports:
        end = mesh.ports[port].end
        while end >= 0 and end >> 2 in crossed:
            end = mesh.onward(end, True)
        if end < 0:
            exits[port] = -1 - end
    return exits


def dead_end(mesh: Mesh, pairs: Collection[Pair]) -> tuple[int, int] | None:
    """A port of ``pairs`` and the only port where its light can come out, if that is not its partner; else None.

    None does not mean that the circuits can be laid.
    """
    partner = {a: b for pair in pairs for a, b in (pair, pair[::-1])}
    for port, out in sorted(forced_exits(mesh, list(partner), pairs).items()):
        if partner[port] != out:
            return port, out
    return None
