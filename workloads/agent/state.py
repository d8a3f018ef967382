"""The state of a training job, which stands for its weights: the sum of the reduced values of all its steps.

The state is right only if it contains each step exactly once, so together with the running checksum it proves that a
job went on with the right state after a failure. All members hold the same state, and its correct value can be computed
without a network (``replay``).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt

from railyard.scale import Scale
from workloads.agent.transport import payload
from workloads.program import Collective, Communication, Program
from workloads.rank.exchange import elements_of
from workloads.rank.flows import flow_names
from workloads.rank.tensors import Floats

Words = npt.NDArray[np.uint32]

SUMMED = ("all_reduce",)
"""Collectives whose result is the same on all members."""


class State:
    """State of one member: ``words`` are uint32, 0 at the start; ``checksum`` runs over all values ever added."""

    def __init__(self, words: Words, checksum: int = 0) -> None:
        self.words = words
        self.checksum = checksum

    @staticmethod
    def new(emulated_bytes: int) -> State:
        """The state before the first step (rounded up to whole words)."""
        return State(np.zeros(elements_of(emulated_bytes), dtype=np.uint32))

    def add(self, values: Floats, start: int = 0, end: int | None = None) -> None:
        """Add the bits of reduced ``values`` as uint32 with wrap-around, repeated over the whole state.

        With ``start`` and ``end``, only that piece of them; adding all pieces in order equals adding the whole.
        """
        words = values.view(np.uint32)
        piece = words[start:end]
        for at in range(start, len(self.words), max(1, len(words))):
            into = self.words[at : at + len(piece)]
            into += piece[: len(into)]
        self.checksum = zlib.crc32(piece.data.cast("B") if len(piece) else b"", self.checksum)


def counts(op: Communication, group: str) -> bool:
    """Whether the result of ``op`` goes into the state of the job whose members are ``group``."""
    return isinstance(op, Collective) and op.group == group and op.kind in SUMMED


def replay(program: Program, group: str, seed: int, scale: Scale, state_bytes: int) -> Iterator[State]:
    """The correct state after 1, 2, 3, ... steps (without end), always the same object.

    ``state_bytes`` are real bytes. The state depends on the number of members (not on their ranks) and on the position
    of ``group`` among the groups.
    """
    members = program.groups[group].members
    names = flow_names(program, members[0])
    summed = [op for op in program.communications(members[0]) if counts(op, group)]
    state = State.new(scale.emulated_bytes(state_bytes))
    step = 0
    while True:
        for op in summed:
            elements = elements_of(scale.emulated_bytes(op.bytes))
            state.add(payload.total(seed, names[op.id].at(step), range(len(members)), 0, elements))
        step += 1
        yield state


def expected_checksums(program: Program, group: str, seed: int, scale: Scale, steps: int) -> tuple[int, ...]:
    return tuple(state.checksum for state in islice(replay(program, group, seed, scale, 0), steps))
