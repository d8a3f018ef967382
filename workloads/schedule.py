"""A collective as a schedule: rounds of transfers between the positions of a group, and its proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workloads.program import CollectiveKind


@dataclass(frozen=True, order=True)
class Transfer:
    """In ``round``, position ``src`` sends its ``chunk`` to ``dst``, which adds it or stores it.

    ``lane`` chooses among several circuits between the same two ranks (0 clockwise, 1 counter-clockwise).
    A transfer reads the state at the start of its round.
    """

    round: int
    src: int
    dst: int
    chunk: int
    op: Literal["copy", "reduce"]
    lane: int = 0


@dataclass(frozen=True)
class Schedule:
    """Transfers that together carry out one collective over ``n`` positions, on a buffer of ``chunks`` chunks.

    What a position holds before and after, by ``kind`` (chunk c, ``owner[c]`` a position):
    all_reduce: every position a full buffer -> every chunk the sum over all positions.
    all_gather: ``owner[c]`` holds chunk c -> every position holds all chunks.
    reduce_scatter: every position a full buffer -> ``owner[c]`` holds the sum of chunk c.
    broadcast: position ``owner[0]`` holds all -> every position holds all.
    """

    algorithm: str
    kind: CollectiveKind
    n: int
    chunks: int
    owner: tuple[int, ...]
    transfers: tuple[Transfer, ...]

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return 1 + max((t.round for t in self.transfers), default=-1)

    def chunk_bounds(self, total: int) -> tuple[tuple[int, int], ...]:
        """(start, end) of every chunk of a buffer of ``total`` elements; the first chunks take the remainder."""
        base, extra = divmod(total, self.chunks)
        bounds, start = [], 0
        for c in range(self.chunks):
            end = start + base + (1 if c < extra else 0)
            bounds.append((start, end))
            start = end
        return tuple(bounds)
