"""Ring collectives: all-gather, reduce-scatter and all-reduce on one or more rings, broadcast and reduce along one.

The positions form a ring. Clockwise chunks travel from position i to i + 1 on lane 0. The bidirectional ring has twice
as many chunks; its second half travels from i to i - 1 on lane 1, so that both ports of a GPU work both ways. With L
lanes there are n x L chunks: those of lane 2k travel clockwise, those of lane 2k + 1 the other way, each lane on a
circuit of its own where a hop has several (``workloads.rank.paths.choose_path``). Every position sends (n -
1) / n of the buffer (twice that for an all-reduce), which is optimal.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.
"""

from __future__ import annotations

from collections.abc import Iterator

from railyard.errors import ConfigError
from workloads.schedule import CollectiveKind, Schedule, Transfer

CHAIN_CHUNKS_PER_POSITION = 4


def ring_name(lanes: int) -> str:
    """Name of the ring algorithm with ``lanes`` lanes: ``ring``, ``bidirectional-ring``, ``ring-3``, ``ring-4``, ..."""
    return {1: "ring", 2: "bidirectional-ring"}.get(lanes, f"ring-{lanes}")


def ring(kind: CollectiveKind, n: int, *, lanes: int = 1) -> Schedule:
    """All-reduce, all-gather or reduce-scatter over ``n`` positions on ``lanes`` lanes; n = 1 has nothing to transfer.

    Chunks: n for each lane (l x n to l x n + n - 1); position p owns chunk l x n + p of every lane l before an
    all-gather and after a reduce-scatter. Raises ``ConfigError`` without a lane.
    """
    if lanes < 1:
        raise ConfigError(f"must be at least 1, not {lanes}", key="lanes")
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


def chain(kind: CollectiveKind, n: int) -> Schedule:
    """Broadcast or reduce as a pipeline: chunk after chunk along the positions 0, 1, ..., n - 1, or back to 0.

    With k chunks it takes k + n - 2 rounds of 1 / k of the buffer, so with more chunks its time approaches that of
    sending the buffer once; 4 n chunks cost at most a quarter more. Position 0 is the root.
    Source: Chan et al., "Collective communication: theory, practice, and experience", 2007 (pipelined algorithms), and
    NCCL's ring broadcast.
    """
    chunks = CHAIN_CHUNKS_PER_POSITION * n
    transfers = []
    for round_ in range(chunks + n - 2):
        for hop in range(n - 1):
            chunk = round_ - hop
            if 0 <= chunk < chunks and kind == "broadcast":
                transfers.append(Transfer(round_, hop, hop + 1, chunk, "copy"))
            elif 0 <= chunk < chunks:
                transfers.append(Transfer(round_, n - 1 - hop, n - 2 - hop, chunk, "reduce"))
    return Schedule("ring", kind, n, chunks, (0,) * chunks, tuple(transfers), one_port=True)
