"""Maps the chunks in MSCCL's buffers to the slots of a Schedule, and back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from railyard.errors import ConfigError
from workloads.formats.msccl_program import Algo, Buffer, Place
from workloads.schedule import Schedule

_WHOLE = ("all_reduce", "broadcast", "reduce")
"""Kinds that do not split their buffer among the positions."""


@dataclass(frozen=True)
class Slots:
    """The slots of a program: results from 0, inputs from ``input``, then scratch.

    A part that belongs to one GPU (the input of an all-gather, the output of a reduce-scatter) is that part of the
    whole result. An all-to-all has global chunks: offset j x k + m of the input of GPU i is chunk (i x n + j) x k + m,
    and so is offset i x k + m of the output of GPU j.
    """

    algo: Algo

    @property
    def chunks(self) -> int:
        """Number of chunks of the collective."""
        return self.algo.chunks * (self.algo.n if self.algo.kind == "all_to_all" else 1)

    @property
    def input(self) -> int:
        """Slot of the first input chunk. The inputs of an all-to-all are always separate, even where it is in place."""
        return self.chunks if self.algo.kind == "all_to_all" or not self.algo.inplace else 0

    @property
    def scratch(self) -> int:
        """Slot of the first chunk of scratch."""
        return self.input + self.chunks

    @property
    def temporary(self) -> int:
        """The first slot that no step names."""
        places = ((place, step.cnt) for block in self.algo.blocks for step in block.steps
                  for place in (step.src, step.dst) if place)  # fmt: skip
        return self.scratch + max((place[1] + cnt for place, cnt in places if place[0] == "s"), default=0)

    @property
    def owner(self) -> tuple[int, ...]:
        """Owner (position) of each chunk, in order; where the kind fixes none, chunks are split as on a ring."""
        n, kind = self.algo.n, self.algo.kind
        if kind in _WHOLE:
            return tuple(c * n // self.chunks for c in range(self.chunks))
        return tuple(c // (self.chunks // n) for c in range(self.chunks))

    def of(self, gpu: int, place: Place, cnt: int) -> tuple[int, ...]:
        """The slots of ``cnt`` chunks from ``place`` on."""
        buffer, offset = place
        if buffer == "s":
            start = self.scratch
        elif self.algo.kind == "all_to_all":
            if buffer == "o" and not self.algo.inplace:
                return tuple(self.result(gpu, c) for c in range(offset, offset + cnt))
            start = self.input + gpu * self.algo.chunks
        else:
            split = self.algo.capacity(buffer) != self.algo.chunks
            start = (self.input if buffer == "i" else 0) + (gpu * self.algo.part if split else 0)
        return tuple(range(start + offset, start + offset + cnt))

    def result(self, gpu: int, offset: int) -> int:
        """The slot of an offset in the output of an all-to-all."""
        source, rest = divmod(offset, self.algo.part)
        return (source * self.algo.n + gpu) * self.algo.part + rest


class BufferLayout:
    """Places for the slots that a schedule uses; slots without a place in the user's buffers get scratch.

    A schedule that works in place stays so, except for an all-to-all: MSCCL's in-place all-to-all has one buffer for
    both, and the global chunks of a Schedule never share a place. ``frame`` is the program without its threadblocks.
    """

    def __init__(self, schedule: Schedule):
        chunks, kind = schedule.chunks, schedule.kind
        self.frame = Algo(
            name=schedule.algorithm,
            kind=kind,
            n=schedule.n,
            chunks=chunks // schedule.n if kind == "all_to_all" else chunks,
            inplace=schedule.input == 0 and kind != "all_to_all",
            root=schedule.root,
        )
        order = _by_owner(schedule)
        self._places = [self._user_places(schedule, order, position) for position in range(schedule.n)]
        self._scratch = [0] * schedule.n

    def _user_places(self, schedule: Schedule, order: list[int], position: int) -> dict[int, Place]:
        """Places in the input and output of ``position``, by slot; buffers hold the chunks in ``order``."""
        slots, kind = Slots(self.frame), schedule.kind
        found: dict[int, Place] = {}
        # in place, a slot has two names, of which the first is taken
        output_first = self.frame.inplace and kind in ("broadcast", "all_gather", "gather")
        buffers: tuple[Buffer, ...] = ("o", "i") if output_first else ("i", "o")
        for buffer in buffers:
            if position != schedule.root and (kind, buffer) in (("scatter", "i"), ("gather", "o")):
                continue
            first, ours = (slots.input, schedule.input) if buffer == "i" else (0, 0)
            for offset, slot in enumerate(slots.of(position, (buffer, 0), self.frame.capacity(buffer))):
                found.setdefault(ours + order[slot - first], (buffer, offset))
        return found

    def buffers(self, position: int) -> dict[str, int]:
        """Chunks of each buffer of a position, by attribute; scratch as far as it is used."""
        capacity = self.frame.capacity
        return {"i_chunks": capacity("i"), "o_chunks": capacity("o"), "s_chunks": self._scratch[position]}

    def place(self, position: int, slot: int) -> Place:
        """Place of ``slot`` of ``position``, in scratch if it has no other."""
        places = self._places[position]
        if slot not in places:
            places[slot] = "s", self._scratch[position]
            self._scratch[position] += 1
        return places[slot]


def _by_owner(schedule: Schedule) -> list[int]:
    """The chunks in the order of a buffer: where the kind splits it, each position's chunks are adjacent."""
    if schedule.kind in (*_WHOLE, "all_to_all"):
        return list(range(schedule.chunks))
    if Counter(schedule.owner) != dict.fromkeys(range(schedule.n), schedule.chunks // schedule.n):
        raise ConfigError(
            f"{schedule.algorithm} {schedule.kind} cannot be MSCCL XML: every position must own as many chunks as any "
            "other"
        )
    return sorted(range(schedule.chunks), key=lambda chunk: schedule.owner[chunk])
