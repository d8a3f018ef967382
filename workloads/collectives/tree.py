"""Binomial trees: few rounds and the whole buffer in each, for scalars, where only the number of rounds counts.

The tree needs a path between any two positions, so it is for electrical networks (the front-end), not for rings of
circuits. Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from workloads.schedule import CollectiveKind, Schedule, Transfer

TREE_KINDS: tuple[CollectiveKind, ...] = ("all_reduce", "broadcast")


def tree(kind: CollectiveKind, n: int) -> Schedule:
    """Reduce to position 0 and broadcast from it (``all_reduce``), or the broadcast alone; one chunk."""
    if kind not in TREE_KINDS:
        raise ValueError(f"no tree schedule for {kind}")
    levels = (n - 1).bit_length()
    transfers: list[Transfer] = []
    if kind == "all_reduce":
        for level in range(levels):
            half = 1 << level
            transfers += [Transfer(level, p, p - half, 0, "reduce") for p in range(half, n, 2 * half)]
    first = levels if kind == "all_reduce" else 0
    for down in range(levels):
        half = 1 << (levels - 1 - down)
        transfers += [Transfer(first + down, p - half, p, 0, "copy") for p in range(half, n, 2 * half)]
    return Schedule("tree", kind, n, 1, (0,), tuple(transfers))
