"""An all-to-all on a ring: what is not for a neighbour travels hop by hop, through the positions between.

Each link carries n (n - 1) / 2 chunks on one ring, about half of that (n^2 / 8 for each direction, n even) on two: more
than the n - 1 chunks of a direct exchange, but a ring of circuits that never changes is enough.
"""

from __future__ import annotations

from workloads.schedule import Schedule, Transfer


def ring_all_to_all(n: int, *, bidirectional: bool = False) -> Schedule:
    """The all-to-all of n x n chunks over ``n`` positions on a ring.

    Clockwise on lane 0. When bidirectional, each chunk goes the shorter way round (counter-clockwise on lane 1); the
    farthest ones, where both are as long, go clockwise from even positions and back from odd ones.
    """
    transfers: list[Transfer] = []
    for src in range(n):
        for dst in range(n):
            distance, turn, lane = (dst - src) % n, 1, 0
            if bidirectional and (2 * distance > n or (2 * distance == n and src % 2)):
                distance, turn, lane = n - distance, -1, 1
            for hop in range(distance):
                at = (src + turn * hop) % n
                transfers.append(Transfer(hop, at, (at + turn) % n, src * n + dst, "copy", lane))
    return Schedule(
        algorithm="bidirectional-ring" if bidirectional else "ring",
        kind="all_to_all",
        n=n,
        chunks=n * n,
        owner=tuple(c // n for c in range(n * n)),
        transfers=tuple(sorted(transfers, key=lambda t: t.round)),
        one_port=not bidirectional,
    )
