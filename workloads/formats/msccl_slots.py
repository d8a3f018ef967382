"""Mapping of the chunks in MSCCL's buffers to the slots of a Schedule."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.formats.msccl_program import Algo, Place


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
        used = [0]
        for block in self.algo.blocks:
            for step in block.steps:
                used += [place[1] + step.cnt for place in (step.src, step.dst) if place and place[0] == "s"]
        return self.scratch + max(used)

    @property
    def owner(self) -> tuple[int, ...]:
        """Owner (position) of each chunk, in order."""
        n, kind = self.algo.n, self.algo.kind
        if kind in ("all_reduce", "broadcast", "reduce"):
            # the kind fixes no owner: the chunks are split equally, as on a ring
            return tuple(c * n // self.chunks for c in range(self.chunks))
        return tuple(c // (self.chunks // n) for c in range(self.chunks))

    def of(self, gpu: int, place: Place, cnt: int) -> tuple[int, ...]:
        """The slots of ``cnt`` chunks from ``place`` on."""
        buffer, offset = place
        if buffer == "s":
            return tuple(range(self.scratch + offset, self.scratch + offset + cnt))
        if self.algo.kind == "all_to_all":
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
