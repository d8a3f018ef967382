"""Baseline all-reduce with a straggler: the others all-reduce, then the last contribution is added and broadcast.

Phase 1: the others all-reduce on a ring, 2 (n - 2) rounds. Phase 2: the straggler exchanges the whole buffer with one
of them, which makes the sum final on both, and both broadcast it on a binomial tree: L = ceil(log2 n) rounds of the
whole buffer.
Source: arXiv 2505.23523, the baseline "Direct" of its evaluation.
"""

from __future__ import annotations

from workloads.collectives.ring import ring
from workloads.schedule import CollectiveKind, Schedule, Transfer

STRAGGLER_DIRECT_KINDS: tuple[CollectiveKind, ...] = ("all_reduce",)


def straggler_direct(kind: CollectiveKind, n: int, *, straggler: int | None = None) -> Schedule:
    """The schedule for n >= 2 positions, of which ``straggler`` (default: the last) comes late; n - 1 chunks."""
    late = n - 1 if straggler is None else straggler
    others = [p for p in range(n) if p != late]
    chunks = range(n - 1)
    transfers = [Transfer(t.round, others[t.src], others[t.dst], t.chunk, t.op) for t in ring(kind, n - 1).transfers]
    first = 2 * (n - 2)
    for a, b in ((late, others[0]), (others[0], late)):
        transfers += [Transfer(first, a, b, c, "reduce") for c in chunks]
    holders = [late, others[0]]
    waiting = others[1:]
    round_ = first
    while waiting:
        round_ += 1
        pairs = list(zip(holders, waiting, strict=False))
        transfers += [Transfer(round_, src, dst, c, "copy") for src, dst in pairs for c in chunks]
        holders += [dst for _, dst in pairs]
        waiting = waiting[len(pairs) :]
    return Schedule(
        algorithm="straggler-direct",
        kind=kind,
        n=n,
        chunks=n - 1,
        owner=tuple(others),
        transfers=tuple(transfers),
        one_port=True,
        straggler=late,
        first_phase=first,
    )
