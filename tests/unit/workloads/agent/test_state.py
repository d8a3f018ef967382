from __future__ import annotations

import zlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from agents.expected_state import digest, expected
from hypothesis import given
from hypothesis import strategies as st

from railyard.scale import Scale
from workloads.agent.state import State, expected_checksums
from workloads.agent.transport import payload
from workloads.program import Collective, Program
from workloads.rank.flows import Flow
from workloads.rank.in_flight import Floats
from workloads.training.step import training_job

PROGRAM = training_job((0, 1, 2, 3), 4000, 0.1, 2, 8, group="a")
SCALE = Scale(1.0)


def values(count: int, seed: int) -> Floats:
    return np.random.default_rng(seed).integers(0, 1 << 20, count).astype(np.float32)


@given(st.integers(0, 50), st.integers(1, 70), st.lists(st.integers(0, 70), max_size=5), st.integers(0, 99))
def test_pieces_come_to_the_same_as_all_at_once(words: int, count: int, cuts: list[int], seed: int) -> None:
    whole, pieces, added = State.new(4 * words), State.new(4 * words), values(count, seed)
    bounds = [0, *sorted(min(cut, count) for cut in cuts), count]
    for _ in range(2):
        whole.add(added)
        for start, end in pairwise(bounds):
            pieces.add(added, start, end)
    assert np.array_equal(whole.words, pieces.words)
    assert digest(whole) == digest(pieces)
    assert whole.checksum == zlib.crc32(added.tobytes() * 2)
    assert np.array_equal(whole.words, 2 * np.resize(added.view(np.uint32), words))


def test_it_wraps_round() -> None:
    state = State(np.array([0xFFFFFFFF], dtype=np.uint32))
    state.add(np.array([3], dtype=np.uint32).view(np.float32))
    assert state.words.tolist() == [2]


def test_what_is_expected_is_the_sum_of_all_steps() -> None:
    state = State.new(6000)
    for step in range(5):
        parts = [payload.total(7, Flow(step, 0, 0), [position], 0, 1000) for position in range(4)]
        state.add(sum(parts[1:], parts[0]))
    assert expected(PROGRAM, "a", 7, SCALE, 6000, 5) == digest(state)
    assert expected_checksums(PROGRAM, "a", 7, SCALE, 5)[-1] == state.checksum
    assert expected(PROGRAM, "a", 7, SCALE, 6000, 0) == digest(State.new(6000))


@pytest.mark.parametrize("other", ["seed", "steps", "members", "bytes"])
def test_anything_else_changes_it(other: str) -> None:
    program: Program = PROGRAM
    if other == "members":
        program = training_job((0, 1, 2), 4000, 0.1, 2, 8, group="a")
    if other == "bytes":
        program = training_job((0, 1, 2, 3), 4004, 0.1, 2, 8, group="a")
    changed = expected(program, "a", 8 if other == "seed" else 7, SCALE, 6000, 6 if other == "steps" else 5)
    right = expected(PROGRAM, "a", 7, SCALE, 6000, 5)
    assert changed.checksum != right.checksum and changed.state != right.state


def test_a_spare_in_a_position_does_not_change_it() -> None:
    spliced = training_job((0, 1, 7, 3), 4000, 0.1, 6, 8, group="a")
    assert expected(spliced, "a", 7, SCALE, 6000, 5) == expected(PROGRAM, "a", 7, SCALE, 6000, 5)


def test_steps_done_twice_or_left_out_are_seen() -> None:
    steps = [payload.total(7, Flow(step, 0, 0), range(4), 0, 1000) for step in range(4)]
    right = expected(PROGRAM, "a", 7, SCALE, 4000, 4)
    for wrong in ([0, 1, 1, 2, 3], [0, 2, 3], [0, 1, 3, 2]):
        state = State.new(4000)
        for step in wrong:
            state.add(steps[step])
        assert state.checksum != right.checksum


def test_other_collectives_are_not_in_it() -> None:
    gather = Collective(1, "gather", "all_gather", "a", 4000, (0,))
    gathering = replace(PROGRAM, operations=tuple((ops[0], gather) if ops else () for ops in PROGRAM.operations))
    assert expected(gathering, "a", 7, SCALE, 4000, 3) == (0, digest(State.new(4000)).state)
