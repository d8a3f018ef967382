"""All-reduces that begin before a straggler has arrived: StragglAR, and the baseline of its evaluation.

Phase 1 is among the others, on a ring; phase 2 includes the straggler. The buffer has n - 1 chunks.

Source: arXiv 2505.23523; phase 2 of StragglAR is in ``spread.py`` (powers of two) and ``matching.py`` (other n).
"""

from __future__ import annotations

from collections.abc import Sequence

from workloads.collectives.matching import match
from workloads.collectives.ring import ring
from workloads.collectives.spread import Move, spread
from workloads.schedule import CollectiveKind, Schedule, Transfer


def stragglar(kind: CollectiveKind, n: int, *, straggler: int) -> Schedule:
    """StragglAR for n >= 2 positions, of which ``straggler`` comes late.

    Phase 1: the others reduce-scatter among themselves, n - 2 rounds on a ring; then ``owner[c]`` holds chunk c reduced
    over all but the straggler. Phase 2: the straggler exchanges partial sums with one of them after the other, which
    makes that chunk final on both, while the others spread the final chunks. For a power of two, phase 2 takes n +
    log2(n) - 2 rounds, which is optimal.
    """
    second = match(n) if n & (n - 1) else spread(n)
    return _in_phases("stragglar", kind, straggler, ring("reduce_scatter", n - 1), second)


def straggler_direct(kind: CollectiveKind, n: int, *, straggler: int) -> Schedule:
    """The baseline "Direct" for n >= 2 positions, of which ``straggler`` comes late.

    Phase 1: the others all-reduce, 2 (n - 2) rounds on a ring. Phase 2: the straggler exchanges the whole buffer with
    one of them, which makes the sum final on both, and both broadcast it on a binomial tree: ceil(log2 n) rounds of the
    whole buffer.
    """
    late, chunks = n - 1, range(n - 1)
    second: list[list[Move]] = [[(a, b, c, "reduce") for a, b in ((late, 0), (0, late)) for c in chunks]]
    holders, waiting = [late, 0], list(range(1, late))
    while waiting:
        pairs = list(zip(holders, waiting, strict=False))
        second.append([(src, dst, c, "copy") for src, dst in pairs for c in chunks])
        holders += [dst for _, dst in pairs]
        waiting = waiting[len(pairs) :]
    return _in_phases("straggler-direct", kind, straggler, ring("all_reduce", n - 1), second)


def _in_phases(
    algorithm: str, kind: CollectiveKind, straggler: int, first: Schedule, second: Sequence[Sequence[Move]]
) -> Schedule:
    """The schedule of both phases, in which n - 1 stands for the straggler and the numbers below it for the others."""
    others = tuple(p for p in range(first.n + 1) if p != straggler)
    ranks = (*others, straggler)
    moves = [(t.round, t.src, t.dst, t.chunk, t.op) for t in first.transfers]
    moves += [(number, *move) for number, now in enumerate(second, first.rounds) for move in now]
    return Schedule(
        algorithm=algorithm,
        kind=kind,
        n=len(ranks),
        chunks=len(others),
        owner=others,
        transfers=tuple(Transfer(round_, ranks[src], ranks[dst], chunk, op) for round_, src, dst, chunk, op in moves),
        one_port=True,
        straggler=straggler,
        first_phase=first.rounds,
    )
