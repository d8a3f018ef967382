"""What the state of a training job must be after so many steps, and a digest to compare states by."""

from __future__ import annotations

import zlib
from itertools import islice
from typing import NamedTuple

from railyard.scale import Scale
from workloads.agent.state import State, replay
from workloads.program import Program


class Digest(NamedTuple):
    """``checksum``: CRC-32 of all reduced bytes, one step after another; ``state``: CRC-32 of the state's bytes."""

    checksum: int
    state: int


def digest(state: State) -> Digest:
    return Digest(state.checksum, zlib.crc32(state.words.data.cast("B") if len(state.words) else b""))


def expected(program: Program, group: str, seed: int, scale: Scale, state_bytes: int, steps: int) -> Digest:
    """The digest that every member must hold after ``steps`` steps, however often the job was restarted."""
    last = State.new(scale.emulated_bytes(state_bytes))
    for state in islice(replay(program, group, seed, scale, state_bytes), steps):
        last = state
    return digest(last)
