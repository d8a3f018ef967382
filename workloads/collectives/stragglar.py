"""StragglAR: an all-reduce that does most of its work before the straggler arrives.

The buffer has n - 1 chunks. Phase 1: the others reduce-scatter among themselves, n - 2 rounds on a ring; then each of
them holds one chunk reduced over all but the straggler. Phase 2: the straggler exchanges partial sums with one of them
after the other, which makes that chunk final on both, while the others spread the final chunks.

Source: arXiv 2505.23523; phase 2 is in ``spread.py`` (powers of two) and ``matching.py`` (other n).
"""

from __future__ import annotations

from workloads.collectives.matching import match
from workloads.collectives.ring import ring
from workloads.collectives.spread import Move, spread
from workloads.schedule import CollectiveKind, Schedule, Transfer

STRAGGLAR_KINDS: tuple[CollectiveKind, ...] = ("all_reduce",)


def stragglar(kind: CollectiveKind, n: int, *, straggler: int | None = None) -> Schedule:
    """The schedule for n >= 2 positions, of which ``straggler`` (default: the last) comes late.

    ``owner[c]`` holds chunk c reduced over the others after the ``first_phase`` = n - 2 rounds of phase 1. For a power
    of two, phase 2 takes n + log2(n) - 2 rounds, which is optimal.
    """
    late = n - 1 if straggler is None else straggler
    ranks = [p for p in range(n) if p != late] + [late]
    first = [
        Transfer(t.round, ranks[t.src], ranks[t.dst], t.chunk, "reduce")
        for t in ring("reduce_scatter", n - 1).transfers
    ]
    phase_1 = n - 2
    second = [
        Transfer(phase_1 + number, ranks[src], ranks[dst], chunk, op)
        for number, moves in enumerate(_phase_2(n))
        for src, dst, chunk, op in moves
    ]
    return Schedule(
        algorithm="stragglar",
        kind=kind,
        n=n,
        chunks=n - 1,
        owner=tuple(ranks[:-1]),
        transfers=tuple(first + second),
        one_port=True,
        straggler=late,
        first_phase=phase_1,
    )


def _phase_2(n: int) -> list[list[Move]]:
    """Rounds of phase 2, where n - 1 is the straggler and rank k owns chunk k."""
    return match(n) if n & (n - 1) else spread(n)
