"""The alarm calls in order of time, exactly or roughly, and survives a call that fails."""

from __future__ import annotations

import threading
import time

import pytest

from controllers.openflow.clock import Alarm

LATE_S = 0.5
"""How late a call may be on a busy machine."""


def test_calls_come_in_order_of_time_and_none_too_early() -> None:
    alarm, ended, seen = Alarm(), threading.Event(), []
    start = time.monotonic()
    for name, after, rough in (("c", 0.03, False), ("a", 0.01, True), ("b", 0.02, False), ("now", -1.0, False)):
        alarm.at(start + after, lambda name=name: seen.append((name, time.monotonic() - start)), rough=rough)  # type: ignore[misc]
    alarm.at(start + 0.04, ended.set, rough=True)
    alarm.start()
    assert ended.wait(5)
    assert [name for name, _ in seen] == ["now", "a", "b", "c"]
    assert all(due <= took < due + LATE_S for (_, took), due in zip(seen, (0.0, 0.01, 0.02, 0.03), strict=True))


def test_an_earlier_time_overtakes_a_sleep_and_a_failing_call_stops_nothing() -> None:
    alarm, ended = Alarm(), threading.Event()

    def fail() -> None:
        raise ValueError("this call fails, and its error is printed")

    alarm.start()
    alarm.at(time.monotonic() + 60.0, lambda: None)
    alarm.at(time.monotonic() + 0.01, fail)
    alarm.at(time.monotonic() + 0.02, ended.set)
    assert ended.wait(5)


def test_a_time_in_the_far_future_and_one_that_is_none_end_nothing() -> None:
    alarm, ended = Alarm(), threading.Event()
    alarm.start()
    for moment in (1e18, float("inf")):
        alarm.at(moment, lambda: None)
    with pytest.raises(ValueError, match="a timer needs a time, not NaN"):
        alarm.at(float("nan"), lambda: None)
    time.sleep(0.01)  # the thread now waits for the first of these times
    alarm.at(time.monotonic() + 0.01, ended.set)
    assert ended.wait(5)
