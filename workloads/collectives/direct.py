"""Collectives without forwarding: all data goes straight to its destination, in one round (two for ``allpairs``).

There are few latencies, but each position sends to all others through the same port: n - 1 times the bytes of one
transfer. For small buffers, and for networks with a path between any two positions.
Source: the one-shot all-reduce of NVIDIA's TensorRT-LLM and of MSCCL++; allpairs of MSCCL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from workloads.collectives.all_to_all import straight_all_to_all
from workloads.schedule import CollectiveKind, Schedule, Transfer


def direct(kind: CollectiveKind, n: int) -> Schedule:
    """The schedule of ``kind`` over ``n`` positions in one round; the root is position 0.

    Chunks: 1 (all_reduce, broadcast, reduce), n x n (all_to_all) or n. Each position sends to the next one first,
    so that no two begin with the same receiver.
    """
    if kind == "all_to_all":
        return replace(straight_all_to_all(n), algorithm="direct")
    chunks = 1 if kind in ("all_reduce", "broadcast", "reduce") else n
    return Schedule("direct", kind, n, chunks, tuple(range(chunks)), tuple(_transfers(kind, n)))


def allpairs(kind: CollectiveKind, n: int) -> Schedule:
    """The all-reduce of two rounds over ``n`` positions: a direct reduce-scatter, then a direct all-gather.

    Every position sends as much as in a ring, with two latencies instead of 2 (n - 1). Position c owns chunk c.
    """
    first, second = direct("reduce_scatter", n), direct("all_gather", n)
    transfers = (*first.transfers, *(replace(each, round=1) for each in second.transfers))
    return replace(first, algorithm="allpairs", kind=kind, transfers=transfers)


def _transfers(kind: CollectiveKind, n: int) -> Iterator[Transfer]:
    for src, dst in ((src, (src + offset) % n) for offset in range(1, n) for src in range(n)):
        if kind == "all_reduce" or (kind == "reduce" and dst == 0):
            yield Transfer(0, src, dst, 0, "reduce")
        elif kind == "reduce_scatter":
            yield Transfer(0, src, dst, dst, "reduce")
        elif kind == "all_gather" or (kind == "gather" and dst == 0):
            yield Transfer(0, src, dst, src, "copy")
        elif kind in ("broadcast", "scatter") and src == 0:
            yield Transfer(0, src, dst, 0 if kind == "broadcast" else dst, "copy")
