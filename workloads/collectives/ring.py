"""Ring collectives: all-gather, reduce-scatter and all-reduce on one or more rings.

The positions form a ring. Clockwise chunks travel from position i to i + 1 on lane 0. The bidirectional ring has twice
as many chunks; its second half travels from i to i - 1 on lane 1, so that both ports of a GPU work both ways. With L
lanes there are n x L chunks: those of lane 2k travel clockwise, those of lane 2k + 1 the other way, each lane on a
circuit of its own where a hop has several (``workloads.rank.paths.choose_path``). Every position sends (n -
1) / n of the buffer (twice that for an all-reduce), which is optimal.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.schedule import CollectiveKind, Schedule, Transfer

RING_KINDS: tuple[CollectiveKind, ...] = ("all_reduce", "all_gather", "reduce_scatter")


def ring_name(lanes: int) -> str:
    """Name of the ring algorithm with ``lanes`` lanes: ``ring``, ``bidirectional-ring``, ``ring-3``, ``ring-4``, ..."""
    return {1: "ring", 2: "bidirectional-ring"}.get(lanes, f"ring-{lanes}")


def ring(kind: CollectiveKind, n: int, *, lanes: int = 1) -> Schedule:
    """The ring schedule of ``kind`` over ``n`` positions on ``lanes`` lanes; n = 1 has nothing to transfer.

    Chunks: n for each lane (l x n to l x n + n - 1); position p owns chunk l x n + p of every lane l before an
    all-gather and after a reduce-scatter. Raises ``ValueError`` for another kind, or without a lane.
    """
    if kind not in RING_KINDS:
        raise ValueError(f"no ring schedule for {kind}")
    if lanes < 1:
        raise ValueError(f"a ring needs at least 1 lane, not {lanes}")
    directions = [-1 if lane % 2 else 1 for lane in range(lanes if n > 1 else 1)]
    transfers: list[Transfer] = []
    for lane, direction in enumerate(directions):
        if kind in ("all_reduce", "reduce_scatter"):
            transfers += _reduce_scatter(n, direction, lane)
        if kind in ("all_reduce", "all_gather"):
            transfers += _all_gather(n, direction, lane, first_round=n - 1 if kind == "all_reduce" else 0)
    return Schedule(
        algorithm=ring_name(lanes),
        kind=kind,
        n=n,
        chunks=n * len(directions),
        owner=tuple(range(n)) * len(directions),
        transfers=tuple(sorted(transfers)),
        one_port=lanes == 1,
    )


def _reduce_scatter(n: int, direction: int, lane: int) -> Iterator[Transfer]:
    """Transfers in which chunk c starts at the neighbour of its owner and is summed around the ring to the owner."""
    for round_ in range(n - 1):
        for src in range(n):
            chunk = (src - direction * (1 + round_)) % n
            yield Transfer(round_, src, (src + direction) % n, lane * n + chunk, "reduce", lane)


def _all_gather(n: int, direction: int, lane: int, first_round: int) -> Iterator[Transfer]:
    """Transfers in which chunk c starts at its owner and is copied around the ring."""
    for round_ in range(n - 1):
        for src in range(n):
            chunk = (src - direction * round_) % n
            yield Transfer(first_round + round_, src, (src + direction) % n, lane * n + chunk, "copy", lane)
