"""Broadcast and reduce as a pipeline: chunk after chunk along the positions 0, 1, ..., n - 1, or back to 0.

With k chunks it takes k + n - 2 rounds of 1 / k of the buffer, so with more chunks its time approaches that of sending
the buffer once; 4 n chunks cost at most a quarter more.
Source: Chan et al., "Collective communication: theory, practice, and experience", 2007 (pipelined algorithms), and
NCCL's ring broadcast.
"""

from __future__ import annotations

from workloads.schedule import CollectiveKind, Schedule, Transfer

CHAIN_KINDS: tuple[CollectiveKind, ...] = ("broadcast", "reduce")

CHUNKS_PER_POSITION = 4


def chain(kind: CollectiveKind, n: int) -> Schedule:
    """The pipelined ``kind`` with position 0 as root, on 4 n chunks."""
    chunks = CHUNKS_PER_POSITION * n
    transfers = []
    for round_ in range(chunks + n - 2):
        for hop in range(n - 1):
            chunk = round_ - hop
            if not 0 <= chunk < chunks:
                continue
            if kind == "broadcast":
                transfers.append(Transfer(round_, hop, hop + 1, chunk, "copy"))
            else:
                transfers.append(Transfer(round_, n - 1 - hop, n - 2 - hop, chunk, "reduce"))
    return Schedule("ring", kind, n, chunks, (0,) * chunks, tuple(transfers), one_port=True)
