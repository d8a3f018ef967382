"""Two-hop all-to-all: the data of each position is spread over all positions, which forward it to its destination.

Each circuit then carries about the same amount whatever the demand, so slots that do not follow the demand
(``controllers.policies.rotor``) are used evenly; in exchange, nearly all data crosses the fabric twice.

Source: Valiant and Brebner, "Universal schemes for parallel communication", STOC 1981; RotorNet, SIGCOMM'17.
"""

from __future__ import annotations

from collections.abc import Sequence

from workloads.collectives.straight import chunk_weights, owners
from workloads.schedule import CollectiveKind, Schedule, Transfer

VALIANT_KINDS: tuple[CollectiveKind, ...] = ("all_to_all",)


def valiant(kind: CollectiveKind, n: int) -> Schedule:
    """The all-to-all of equal amounts, for the catalog."""
    return valiant_all_to_all(n)


def valiant_all_to_all(n: int, weights: Sequence[Sequence[int]] | None = None) -> Schedule:
    """The all-to-all of n x n x (n - 1) chunks over ``n`` positions, in two rounds.

    The data of position i for position j is cut into n - 1 pieces (chunk (i x n + j) x (n - 1) + m); piece m goes to
    position i + 1 + m (modulo n) in the first round and from there to j in the second, unless that position is j
    itself. ``weights`` as in ``straight_all_to_all``.
    """
    pieces = max(1, n - 1)
    sizes = chunk_weights(n, pieces, weights)
    hops: tuple[list[Transfer], list[Transfer]] = ([], [])
    for m in range(n - 1):
        for src in range(n):
            middle = (src + 1 + m) % n
            for dst in ((middle + offset) % n for offset in range(n)):
                chunk = (src * n + dst) * pieces + m
                if dst == src or (sizes and not sizes[chunk]):
                    continue
                hops[0].append(Transfer(0, src, middle, chunk, "copy"))
                if middle != dst:
                    hops[1].append(Transfer(1, middle, dst, chunk, "copy"))
    return Schedule(
        algorithm="valiant",
        kind="all_to_all",
        n=n,
        chunks=n * n * pieces,
        owner=owners(n, pieces),
        transfers=(*hops[0], *hops[1]),
        weights=sizes,
    )
