"""Whether the machine kept up while a test ran: readings of it, the judgement over them, the process that takes them.

A test that measures time says something about the code only where the machine gave the code its time. Two things can
take that time away: the hypervisor (steal, and timers that it lets ring late), and processes that do not belong to this
test run. What the test itself does, and what it starts, must not count: that is what is tested.

The readings come from a small process of its own, so that a test which holds the interpreter (or all cores) cannot hold
it up. It waits without using the CPU until a test begins; while one runs it needs about one percent of a core. What is
not of the test run is told apart as in a run (``measure.live.interference``), by a mark of its own.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the process of the watcher runs in isolation

from measure.live.interference import OtherProcesses

MARK = "RAILYARD_TEST_RUN"
"""Environment variable that every process of a test run inherits; a daemon has it when its parents are gone, too."""
TICK_S = 0.01
"""How long the watcher sleeps at a time: a core that stands still for longer is seen if the watcher waits for that one.
A hundred wake-ups a second cost 0.7 % of a core of a small virtual machine, 200 cost 1.4 %."""
READING_S = 0.5
"""Time between two readings of /proc, each of which takes 1 ms to 4 ms, by the number of processes. With the wake-ups
that was 1.4 % of a core (0.7 % of two) beside 170 processes."""
STRETCH_S = 1.0
"""Steal and the CPU that others use are judged over the worst second: half a second in which others take everything is
enough for a late timer, and in the mean of a test of twenty seconds it would be lost."""
LEAST_S = 0.02
"""Less CPU than this is nothing: the kernel counts in steps of 10 ms, and one step is a tenth of a test of 50 ms."""
_ANSWER_S = 10.0


@dataclass(frozen=True)
class Limits:
    """What is no longer "the machine kept up". Measured on a virtual machine with two cores, over a second each.

    - ``steal``: share of all cores that the hypervisor took. Quiet it was 0 % in nine of ten seconds and 2.5 % in one
      of a hundred; it was 3 % to 5 % where an idle machine's timers were 10 ms to 35 ms late.
    - ``others`` and ``idle``: processes that are not ours use at least ``others`` of all cores while less than ``idle``
      is left. Quiet, others used 0 % to 2 %. Two busy strangers used 70 % to 100 % and left 0 % to 3 %, whatever the
      test did. One stranger uses 50 %: beside a test that sleeps it leaves 45 %, and timers were no later than without
      it; beside one that needs 40 % of the cores it leaves less than 15 %, and timers were twice as late.
    - ``late_ms``: the latest timer of a test. With real-time priority it was 0.3 ms at the median of quiet runs and
      3.7 ms at most, also in tests that keep both cores busy (at the usual priority these made it 4 ms to 11 ms late
      themselves); where the hypervisor held the machine up it was 7 ms to 35 ms. Beside another worker of pytest-xdist,
      at the usual priority, it was 0.1 ms at the median of light tests and 4.0 ms in one of a hundred.

    119 tries with less than 5 % of others: all kept up. 226 beside two strangers: 211 did not; the rest took less than
    25 ms each.
    """

    steal: float = 0.04
    others: float = 0.1
    idle: float = 0.25
    late_ms: float = 5.0


@dataclass(frozen=True)
class Reading:
    """Counters of the machine at ``moment_s``: seconds of CPU, over all cores, since some moment before."""

    moment_s: float
    cores: int
    idle_s: float
    steal_s: float
    others_s: float


@dataclass(frozen=True)
class Share:
    """What became of the cores between two readings, as shares (0..1) of all of them."""

    steal: float
    others: float
    idle: float


def share(before: Reading, after: Reading) -> Share:
    """What became of the cores from one reading to another (nothing, if no time passed)."""
    whole_s = after.cores * (after.moment_s - before.moment_s)
    if whole_s <= 0:
        return Share(0.0, 0.0, 1.0)
    steal_s, others_s = after.steal_s - before.steal_s, after.others_s - before.others_s
    return Share(
        steal=steal_s / whole_s if steal_s >= LEAST_S else 0.0,
        others=others_s / whole_s if others_s >= LEAST_S else 0.0,
        idle=(after.idle_s - before.idle_s) / whole_s,
    )


def stretches(readings: Sequence[Reading]) -> list[Share]:
    """Every second between two readings (they overlap), or the whole time where that is shorter."""
    seconds = []
    for after in readings:
        before = next((r for r in reversed(readings) if after.moment_s - r.moment_s >= STRETCH_S), None)
        if before is not None:
            seconds.append(share(before, after))
    return seconds or [share(readings[0], readings[-1])]


def judge(readings: Sequence[Reading], late_ms: Sequence[float], limits: Limits | None = None) -> list[str]:
    """Why a test that ran between the first and the last reading says nothing; empty if the machine kept up.

    ``late_ms``: how late each timer rang in that time.
    """
    if not readings:
        return ["the process that watches the machine has died"]
    limits = limits or Limits()
    seconds = stretches(readings)
    cores = f"{readings[-1].cores} cores"
    reasons = []
    steal = max(s.steal for s in seconds)
    if steal >= limits.steal:
        reasons.append(f"steal {steal:.0%} of {cores}")
    crowded = [s for s in seconds if s.others >= limits.others and s.idle < limits.idle]
    if crowded:
        worst = max(crowded, key=lambda s: s.others)
        reasons.append(f"other processes used {worst.others:.0%} of {cores} and left {worst.idle:.0%} idle")
    latest_ms = max(late_ms, default=0.0)
    if latest_ms >= limits.late_ms:
        reasons.append(f"timers up to {latest_ms:.1f} ms late")
    return reasons


class Watcher:
    """Runs the process that watches the machine: ``begin`` before a test, ``end`` after it.

    ``alone``: nothing else of this test run goes on beside the test. The timers then have real-time priority where that
    is allowed (root), so that the test's own work does not make them late: what others do shows in the CPU that they
    use. Beside other workers of pytest-xdist the timers stand in line as those of the test do, because the work of
    those workers is not the test's fault, and as CPU time it cannot be told from ours.
    """

    def __init__(self, *, alone: bool) -> None:
        self._alone = alone
        self._process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Take the first reading; returns when it is taken."""
        if self._process is not None and self._process.poll() is not None:
            self.close()
        self._process = self._process or self._start()
        self._ask("begin")

    def end(self) -> tuple[list[Reading], list[float]]:
        """The readings since ``begin`` (at least two), and how many milliseconds late each timer was.

        No reading at all if the process has died: then nothing is known of the machine, and ``begin`` starts another.
        """
        try:
            answer = json.loads(self._ask("end"))
        except (OSError, ValueError):
            self.close()
            return [], []
        return [Reading(**reading) for reading in answer["readings"]], answer["late_ms"]

    def close(self) -> None:
        """End the process; harmless if there is none."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _start(self) -> subprocess.Popen[str]:
        run = os.environ.setdefault(MARK, str(os.getpid()))
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).resolve()), run, "alone" if self._alone else "beside"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the tests
        )

    def _ask(self, question: str) -> str:
        process = self._process
        assert process is not None and process.stdin and process.stdout, "begin comes before end"
        process.stdin.write(question + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], _ANSWER_S)[0]:
            raise TimeoutError(f"the process that watches the machine did not answer in {_ANSWER_S:g} s")
        return process.stdout.readline()


def read(others: OtherProcesses, before_s: float = 0.0) -> Reading:
    """The machine now; ``before_s``: what others had used up to their last reading."""
    with open("/proc/stat", encoding="ascii") as file:
        lines = file.read().splitlines()
    fields = [int(field) for field in lines[0].split()[1:9]]
    cores = sum(line.startswith("cpu") and line[3].isdigit() for line in lines)
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    idle_s, steal_s = (fields[3] + fields[4]) * tick_s, fields[7] * tick_s
    return Reading(time.monotonic(), cores, idle_s, steal_s, before_s + others.used().total() * tick_s)


def _hurry(policy: int, priority: int) -> None:
    """Change the watcher's priority where that is allowed; a container may forbid it to root, too."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, policy, os.sched_param(priority))


def _watch(run: int, alone: bool) -> None:
    """Answer ``begin`` and ``end`` until the test run is gone. /proc is read at the priority of everybody else."""
    others = OtherProcesses(run, f"{MARK}={run}\0")
    while sys.stdin.readline():
        readings, late_ms = [read(others)], []
        print("ready", flush=True)
        asked = False
        while not asked:
            if alone:
                _hurry(os.SCHED_FIFO, 1)
            due = readings[-1].moment_s + READING_S
            while not asked and time.monotonic() < due:
                begin = time.monotonic()
                asked = bool(select.select([sys.stdin], [], [], TICK_S)[0])
                if not asked:
                    late_ms.append(1000 * (time.monotonic() - begin - TICK_S))
            if alone:
                _hurry(os.SCHED_OTHER, 0)
            readings.append(read(others, readings[-1].others_s))
        if sys.stdin.readline():
            answer = {"readings": [asdict(r) for r in readings], "late_ms": [round(late, 2) for late in late_ms]}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), sys.argv[2] == "alone")
