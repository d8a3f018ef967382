"""Heartbeats of an agent: regular, independent of the agent's loop, and over when the agent or the controller is."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from fake_clock import FakeClock

from railyard.errors import ControlError
from workloads.agent import heartbeat
from workloads.agent.heartbeat import Heartbeat, waited_for_core_s

EVERY_S = 0.02
PATIENCE_S = 30.0
"""Seconds to wait for a beat or for the end of the thread before the test fails."""


class Beats:
    """Notes the time of every beat; ``enough`` is set at beat number ``count``."""

    def __init__(self, count: int) -> None:
        self.times: list[float] = []
        self.enough = threading.Event()
        self._count = count
        self._thread: threading.Thread | None = None

    def __call__(self, answers: int = 0) -> None:
        self._thread = threading.current_thread()
        self.times.append(time.monotonic())
        if len(self.times) == self._count:
            self.enough.set()

    def end(self) -> None:
        """Return when the thread that beats has ended: from then on there are no more beats."""
        assert self._thread is not None, "no beat yet"
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def test_the_first_beat_does_not_wait_and_the_end_does_not_wait_for_the_next() -> None:
    beats = Beats(1)
    beating = Heartbeat(beats, every_s=3600)
    assert beats.enough.wait(PATIENCE_S)
    beating.stop()
    beats.end()
    assert len(beats.times) == 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The time of heartbeats, which passes while their thread waits; native ids of threads are 7."""
    clock = FakeClock(0.0)

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            clock.advance(timeout or 0.0)
            return self.is_set()

    namespace = SimpleNamespace(Event=Stop, Thread=threading.Thread, get_native_id=lambda: 7)
    monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(heartbeat, "threading", namespace)
    return clock


def beaten(count: int, beat: Callable[[int], None]) -> None:
    """Let a heartbeat of every second call ``beat`` so many times."""
    made: list[Heartbeat] = []
    answers: list[int] = []
    ready, done = threading.Event(), threading.Event()

    def beat_on(answer: int) -> None:
        ready.wait()
        beat(answer)
        answers.append(answer)
        if len(answers) == count:
            made[0]._stopped.set()
            done.set()

    made.append(Heartbeat(beat_on, 1.0))
    ready.set()
    assert done.wait(PATIENCE_S)
    made[0].stop()


def test_beats_that_were_missed_are_not_made_up_for(clock: FakeClock) -> None:
    beats: list[float] = []

    def beat(answers: int) -> None:
        beats.append(clock.now)
        if len(beats) == 1:
            clock.advance(5.5)

    beaten(4, beat)
    assert beats == [0.0, 6.0, 7.0, 8.0]


def test_a_loop_that_waited_for_a_core_most_of_the_time_counts_as_one_that_answered(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited, told = 0.0, list[int]()
    monkeypatch.setattr(heartbeat, "waited_for_core_s", lambda thread: waited if thread == 7 else -1.0)

    def beat(answers: int) -> None:
        nonlocal waited
        told.append(answers)
        waited += 0.9 if len(told) in (2, 3) else 0.4

    beaten(6, beat)
    assert told == [0, 0, 1, 2, 2, 2]


def test_it_ends_with_the_controller() -> None:
    beats = Beats(1)

    def beat(answers: int) -> None:
        beats()
        raise ControlError("the controller is gone")

    Heartbeat(beat, EVERY_S)
    assert beats.enough.wait(PATIENCE_S)
    beats.end()
    assert len(beats.times) == 1


def test_it_asks_the_loop_and_tells_how_often_that_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "waited_for_core_s", lambda thread: 0.0)
    told: list[int] = []
    changed = threading.Condition()

    def beat(answers: int) -> None:
        with changed:
            told.append(answers)
            changed.notify()

    def wait_for(count: int) -> None:
        with changed:
            assert changed.wait_for(lambda: len(told) >= count, PATIENCE_S)

    beating = Heartbeat(beat, EVERY_S)
    for _ in range(2):
        assert select.select([beating], [], [], PATIENCE_S)[0], "nobody asks the loop"
        beating.answer()
        wait_for(len(told) + 2)
        assert told[-1] == told[-2], "the loop is not asked into a counter of its own"
    assert told[-1] == 2 and told[0] == 0 and sorted(told) == told
    beating.stop()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(beating.fileno())


def test_the_kernel_tells_how_long_a_thread_waited_for_a_core() -> None:
    assert waited_for_core_s(threading.get_native_id()) >= 0.0
    assert waited_for_core_s(0) == 0.0, "no such thread"
