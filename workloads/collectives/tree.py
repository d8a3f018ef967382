"""Binomial trees: few rounds with the whole buffer in each, for scalars, where only the number of rounds counts.

The tree needs a path between any two positions, so it is for electrical networks (the front-end), not for rings of
circuits.
Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.schedule import CollectiveKind, Schedule, Transfer

TREE_KINDS: tuple[CollectiveKind, ...] = ("all_reduce", "broadcast", "reduce", "gather", "scatter")


def tree(kind: CollectiveKind, n: int) -> Schedule:
    """The schedule of ``kind`` with position 0 as root: up the tree, down the tree, or (all_reduce) both.

    There is one chunk; a gather or scatter has n chunks, and a position forwards those of the positions below it.
    """
    if kind not in TREE_KINDS:
        raise ValueError(f"no tree schedule for {kind}")
    chunks = n if kind in ("gather", "scatter") else 1
    transfers: list[Transfer] = []
    if kind in ("all_reduce", "reduce", "gather"):
        transfers += _up(kind, n)
    if kind in ("all_reduce", "broadcast", "scatter"):
        transfers += _down(kind, n, first_round=(n - 1).bit_length() if kind == "all_reduce" else 0)
    return Schedule("tree", kind, n, chunks, tuple(range(chunks)), tuple(transfers), one_port=True)


def _up(kind: CollectiveKind, n: int) -> Iterator[Transfer]:
    for level in range((n - 1).bit_length()):
        half = 1 << level
        for p in range(half, n, 2 * half):
            if kind == "gather":
                yield from (Transfer(level, p, p - half, c, "copy") for c in range(p, min(p + half, n)))
            else:
                yield Transfer(level, p, p - half, 0, "reduce")


def _down(kind: CollectiveKind, n: int, first_round: int) -> Iterator[Transfer]:
    levels = (n - 1).bit_length()
    for down in range(levels):
        half = 1 << (levels - 1 - down)
        for p in range(half, n, 2 * half):
            below = range(p, min(p + half, n)) if kind == "scatter" else range(1)
            yield from (Transfer(first_round + down, p - half, p, c, "copy") for c in below)
