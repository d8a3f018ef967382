"""Whether the machine kept up: the judgement over readings that are made up, and readings of the real machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from checkout import ROOT
from machine import MARK, Limits, Others, Process, Reading, Watcher, judge, processes

SUPPORT = ROOT / "tests" / "support"
CORES = 2


def readings(*seconds: tuple[float, float, float], each_s: float = 0.5) -> list[Reading]:
    """Readings every ``each_s``; for each stretch between two of them the shares of steal, others, and idle."""
    taken = [Reading(100.0, CORES, 50.0, 7.0, 30.0)]
    for steal, others, idle in seconds:
        last, whole_s = taken[-1], CORES * each_s
        taken.append(
            Reading(
                last.moment_s + each_s,
                CORES,
                last.idle_s + idle * whole_s,
                last.steal_s + steal * whole_s,
                last.others_s + others * whole_s,
            )
        )
    return taken


QUIET = (0.0, 0.01, 0.5)


def test_a_quiet_machine_kept_up() -> None:
    assert judge(readings(*[QUIET] * 20), [0.1, 0.3, 4.9]) == []


def test_a_late_timer_is_named_in_milliseconds() -> None:
    assert judge(readings(QUIET), [0.1, 6.2, 0.2]) == ["timers up to 6.2 ms late"]


def test_a_test_that_allows_more_says_so() -> None:
    assert judge(readings(QUIET), [6.2], Limits(late_ms=20)) == []


def test_what_the_test_itself_uses_does_not_count() -> None:
    assert judge(readings(*[(0.0, 0.02, 0.0)] * 10), [0.3]) == []


def test_others_that_leave_cores_idle_do_not_count() -> None:
    assert judge(readings(*[(0.0, 0.5, 0.45)] * 10), [0.3]) == []


def test_the_worst_second_counts_and_not_the_mean() -> None:
    calm = [QUIET] * 20
    assert judge(readings(*calm, (0.0, 0.8, 0.0), (0.0, 0.6, 0.1), *calm), []) == [
        "other processes used 70% of 2 cores and left 5% idle"
    ]


def test_what_happens_after_the_last_whole_second_counts() -> None:
    taken = readings(*[QUIET] * 3)
    end = taken[-1]
    taken.append(Reading(end.moment_s + 0.3, CORES, end.idle_s, end.steal_s + 0.3, end.others_s))
    assert judge(taken, []) == ["steal 12% of 2 cores"], "0.3 s of two cores, in the 1.3 s from half a second on"


def test_steal_is_a_share_of_all_cores() -> None:
    assert judge(readings(QUIET, (0.07, 0.0, 0.5), (0.07, 0.0, 0.5)), []) == ["steal 7% of 2 cores"]


def test_every_reason_is_named() -> None:
    assert len(judge(readings((0.3, 0.6, 0.0), (0.3, 0.6, 0.0)), [30.0])) == 3


@pytest.mark.parametrize(("others", "reasons"), [(0.1, 0), (0.5, 1)])
def test_of_a_short_test_one_step_of_the_counters_is_nothing(others: float, reasons: int) -> None:
    assert len(judge(readings((0.0, others, 0.0), each_s=0.05), [])) == reasons


def test_a_test_that_took_no_time_kept_up() -> None:
    assert judge(readings(QUIET, each_s=0.0), []) == []


INIT, SHELL, RUN = 1, 50, 100


def world(**others: Process) -> dict[int, Process]:
    """The init process, a shell, the test run, and more, by process id (``p7``)."""
    base = {INIT: Process(0, "1", 500, 900), SHELL: Process(INIT, "2", 10, 300), RUN: Process(SHELL, "3", 1000, 0)}
    return base | {int(name[1:]): process for name, process in others.items()}


def used_s(*worlds: dict[int, Process]) -> float:
    others = Others(RUN)
    return [others.read_s(now) for now in worlds][-1]


def test_strangers_count_and_descendants_do_not() -> None:
    before = world(p1007=Process(INIT, "9", 70, 0), p1008=Process(RUN, "9", 5, 0), p1009=Process(1008, "9", 5, 0))
    after = world(p1007=Process(INIT, "9", 120, 0), p1008=Process(RUN, "9", 99, 0), p1009=Process(1008, "9", 99, 9))
    assert used_s(before, after) == pytest.approx(0.5)


def test_a_child_that_the_init_process_adopted_is_still_ours() -> None:
    daemon = Process(RUN, "9", 5, 0)
    orphan = Process(INIT, "9", 80, 0)
    assert used_s(world(p1008=daemon), world(p1008=orphan)) == 0
    assert used_s(world(p1008=daemon), world(p1008=orphan, p1010=Process(1008, "12", 40, 0))) == 0


def test_the_end_of_one_of_ours_is_nobody_s_work() -> None:
    before = world(p1008=Process(INIT, "9", 80, 0))
    after = world()
    after[INIT] = Process(0, "1", 500, 980)
    others = Others(RUN)
    others.read_s(world(p1008=Process(RUN, "9", 5, 0)))
    others.read_s(before)
    assert others.read_s(after) == 0


def test_a_stranger_that_ended_is_found_with_its_parent_or_was_all_read() -> None:
    make = Process(INIT, "9", 10, 0)
    before = world(p1007=make, p1008=Process(1007, "10", 30, 0))
    after = world(p1007=Process(INIT, "9", 10, 45))  # 15 more than was read; another one took 200, unread
    assert used_s(before, after) == pytest.approx(0.15)
    gone = world(p1009=Process(INIT, "11", 20, 0))
    assert used_s(before, gone) == pytest.approx(0.2)


ORPHAN = """
import subprocess, sys
spin = [sys.executable, "-I", "-S", "-c", "while 1: pass"]
print(subprocess.Popen(spin, start_new_session=True, stdout=subprocess.DEVNULL).pid)
"""
"""Starts a process that is busy, says its process id, and ends, so that the init process adopts it."""


def busy_orphan(environ: dict[str, str]) -> int:
    made = subprocess.run([sys.executable, "-I", "-S", "-c", ORPHAN], env=environ, stdout=subprocess.PIPE, check=True)
    return int(made.stdout)


@pytest.mark.parametrize("marked", [True, False])
def test_an_orphan_is_known_by_the_mark_in_its_environment(marked: bool) -> None:
    run = int(os.environ[MARK])
    pid = busy_orphan({name: value for name, value in os.environ.items() if marked or name != MARK})
    try:
        others = Others(run)
        first = processes()[pid]
        assert others.read_s({pid: first}) == 0
        until = time.monotonic() + 30
        while (now := processes()[pid]).own_ticks < first.own_ticks + 10:
            assert time.monotonic() < until
            time.sleep(0.02)
        expected_s = 0.0 if marked else (now.own_ticks - first.own_ticks) / os.sysconf("SC_CLK_TCK")
        assert others.read_s({pid: now}) == pytest.approx(expected_s)
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.timed(late_ms=100)  # a reading every half second
@pytest.mark.parametrize("alone", [True, False])
def test_the_watcher_reads_from_begin_to_end_and_again(alone: bool) -> None:
    watcher = Watcher(alone=alone)
    try:
        for _ in range(2):
            watcher.begin()
            began = time.monotonic()
            time.sleep(0.7)
            passed_s = time.monotonic() - began
            taken, late_ms = watcher.end()
            assert len(taken) >= 3, "one at the begin, one after half a second, one at the end"
            assert taken[-1].moment_s - taken[0].moment_s >= passed_s
            assert all(a.idle_s <= b.idle_s and a.others_s <= b.others_s for a, b in pairwise(taken))
            assert 1 <= len(late_ms) <= 100
    finally:
        watcher.close()
    watcher.close()


RUN_THAT_ENDS = """
import os, sys
sys.path.insert(0, sys.argv[1])
from machine import Watcher
watcher = Watcher(alone=False)
watcher.begin()
print(watcher._process.pid, flush=True)
os._exit(0)
"""


def test_the_watcher_ends_with_the_run() -> None:
    run = subprocess.run([sys.executable, "-c", RUN_THAT_ENDS, str(SUPPORT)], stdout=subprocess.PIPE, check=True)
    pid, until = int(run.stdout), time.monotonic() + 30
    while pid in processes():
        assert time.monotonic() < until, "it goes on"
        time.sleep(0.02)


def test_a_watcher_that_dies_makes_the_try_late_and_is_started_again() -> None:
    watcher = Watcher(alone=False)
    watcher.begin()
    assert watcher._process is not None
    watcher._process.kill()
    watcher._process.wait(10)
    assert judge(*watcher.end()) == ["the process that watches the machine has died"]
    watcher.begin()
    readings, _ = watcher.end()
    assert len(readings) >= 2
    watcher.close()
