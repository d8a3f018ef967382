"""Trees: binomial trees for scalars, and the double binary tree for large all-reduces.

A tree needs a path between any two positions, so it is for electrical networks (the front-end), not for rings of
circuits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from workloads.schedule import CollectiveKind, Schedule, Transfer

CHUNKS_PER_LEVEL = 4
"""Chunks of each of the two binary trees per level: the pipeline is about four times as long as the trees are deep."""


def tree(kind: CollectiveKind, n: int) -> Schedule:
    """A binomial tree with position 0 as root: up the tree, down the tree, or (all_reduce) both.

    Few rounds with the whole buffer in each, for scalars, where only the number of rounds counts. There is one chunk; a
    gather or scatter has n chunks, and a position forwards those of the positions below it.
    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
    """
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


def double_binary_tree(kind: CollectiveKind, n: int) -> Schedule:
    """The all-reduce of 2 x 4 ceil(log2 n) chunks on two binary trees, the first half up and down the first tree.

    In a binary tree the leaves, half of the positions, send little. Here a position inside one tree is a leaf of the
    other (except for the roots), and chunk after chunk goes up to the root of its tree, where it is summed, and down
    again. A position then sends and receives about twice the buffer, as in a ring, in a number of rounds whose latency
    part grows as log n. Each transfer takes the first round in which its chunk is there and the ports of both ends are
    free; chunks are placed one after the other, alternating between the trees.

    Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
    Computing 2009; used by NCCL since 2.4.
    """
    each = max(1, CHUNKS_PER_LEVEL * (n - 1).bit_length())
    trees = [_parents(n), _mirrored(n)]
    transfers: list[Transfer] = []
    busy: set[tuple[int, int, str]] = set()

    def place(earliest: int, src: int, dst: int, chunk: int, op: Literal["copy", "reduce"]) -> int:
        """Add a transfer in the first round from ``earliest`` on with both ports free; returns the round after it."""
        round_ = earliest
        while not busy.isdisjoint({(round_, src, "send"), (round_, dst, "receive")}):
            round_ += 1
        busy.update({(round_, src, "send"), (round_, dst, "receive")})
        transfers.append(Transfer(round_, src, dst, chunk, op))
        return round_ + 1

    for number in range(each):
        for which, parents in enumerate(trees):
            chunk = which * each + number
            down = sorted(range(n), key=lambda p: _depth(parents, p))[1:]
            ready = [0] * n
            for p in reversed(down):
                above = parents[p]
                ready[above] = max(ready[above], place(ready[p], p, above, chunk, "reduce"))
            for p in down:
                ready[p] = place(ready[parents[p]], parents[p], p, chunk, "copy")
    owner = tuple(parents.index(-1) for parents in trees for _ in range(each))
    in_order = tuple(sorted(transfers, key=lambda t: t.round))
    return Schedule("double-binary-tree", kind, n, 2 * each, owner, in_order, one_port=True)


def _parents(n: int) -> list[int]:
    """Parents of the first tree, root 0 (its parent is -1): odd positions are leaves.

    Position p is as many levels above the leaves as it has trailing zero bits; its parent has one more, or is the next
    lower position that exists.
    """
    parents = [-1]
    for p in range(1, n):
        bit = p & -p
        above = (p ^ bit) | bit << 1
        parents.append(above if above < n else p ^ bit)
    return parents


def _mirrored(n: int) -> list[int]:
    """Parents of the second tree, whose leaves are even: the first reversed (n even) or shifted by one (n odd)."""
    role = [n - 1 - p if n % 2 == 0 else (p - 1) % n for p in range(n)]
    position = {-1: -1, **{r: p for p, r in enumerate(role)}}
    parents = _parents(n)
    return [position[parents[r]] for r in role]


def _depth(parents: list[int], p: int) -> int:
    """Number of positions above ``p``."""
    return 0 if parents[p] < 0 else 1 + _depth(parents, parents[p])
