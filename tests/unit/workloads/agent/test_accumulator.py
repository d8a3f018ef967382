from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from agents.expected_state import digest

from workloads.agent import member
from workloads.agent.checkpoint import Checkpoint
from workloads.agent.config import Incarnation
from workloads.agent.member import StateAccumulator
from workloads.agent.state import State


class FakeErrand:
    def __init__(self, what: Callable[[], object]) -> None:
        self.what = what
        self.over = False

    def fileno(self) -> int:
        return -1

    def collect(self) -> None:
        pass


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
            self.start,
        )

    def start(self, what: Callable[[], object]) -> FakeErrand:
        what()
        self.writes.append(FakeErrand(what))
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
