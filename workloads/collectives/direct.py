"""One-shot collectives: all data goes straight to its destination, in one round.

There is one latency, but each position sends to all others through the same port: n - 1 times the bytes of one
transfer. For small buffers, and for networks with a path between any two positions.
Source: the one-shot all-reduce of NVIDIA's TensorRT-LLM and of MSCCL++.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.schedule import CollectiveKind, Schedule, Transfer

DIRECT_KINDS: tuple[CollectiveKind, ...] = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter",
)  # fmt: skip


def direct(kind: CollectiveKind, n: int) -> Schedule:
    """The schedule of ``kind`` over ``n`` positions in one round; the root is position 0.

    Chunks: 1 (all_reduce, broadcast, reduce), n x n (all_to_all) or n. Each position sends to the next one first,
    so that no two begin with the same receiver.
    """
    chunks = 1 if kind in ("all_reduce", "broadcast", "reduce") else n * n if kind == "all_to_all" else n
    owner = tuple(c // n for c in range(chunks)) if kind == "all_to_all" else tuple(range(chunks))
    return Schedule("direct", kind, n, chunks, owner, tuple(_transfers(kind, n)))


def bidirectional_direct(kind: CollectiveKind, n: int) -> Schedule:
    """The all-to-all of n x n x 2 chunks in one round, through both ports of a GPU.

    Data for positions less than n / 2 ahead goes by lane 0, for those less than n / 2 behind by lane 1, and for the one
    opposite (n even) half by each, so that both ports carry the same number of bytes.
    """
    transfers = [
        Transfer(0, src, (src + offset) % n, (src * n + (src + offset) % n) * 2 + half, "copy", lane)
        for offset in range(1, n)
        for src in range(n)
        for half in (0, 1)
        for lane in (half if 2 * offset == n else int(2 * offset > n),)
    ]
    owner = tuple(c // (2 * n) for c in range(2 * n * n))
    return Schedule("bidirectional-direct", kind, n, 2 * n * n, owner, tuple(transfers))


def _transfers(kind: CollectiveKind, n: int) -> Iterator[Transfer]:
    for src, dst in ((src, (src + offset) % n) for offset in range(1, n) for src in range(n)):
        if kind == "all_reduce" or (kind == "reduce" and dst == 0):
            yield Transfer(0, src, dst, 0, "reduce")
        elif kind == "reduce_scatter":
            yield Transfer(0, src, dst, dst, "reduce")
        elif kind == "all_gather" or (kind == "gather" and dst == 0):
            yield Transfer(0, src, dst, src, "copy")
        elif kind == "all_to_all":
            yield Transfer(0, src, dst, src * n + dst, "copy")
        elif kind in ("broadcast", "scatter") and src == 0:
            yield Transfer(0, src, dst, 0 if kind == "broadcast" else dst, "copy")
