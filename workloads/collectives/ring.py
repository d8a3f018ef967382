"""Ring collectives: all-gather, reduce-scatter and all-reduce on one or two rings.

Positions stand on a ring. Clockwise chunks travel from position i to i + 1 on lane 0. The bidirectional ring has
twice as many chunks; its second half travels from i to i - 1 on lane 1, so that both ports of a GPU work both ways.
Every position sends (n - 1) / n of the buffer (twice that for an all-reduce), which is the least possible.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.schedule import CollectiveKind, Schedule, Transfer

RING_KINDS: tuple[CollectiveKind, ...] = ("all_reduce", "all_gather", "reduce_scatter")


def ring(kind: CollectiveKind, n: int, *, bidirectional: bool = False) -> Schedule:
    """The ring schedule of ``kind`` over ``n`` positions; n = 1 has nothing to transfer.

    Chunks: n (or 2n when bidirectional: 0 to n - 1 clockwise, n to 2n - 1 counter-clockwise); position p owns chunks
    p and n + p before an all-gather and after a reduce-scatter.
    """
    if kind not in RING_KINDS:
        raise ValueError(f"no ring schedule for {kind}")
    turns = (1, -1) if bidirectional and n > 1 else (1,)
    transfers: list[Transfer] = []
    for lane, turn in enumerate(turns):
        if kind in ("all_reduce", "reduce_scatter"):
            transfers += _reduce_scatter(n, turn, lane)
        if kind in ("all_reduce", "all_gather"):
            transfers += _all_gather(n, turn, lane, first_round=n - 1 if kind == "all_reduce" else 0)
    return Schedule(
        algorithm="bidirectional-ring" if bidirectional else "ring",
        kind=kind,
        n=n,
        chunks=n * len(turns),
        owner=tuple(range(n)) * len(turns),
        transfers=tuple(sorted(transfers)),
        one_port=not bidirectional,
    )


def _reduce_scatter(n: int, turn: int, lane: int) -> Iterator[Transfer]:
    """Chunk c starts at the neighbour of its owner and collects a sum on the way round to the owner."""
    for round_ in range(n - 1):
        for src in range(n):
            chunk = (src - turn * (1 + round_)) % n
            yield Transfer(round_, src, (src + turn) % n, lane * n + chunk, "reduce", lane)


def _all_gather(n: int, turn: int, lane: int, first_round: int) -> Iterator[Transfer]:
    """Chunk c starts at its owner and is copied on round the ring."""
    for round_ in range(n - 1):
        for src in range(n):
            chunk = (src - turn * round_) % n
            yield Transfer(first_round + round_, src, (src + turn) % n, lane * n + chunk, "copy", lane)
