from __future__ import annotations

import select
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from agents.expected_state import digest, expected
from hypothesis import given
from hypothesis import strategies as st

from railyard.errors import AgentError
from railyard.scale import Scale
from workloads.agent import member
from workloads.agent.checkpoint import Checkpoint
from workloads.agent.config import Incarnation
from workloads.agent.member import BackgroundTask, StartupStages, StateAccumulator
from workloads.agent.state import State, expected_checksums
from workloads.agent.transport import payload
from workloads.program import Collective
from workloads.rank.flows import Flow
from workloads.rank.tensors import Floats
from workloads.training.step import training_job


class FakeErrand:
    """Is over when the test says so."""

    def __init__(self, what: Callable[[], object]) -> None:
        self.what = what
        self.over = False

    def fileno(self) -> int:
        return -1

    def collect(self) -> None:
        self.what()


class Books:
    """A ledger on a state of 3 pieces, whose writes end when the test says so."""

    def __init__(self, every: int) -> None:
        self.said: list[dict[str, Any]] = []
        self.noted: list[tuple[str, float, float | None, dict[str, Any]]] = []
        self.writes: list[FakeErrand] = []
        self.written: list[Checkpoint] = []
        self.used: list[int] = []
        self.values = np.ones(2 * member.PIECE_ELEMENTS + 5, dtype=np.float32)
        self.accumulator = StateAccumulator(
            Incarnation(number=2, checkpoint_every=every),
            "job",
            State.new(self.values.nbytes),
            self.written.append,
            lambda kind, t, end=None, **fields: self.noted.append((kind, t, end, fields)),
            lambda **fields: self.said.append(fields),
            cast(Any, self.start),
        )

    def start(self, what: Callable[[], object]) -> FakeErrand:
        what()
        self.writes.append(FakeErrand(lambda: None))
        return self.writes[-1]

    def step(self, number: int) -> None:
        self.accumulator.add(self.values, lambda: self.used.append(number))
        self.accumulator.end_step(number)

    def work(self, now: float = 0.0) -> int:
        turns = 0
        while self.accumulator.has_work:
            self.accumulator.step(now)
            turns += 1
        return turns


def test_a_step_is_booked_in_pieces_and_told_at_its_end() -> None:
    books = Books(every=0)
    books.step(0)
    books.accumulator.step(1.0)
    assert not books.used and not books.said
    assert books.work(2.0) == 3, "two more pieces, and the end of the step"
    right = State.new(books.values.nbytes)
    right.add(books.values)
    assert digest(books.accumulator.state) == digest(right)
    assert books.said == [{"state": 0, "checksum": right.checksum}]
    assert books.noted == [("state", 2.0, None, {"step": 0, "incarnation": 2, "checksum": right.checksum})]
    assert books.used == [0] and books.accumulator.idle


def test_a_checkpoint_holds_the_steps_before_it_and_nothing_later() -> None:
    books = Books(every=2)
    for step in range(3):
        books.step(step)
    books.work(5.0)
    (checkpoint,) = books.written
    after_two = State.new(books.values.nbytes)
    after_two.add(books.values)
    after_two.add(books.values)
    assert (checkpoint.job, checkpoint.step, checkpoint.checksum) == ("job", 2, after_two.checksum)
    assert np.array_equal(checkpoint.words, after_two.words), "step 2 is in the state by now, and not in it"
    assert not books.accumulator.idle and len(books.said) == 3
    books.writes[0].over = True
    books.accumulator.step(7.0)
    assert books.said[-1] == {"checkpoint": 2, "checksum": after_two.checksum}
    kind, began, ended, fields = books.noted[-1]
    assert (kind, began, ended) == ("checkpoint", 5.0, 7.0)
    assert (fields["step"], fields["incarnation"], fields["bytes"]) == (2, 2, books.values.nbytes)
    assert books.accumulator.idle


def test_a_step_waits_whose_checkpoint_would_overtake_the_one_before() -> None:
    books = Books(every=2)
    assert not books.accumulator.must_wait(1)
    books.step(0)
    books.step(1)
    assert not books.accumulator.must_wait(2), "no checkpoint is due after step 2"
    assert books.accumulator.must_wait(3), "its copy is not even taken"
    books.work()
    assert books.accumulator.must_wait(3)
    books.writes[0].over = True
    books.accumulator.step(1.0)
    assert not books.accumulator.must_wait(3)


def test_the_copy_is_not_overwritten_while_it_is_being_stored() -> None:
    books = Books(every=1)
    books.step(0)
    books.step(1)
    books.step(2)
    books.work()
    assert len(books.writes) == 1 and len(books.said) == 1 and books.used == [0, 1]
    books.writes[0].over = True
    books.accumulator.step(1.0)
    books.work()
    assert [c.step for c in books.written] == [1, 2]


PATIENCE_S = 30.0
"""Seconds to wait for a thread that has nothing left to do."""


def stages(
    work: dict[str, Callable[[], object]], given: tuple[tuple[str, float], ...] = ()
) -> tuple[StartupStages, list[FakeErrand], list[tuple[str, float, float, bool]]]:
    begun: list[FakeErrand] = []
    noted: list[tuple[str, float, float, bool]] = []

    def start(what: Callable[[], object]) -> FakeErrand:
        begun.append(FakeErrand(what))
        return begun[-1]

    def note(kind: str, t: float, end: float, **fields: Any) -> None:
        assert kind == "stage" and fields["incarnation"] == 3
        noted.append((fields["name"], t, end, fields["given"]))

    return (
        StartupStages(Incarnation(number=3, given=given), Scale(1.0, 0.5), work, note, cast(Any, start)),
        begun,
        noted,
    )


def test_nothing_to_do_is_over_at_once() -> None:
    made, _, noted = stages({})
    assert made.over and made.next_event == float("inf") and not noted


def test_stages_come_one_after_another_in_their_order() -> None:
    made, begun, noted = stages({"load": lambda: None, "checkpoint": lambda: None}, (("data", 4.0),))
    made.step(10.0)
    assert len(begun) == 1 and made.running is begun[0] and made.next_event == float("inf")
    begun[0].over = True
    made.step(11.0)
    assert made.running is None and made.next_event == 11.0 + 2.0, "4 s of real time are 2 s here"
    made.step(12.9)
    assert len(begun) == 1
    made.step(13.0)
    begun[1].over = True
    made.step(13.5)
    assert made.over
    assert noted == [("checkpoint", 10.0, 11.0, False), ("data", 11.0, 13.0, True), ("load", 13.0, 13.5, False)]


def test_a_given_time_is_the_least() -> None:
    made, begun, noted = stages({"load": lambda: None}, (("load", 2.0),))
    made.step(0.0)
    begun[0].over = True
    made.step(0.2)
    assert not made.over and made.next_event == 1.0
    made.step(1.0)
    assert noted == [("load", 0.0, 1.0, True)]
    slow, begun, noted = stages({"load": lambda: None}, (("load", 2.0),))
    slow.step(0.0)
    slow.step(1.5)
    assert not slow.over
    begun[0].over = True
    slow.step(1.7)
    assert noted == [("load", 0.0, 1.7, True)]


def test_what_went_wrong_in_the_background_is_raised_in_front() -> None:
    def fails() -> None:
        raise AgentError("no such file")

    made, begun, _ = stages({"load": fails})
    made.step(0.0)
    begun[0].over = True
    with pytest.raises(AgentError, match="no such file"):
        made.step(1.0)


def test_an_errand_wakes_a_select_and_brings_its_error() -> None:
    release = threading.Event()
    threads: list[threading.Thread] = []

    def work() -> None:
        threads.append(threading.current_thread())
        release.wait()
        raise AgentError("bad")

    errand = BackgroundTask(work)
    assert not select.select([errand], [], [], 0)[0] and not errand.over
    release.set()
    assert select.select([errand], [], [], PATIENCE_S)[0]
    threads[0].join(PATIENCE_S)
    assert errand.over
    with pytest.raises(AgentError, match="bad"):
        errand.collect()


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


def test_what_is_expected_is_the_sum_of_all_steps() -> None:
    state = State.new(6000)
    for step in range(5):
        parts = [payload.total(7, Flow(step, 0, 0), [position], 0, 1000) for position in range(4)]
        state.add(sum(parts[1:], parts[0]))
    assert expected(PROGRAM, "a", 7, SCALE, 6000, 5) == digest(state)
    assert expected_checksums(PROGRAM, "a", 7, SCALE, 5)[-1] == state.checksum
    assert expected(PROGRAM, "a", 7, SCALE, 6000, 0) == digest(State.new(6000))


def test_other_collectives_are_not_in_it() -> None:
    gather = Collective(1, "gather", "all_gather", "a", 4000, (0,))
    gathering = replace(PROGRAM, operations=tuple((ops[0], gather) if ops else () for ops in PROGRAM.operations))
    assert expected(gathering, "a", 7, SCALE, 4000, 3) == (0, digest(State.new(4000)).state)
