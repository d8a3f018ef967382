"""Pairwise exchange: an all-to-all in which each position exchanges data with one other in each round.

For a power of two the partner in round r is the position whose number differs by the bits of r, so each round is a
matching. Otherwise a position sends to the position r after it and receives from the position r before it.

Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from workloads.schedule import CollectiveKind, Schedule, Transfer

PAIRWISE_KINDS: tuple[CollectiveKind, ...] = ("all_to_all",)


def pairwise(kind: CollectiveKind, n: int) -> Schedule:
    """The all-to-all of n x n chunks over ``n`` positions in n - 1 rounds."""
    power = n & (n - 1) == 0
    transfers = [
        Transfer(r - 1, src, dst, src * n + dst, "copy")
        for r in range(1, n)
        for src in range(n)
        for dst in (src ^ r if power else (src + r) % n,)
    ]
    owner = tuple(c // n for c in range(n * n))
    return Schedule("pairwise", kind, n, n * n, owner, tuple(transfers), one_port=True)
