"""MSCCL programs: threadblocks per GPU, each a sequence of steps with one peer to send to and one to receive from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workloads.formats.msccl_xml import Element
from workloads.schedule import CollectiveKind

Buffer = Literal["i", "o", "s"]
Place = tuple[Buffer, int]
"""A buffer of a GPU (input, output, scratch) and the number of the chunk in it."""
StepId = tuple[int, int, int]
"""(gpu, threadblock, step)."""

SENDS = ("s", "rcs", "rrs", "rrcs")
RECEIVES = ("r", "rrc", "rcs", "rrs", "rrcs")
KINDS: dict[str, CollectiveKind] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
WHOLE = ("all_reduce", "broadcast", "reduce")
"""Kinds that do not split their buffer among the GPUs."""


@dataclass(frozen=True)
class ThreadblockStep:
    """One step of a threadblock.

    ``waits_for`` is the step that must be done before. ``src`` and ``dst`` are places of this GPU, None where the type
    does not need them. A receive-reduce adds the received chunks to ``src`` and, unless it is rrs, stores the sum at
    ``dst`` (as MSCCL's interpreter does).
    """

    id: StepId
    type: str
    src: Place | None
    dst: Place | None
    cnt: int
    waits_for: StepId | None
    element: Element


@dataclass(frozen=True)
class Threadblock:
    """A sequence of steps; ``send`` and ``recv`` are its peers or -1."""

    gpu: int
    id: int
    send: int
    recv: int
    chan: int
    steps: tuple[ThreadblockStep, ...]


@dataclass(frozen=True)
class Algo:
    """A whole MSCCL program, as read from one file.

    ``chunks``: those of one GPU's larger buffer; ``copies`` (gpu, from, to) come before all steps.

    Its chunks have the slots of a Schedule: results from 0, inputs from ``input``, then scratch. A part that belongs to
    one GPU (the input of an all-gather, the output of a reduce-scatter) is that part of the whole result. An all-to-all
    has global chunks: offset j x k + m of the input of GPU i is chunk (i x n + j) x k + m, and so is offset i x k + m
    of the output of GPU j.
    """

    name: str
    kind: CollectiveKind
    n: int
    chunks: int
    inplace: bool
    root: int
    blocks: tuple[Threadblock, ...] = ()
    copies: tuple[tuple[int, Place, Place], ...] = ()

    @property
    def part(self) -> int:
        """Chunks that belong to one GPU, where the collective splits its buffer among them."""
        return self.chunks // self.n

    def capacity(self, buffer: Buffer) -> int:
        """Chunks that the input or output of a GPU holds."""
        split = {"i": ("all_gather", "gather"), "o": ("reduce_scatter", "scatter")}
        return self.part if self.kind in split.get(buffer, ()) else self.chunks

    @property
    def total(self) -> int:
        """Number of chunks of the collective, and of slots for its results."""
        return self.chunks * (self.n if self.kind == "all_to_all" else 1)

    @property
    def input(self) -> int:
        """Slot of the first input chunk. The inputs of an all-to-all are always separate, even where it is in place."""
        return self.total if self.kind == "all_to_all" or not self.inplace else 0

    @property
    def scratch(self) -> int:
        """Slot of the first chunk of scratch."""
        return self.input + self.total

    @property
    def temporary(self) -> int:
        """The first slot that no step names."""
        steps = (step for block in self.blocks for step in block.steps)
        places = ((place, step.cnt) for step in steps for place in (step.src, step.dst) if place)
        return self.scratch + max((place[1] + cnt for place, cnt in places if place[0] == "s"), default=0)

    @property
    def owner(self) -> tuple[int, ...]:
        """Owner (position) of each chunk, in order; where the kind fixes none, chunks are split as on a ring."""
        total = self.total
        if self.kind in WHOLE:
            return tuple(c * self.n // total for c in range(total))
        return tuple(c // (total // self.n) for c in range(total))

    def slots(self, gpu: int, place: Place, cnt: int) -> tuple[int, ...]:
        """The slots of ``cnt`` chunks from ``place`` on."""
        buffer, offset = place
        if buffer == "s":
            start = self.scratch
        elif self.kind == "all_to_all":
            if buffer == "o" and not self.inplace:
                return tuple(self.result(gpu, c) for c in range(offset, offset + cnt))
            start = self.input + gpu * self.chunks
        else:
            split = self.capacity(buffer) != self.chunks
            start = (self.input if buffer == "i" else 0) + (gpu * self.part if split else 0)
        return tuple(range(start + offset, start + offset + cnt))

    def result(self, gpu: int, offset: int) -> int:
        """The slot of an offset in the output of an all-to-all."""
        source, rest = divmod(offset, self.part)
        return (source * self.n + gpu) * self.part + rest
