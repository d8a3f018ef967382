"""Whether the machine kept up: the judgement over readings that are made up, and readings of the real machine."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from machine import Limits, Reading, Watcher, judge

CORES = 2


def readings(*shares: tuple[float, float, float], each_s: float = 0.5) -> list[Reading]:
    """Readings every ``each_s``; for each stretch between two of them the shares of steal, others, and idle."""
    taken = [Reading(100.0, CORES, 50.0, 7.0, 30.0)]
    for steal, others, idle in shares:
        last, whole_s = taken[-1], CORES * each_s
        before = (last.idle_s, last.steal_s, last.others_s)
        after = (was + part * whole_s for was, part in zip(before, (idle, steal, others), strict=True))
        taken.append(Reading(last.moment_s + each_s, CORES, *after))
    return taken


QUIET = (0.0, 0.01, 0.5)


@pytest.mark.parametrize(
    ("taken", "late_ms", "reasons"),
    [
        (readings(*[QUIET] * 20), [0.1, 0.3, 4.9], []),
        (readings(QUIET), [0.1, 6.2, 0.2], ["timers up to 6.2 ms late"]),
        (readings(*[(0.0, 0.02, 0.0)] * 10), [0.3], []),
        (readings(*[(0.0, 0.5, 0.45)] * 10), [0.3], []),
        (
            readings(*[QUIET] * 20, (0.0, 0.8, 0.0), (0.0, 0.6, 0.1), *[QUIET] * 20),
            [],
            ["other processes used 70% of 2 cores and left 5% idle"],
        ),
        (readings(QUIET, (0.07, 0.0, 0.5), (0.07, 0.0, 0.5)), [], ["steal 7% of 2 cores"]),
        (readings((0.0, 0.1, 0.0), each_s=0.05), [], []),
        (readings(QUIET, each_s=0.0), [], []),
        ([], [], ["the process that watches the machine has died"]),
    ],
)
def test_the_worst_second_is_judged_and_what_the_test_uses_does_not_count(
    taken: Sequence[Reading], late_ms: Sequence[float], reasons: list[str]
) -> None:
    assert judge(taken, late_ms) == reasons
    assert judge(readings(QUIET), [6.2], Limits(late_ms=20)) == []


@pytest.mark.timed(late_ms=100)  # a reading every half second
def test_the_watcher_reads_from_begin_to_end_and_is_started_again_if_it_dies() -> None:
    watcher = Watcher(alone=False)
    try:
        watcher.begin()
        time.sleep(0.7)
        taken, late_ms = watcher.end()
        assert len(taken) >= 3 and taken[-1].moment_s - taken[0].moment_s >= 0.7 and 1 <= len(late_ms) <= 100
        watcher.begin()
        assert watcher._process is not None
        watcher._process.kill()
        watcher._process.wait(10)
        assert watcher.end() == ([], [])
        watcher.begin()
        assert len(watcher.end()[0]) >= 2
    finally:
        watcher.close()
