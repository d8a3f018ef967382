from __future__ import annotations

import select
import threading
from collections.abc import Callable
from typing import Any

import pytest

from railyard.errors import AgentError
from railyard.scale import Scale
from workloads.agent.config import Incarnation
from workloads.agent.startup import BackgroundTask, StartupStages

PATIENCE_S = 30.0
"""Seconds to wait for a thread that has nothing left to do."""


class FakeErrand:
    """Is over when the test says so."""

    def __init__(self, what: Callable[[], object]) -> None:
        self.what = what
        self.over = False

    def fileno(self) -> int:
        return -1

    def collect(self) -> None:
        self.what()


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

    return StartupStages(Incarnation(number=3, given=given), Scale(1.0, 0.5), work, note, start), begun, noted


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
