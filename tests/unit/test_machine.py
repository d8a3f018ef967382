"""Whether the machine kept up: the judgement over readings that are made up, and readings of the real machine."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from machine import Limits, Reading, Watcher, judge

QUIET = (0.5, 0.0, 0.01, 0.5)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)


@pytest.mark.parametrize(
    ("taken", "latest_ms", "reasons"),
    [
        ([QUIET] * 20, 4.9, []),
        ([QUIET], 6.2, ["timers up to 6.2 ms late"]),
        ([(0.5, 0.0, 0.02, 0.0)] * 10, 0.3, []),
        ([(0.5, 0.0, 0.5, 0.45)] * 10, 0.3, []),
        (
            [*[QUIET] * 20, (0.5, 0.0, 0.8, 0.0), (0.5, 0.0, 0.6, 0.1), *[QUIET] * 20],
            0.0,
            ["other processes used 70% of 2 cores and left 5% idle"],
        ),
        ([QUIET, (0.5, 0.07, 0.0, 0.5), (0.5, 0.07, 0.0, 0.5)], 0.0, ["steal 7% of 2 cores"]),
        ([(0.05, 0.0, 0.1, 0.0)], 0.0, []),
        ([(0.0, 1.0, 1.0, 0.0)], 0.0, []),
    ],
)
def test_the_worst_second_is_judged_and_what_the_test_uses_does_not_count(
    taken: Sequence[Reading], latest_ms: float, reasons: list[str]
) -> None:
    assert judge(taken, latest_ms, Limits()) == reasons
    assert judge([QUIET], 6.2, Limits(late_ms=20)) == []


@pytest.mark.timed(late_ms=100)  # a reading every half second
def test_the_watcher_reads_until_it_is_asked_and_is_started_again_if_it_dies() -> None:
    watcher = Watcher(alone=False)
    with watcher:
        watcher.watch()
        time.sleep(0.7)
        readings, latest_ms = watcher.call("end")
        assert len(readings) >= 2 and sum(seconds for seconds, *_ in readings) >= 0.7 and 0 < latest_ms < 100
        watcher.watch()
        assert watcher._process is not None
        watcher._process.kill()
        watcher.wait()
        assert watcher.reasons(Limits()) == ["the process that watches the machine has died"]
        watcher.watch()
        assert watcher.reasons(Limits(1.0, 1.0, 0.0, 1e6)) == []
