"""All-to-all on a ring or a line: data for positions that are not neighbours travels hop by hop.

Each link carries n (n - 1) / 2 chunks on one ring, n^2 / 8 (n even) each way on two, and up to n^2 / 4 each way on a
line (at its middle): more than the n - 1 chunks of a direct exchange, but circuits that never change are enough. A line
is a ring without its last link, such as the members of an expert-parallel group on the ring of a data-parallel one.
"""

from __future__ import annotations

from workloads.schedule import Schedule, Transfer


def ring_all_to_all(n: int, *, bidirectional: bool = False) -> Schedule:
    """The all-to-all of n x n chunks over ``n`` positions on a ring.

    Chunks go clockwise on lane 0. When bidirectional, each chunk takes the shorter direction (counter-clockwise on lane
    1); the farthest ones, where both are equal, go clockwise from even positions and counter-clockwise from odd ones.
    """
    transfers: list[Transfer] = []
    for src in range(n):
        for dst in range(n):
            distance, direction, lane = (dst - src) % n, 1, 0
            if bidirectional and (2 * distance > n or (2 * distance == n and src % 2)):
                distance, direction, lane = n - distance, -1, 1
            for hop in range(distance):
                at = (src + direction * hop) % n
                transfers.append(Transfer(hop, at, (at + direction) % n, src * n + dst, "copy", lane))
    return Schedule(
        algorithm="bidirectional-ring" if bidirectional else "ring",
        kind="all_to_all",
        n=n,
        chunks=n * n,
        owner=tuple(c // n for c in range(n * n)),
        transfers=tuple(sorted(transfers, key=lambda t: t.round)),
        one_port=not bidirectional,
    )


def line_all_to_all(n: int) -> Schedule:
    """The all-to-all of n x n chunks over ``n`` positions on a line, position i joined to i - 1 and i + 1.

    Upwards on lane 0, downwards on lane 1, like the two directions of a bidirectional ring.
    """
    transfers: list[Transfer] = []
    for src in range(n):
        for dst in range(n):
            direction, lane = (1, 0) if dst > src else (-1, 1)
            for hop, at in enumerate(range(src, dst, direction)):
                transfers.append(Transfer(hop, at, at + direction, src * n + dst, "copy", lane))
    return Schedule(
        algorithm="line",
        kind="all_to_all",
        n=n,
        chunks=n * n,
        owner=tuple(c // n for c in range(n * n)),
        transfers=tuple(sorted(transfers, key=lambda t: t.round)),
    )
