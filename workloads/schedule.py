"""A collective as a schedule: rounds of transfers between the positions of a group, with the promised result."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Literal

from railyard.errors import ConfigError

CollectiveKind = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "reduce", "gather", "scatter"
]

ADDING: tuple[CollectiveKind, ...] = ("all_reduce", "reduce_scatter", "reduce")
"""Kinds that start with a full buffer at every position and end with sums."""


@dataclass(frozen=True, order=True)
class Transfer:
    """In ``round``, position ``src`` sends its ``chunk`` to ``dst``, which adds it to its own or stores it.

    A transfer reads the state at the start of its round. ``lane`` chooses among several circuits between the same two
    ranks: even lanes are those of clockwise rings, odd ones of counter-clockwise
    (``workloads.rank.paths.choose_path``). ``to`` is the slot that ``dst`` writes, if it differs from the
    one that ``src`` reads (-1: the same). With ``src`` = ``dst`` it is a copy or an addition inside one position,
    without network traffic. ``scale_up``: it stays inside a server and takes the scale-up network.
    """

    round: int
    src: int
    dst: int
    chunk: int
    op: Literal["copy", "reduce"]
    lane: int = 0
    to: int = -1
    scale_up: bool = False

    @property
    def slot(self) -> int:
        return self.chunk if self.to < 0 else self.to

    @property
    def local(self) -> bool:
        return self.src == self.dst


@dataclass(frozen=True)
class Schedule:
    """Transfers that together perform one collective over ``n`` positions, on a buffer of ``chunks`` chunks.

    The contents of each position before and after, by ``kind`` (chunk c, ``owner[c]`` a position, ``root`` a position):
    - all_reduce: every position a full buffer -> every chunk the sum over all positions.
    - reduce: every position a full buffer -> ``root`` holds the sum of every chunk.
    - all_gather: ``owner[c]`` holds chunk c -> every position holds all chunks.
    - reduce_scatter: every position a full buffer -> ``owner[c]`` holds the sum of chunk c.
    - broadcast: position ``root`` holds all -> every position holds all.
    - gather: ``owner[c]`` holds chunk c -> ``root`` holds all chunks.
    - scatter: position ``root`` holds all -> ``owner[c]`` holds chunk c.
    - all_to_all: n x n x k chunks; chunk (i x n + j) x k + m goes from position i, which holds it, to position j
      (``owner`` is i). A position keeps only the chunks that it sends, receives or forwards.

    A slot is a place for one chunk: 0 to ``chunks`` - 1 hold the result, the ``scratch`` slots after them hold
    intermediate values. ``input`` is the slot of the first input chunk: 0 where the collective works in place,
    ``chunks`` where the input is a buffer of its own (which then counts as scratch).

    ``weights``: relative sizes of the chunks (one whole number each; empty: all equal), for an all-to-all in which
    pairs have different amounts to send, or for lanes of different rates.

    ``one_port``: the algorithm promises at most one send and one receive per position and round (chunks to one peer in
    one round are one send), which is enforced when it runs. ``lockstep``: a position starts a round when all its work
    of earlier rounds is done; otherwise chunks do not wait for each other. ``pause_s``: in lock-step a position that
    could start a round waits so many real seconds first (the calls and kernels of a round). ``provisioned``: on
    circuits, matchings take turns on the two ports of a position, each set up while the one before it is used
    (``workloads.collectives.circuits``). ``straggler`` and ``first_phase`` (rounds without it) are those of a
    straggler-aware algorithm. ``pieces``: number of pieces of the first phase of an eager algorithm, whose members
    agree while it runs on who is late (``workloads.rank.roll_call``).
    """

    algorithm: str
    kind: CollectiveKind
    n: int
    chunks: int
    owner: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    root: int = 0
    scratch: int = 0
    input: int = 0
    one_port: bool = False
    lockstep: bool = False
    pause_s: float = 0.0
    provisioned: bool = False
    straggler: int | None = None
    first_phase: int = 0
    weights: tuple[int, ...] = ()
    pieces: int = 0

    @property
    def title(self) -> str:
        return f"{self.algorithm} {self.kind} over {self.n}"

    @property
    def rounds(self) -> int:
        return 1 + max((t.round for t in self.transfers), default=-1)

    @property
    def slots(self) -> int:
        """Number of places for chunks at each position."""
        return self.chunks + self.scratch

    @cached_property
    def moves(self) -> bool:
        """Whether chunks change their slot, so that all slots must have one size."""
        return self.scratch > 0 or any(t.slot != t.chunk for t in self.transfers)

    def starts_at(self, chunk: int) -> int | None:
        """The position that holds ``chunk`` before the collective; None: each holds a contribution to it."""
        if self.kind in ADDING:
            return None
        return self.root if self.kind in ("broadcast", "scatter") else self.owner[chunk]

    def ends_at(self, chunk: int) -> int | None:
        """The position that must hold ``chunk``, or its sum, after the collective; None: every position."""
        if self.kind in ("reduce_scatter", "scatter"):
            return self.owner[chunk]
        if self.kind in ("reduce", "gather"):
            return self.root
        return chunk * self.n**2 // self.chunks % self.n if self.kind == "all_to_all" else None

    def buffer_elements(self, elements: int) -> int:
        """Elements of the buffer that a position addresses (scratch not counted) for a collective over ``elements``.

        An all-to-all over ``elements`` per position addresses those of all positions. Where chunks change their slot
        the buffer is padded until ``chunks`` divides it.
        """
        total = elements * self.n if self.kind == "all_to_all" else elements
        return -(-total // self.chunks) * self.chunks if self.moves else total

    def chunk_bounds(self, elements: int) -> tuple[tuple[int, int], ...]:
        """(start, end) of every slot for a collective over ``elements``; the first chunks take the remainder."""
        total = self.buffer_elements(elements)
        if self.weights:  # bounds at the rounded sums of weights, so that no chunk is off by more than one element
            whole = sum(self.weights)
            ends = [total * weights // whole for weights in accumulate(self.weights)]
        else:
            base, extra = divmod(total, self.chunks)
            ends = list(accumulate(base + (slot < extra) for slot in range(self.slots)))
        return tuple(pairwise((0, *ends)))


def bus_factor(kind: str, members: int) -> float:
    """Ratio of busbw to algbw (NVIDIA nccl-tests, doc/PERFORMANCE.md): bytes on a link per byte of the collective.

    Raises ``ConfigError`` for a kind without such a ratio.
    """
    if kind == "all_reduce":
        return 2 * (members - 1) / members
    if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (members - 1) / members
    if kind in ("reduce", "broadcast", "send_recv"):
        return 1.0
    raise ConfigError(f"{kind!r} has no bus bandwidth in nccl-tests", key="kind")
