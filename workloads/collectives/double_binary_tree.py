"""Double binary tree all-reduce: two trees, each for half the buffer, so that all positions send about the same amount.

In a binary tree the leaves, half of the positions, send little. Here a position inside one tree is a leaf of the other
(except for the roots), and chunk after chunk goes up to the root of its tree, where it is summed, and down again. A
position then sends and receives about twice the buffer, as in a ring, in a number of rounds whose latency part grows as
log n.

A round is limited by one port: at most one send and one receive per position. Each transfer takes the first round in
which its chunk is there and both ports are free; chunks are placed one after the other, alternating between the trees.

Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
Computing 2009; used by NCCL since 2.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from workloads.schedule import CollectiveKind, Schedule, Transfer

DOUBLE_BINARY_TREE_KINDS: tuple[CollectiveKind, ...] = ("all_reduce",)

CHUNKS_PER_LEVEL = 4
"""Chunks of each tree per level: the pipeline is then about four times as long as the trees are deep."""


def double_binary_tree(kind: CollectiveKind, n: int) -> Schedule:
    """The all-reduce over ``n`` positions; 2 x 4 ceil(log2 n) chunks, the first half up and down the first tree."""
    each = max(1, CHUNKS_PER_LEVEL * (n - 1).bit_length())
    trees = [_parents(n), _mirrored(n)]
    plan = _Plan()
    for number in range(each):
        for tree, parents in enumerate(trees):
            _place(plan, parents, tree * each + number)
    transfers = tuple(sorted(plan.transfers, key=lambda t: t.round))
    owner = tuple(parents.index(-1) for parents in trees for _ in range(each))
    return Schedule("double-binary-tree", kind, n, 2 * each, owner, transfers, one_port=True)


@dataclass
class _Plan:
    """Transfers placed so far, and the busy ports of each round."""

    transfers: list[Transfer] = field(default_factory=list)
    sends: set[tuple[int, int]] = field(default_factory=set)
    receives: set[tuple[int, int]] = field(default_factory=set)

    def add(self, earliest: int, transfer: Transfer) -> int:
        """Place ``transfer`` in the first round from ``earliest`` on with both ports free; returns the round."""
        round_ = earliest
        while (round_, transfer.src) in self.sends or (round_, transfer.dst) in self.receives:
            round_ += 1
        self.sends.add((round_, transfer.src))
        self.receives.add((round_, transfer.dst))
        self.transfers.append(Transfer(round_, transfer.src, transfer.dst, transfer.chunk, transfer.op))
        return round_


def _place(plan: _Plan, parents: list[int], chunk: int) -> None:
    """Place ``chunk`` on its way up, children before parents, and down again."""
    down = _top_down(parents)
    ready = [0] * len(parents)
    for p in reversed(down):
        if parents[p] >= 0:
            sent = plan.add(ready[p], Transfer(0, p, parents[p], chunk, "reduce"))
            ready[parents[p]] = max(ready[parents[p]], sent + 1)
    for p in down:
        if parents[p] >= 0:
            ready[p] = 1 + plan.add(ready[parents[p]], Transfer(0, parents[p], p, chunk, "copy"))


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
    position = {r: p for p, r in enumerate(role)}
    parents = _parents(n)
    return [position[parents[role[p]]] if parents[role[p]] >= 0 else -1 for p in range(n)]


def _top_down(parents: list[int]) -> list[int]:
    """All positions, each after its parent."""
    depth: dict[int, int] = {-1: -1}

    def find(p: int) -> int:
        if p not in depth:
            depth[p] = find(parents[p]) + 1
        return depth[p]

    return sorted(range(len(parents)), key=lambda p: (find(p), p))
