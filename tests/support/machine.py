"""Whether the machine kept up while a test ran: the product's meters of other guests and processes, and late timers.

A test that measures time says something about the code only where the machine gave the code its time. What the test
itself does, and what it starts, must not count: that is what is tested. The meters run in a process of their own, so
that a test which holds the interpreter (or all cores) cannot hold them up; it needs about one percent of a core.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from measure.live.interference import OtherProcesses
from measure.live.processor import Processor
from railyard.errors import MachineError
from railyard.process.child import Child
from railyard.process.parent import Parent

MARK = "RAILYARD_TEST_RUN"
"""Environment variable that every process of a test run inherits; a daemon has it when its parents are gone, too."""
TICK_S = 0.01
"""How long the watch sleeps at a time: a core that stands still for longer is seen if the watch waits for that one."""
READING_S = 0.5
"""Time between two readings. Two of them are judged together: half a second in which others take everything is enough
for a late timer, and in the mean of a test of twenty seconds it would be lost."""
LEAST_S = 0.02
"""Less CPU than this is nothing: the kernel counts in steps of 10 ms, and one step is a tenth of a test of 50 ms."""


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
    """

    steal: float = 0.04
    others: float = 0.1
    idle: float = 0.25
    late_ms: float = 5.0


Reading = tuple[float, float, float, float]
"""Seconds since the reading before, and what became of all cores in them: shares of steal, others, and idle."""


def judge(readings: Sequence[Reading], latest_ms: float, limits: Limits) -> list[str]:
    """Why a test with these readings says nothing; empty if the machine kept up. ``latest_ms``: the latest timer."""
    cores = os.cpu_count() or 1
    steal, crowded = 0.0, (0.0, 1.0)
    for pair in [readings[i : i + 2] for i in range(max(1, len(readings) - 1))]:
        whole_s = sum(seconds for seconds, *_ in pair)
        shares = [sum(r[0] * r[kind] for r in pair) / whole_s if whole_s else 0.0 for kind in (1, 2, 3)]
        stolen, others, idle = (share if share * whole_s * cores >= LEAST_S else 0.0 for share in shares)
        steal = max(steal, stolen)
        if others >= limits.others and idle < limits.idle:
            crowded = max(crowded, (others, idle))
    reasons = []
    if steal >= limits.steal:
        reasons.append(f"steal {steal:.0%} of {cores} cores")
    if crowded[0]:
        reasons.append(f"other processes used {crowded[0]:.0%} of {cores} cores and left {crowded[1]:.0%} idle")
    if latest_ms >= limits.late_ms:
        reasons.append(f"timers up to {latest_ms:.1f} ms late")
    return reasons


class Watcher(Child):
    """The process that watches the machine: ``begin`` before a test, ``end`` after it; ``close`` when no test follows.

    ``alone``: nothing else of this test run goes on beside the test. The timers then have real-time priority where that
    is allowed (root), so that the test's own work does not make them late: what others do shows in the CPU that they
    use. Beside other workers of pytest-xdist the timers stand in line as those of the test do, because the work of
    those workers is not the test's fault, and as CPU time it cannot be told from ours.
    """

    def __init__(self, *, alone: bool) -> None:
        run = int(os.environ.setdefault(MARK, str(os.getpid())))
        super().__init__("tests.support.machine", {"run": run, "alone": alone}, (), "the watch of the machine")

    def watch(self) -> None:
        """Take the first reading; returns when it is taken."""
        if self.has_ended:
            self.close()
        if self._process is None:
            self.start()
        self.call("begin")

    def reasons(self, limits: Limits) -> list[str]:
        """Why what ran since ``watch`` says nothing; after it the watch is over."""
        try:
            readings, latest_ms = self.call("end")
        except MachineError:
            self.close()
            return ["the process that watches the machine has died"]
        return judge(readings, latest_ms, limits)


class Watch:
    """What the watching process does between ``begin`` and ``end``."""

    def __init__(self, run: int, alone: bool) -> None:
        self._run, self._alone = run, alone
        self.on = False

    def begin(self) -> None:
        self.on = True
        self._readings: list[Reading] = []
        self._latest_ms = 0.0
        self._processor, self._others = Processor(), OtherProcesses(self._run, f"{MARK}={self._run}\0")
        self._read_at = time.monotonic()

    def end(self) -> tuple[list[Reading], float]:
        self._read()
        self.on = False
        return self._readings, round(self._latest_ms, 2)

    def _read(self) -> None:
        now = time.monotonic()
        seconds, self._read_at = now - self._read_at, now
        load = self._processor.read(seconds)
        whole = seconds * (os.cpu_count() or 1) * os.sysconf("SC_CLK_TCK")
        others = min(1.0, self._others.used().total() / whole) if whole else 0.0
        self._readings.append((seconds, load.steal, others, 1 - load.busy))

    def stretch(self, parent: Parent) -> None:
        """Note how late timers are until the next reading, and take it. /proc is read at everybody's priority."""
        told = select.poll()
        told.register(parent, select.POLLIN)
        self._hurry(os.SCHED_FIFO, 1)
        is_told = False
        while not is_told and time.monotonic() < self._read_at + READING_S:
            begin = time.monotonic()
            is_told = bool(told.poll(1000 * TICK_S))
            if not is_told:
                self._latest_ms = max(self._latest_ms, 1000 * (time.monotonic() - begin - TICK_S))
        self._hurry(os.SCHED_OTHER, 0)
        if is_told:
            parent.take()
        else:
            self._read()

    def _hurry(self, policy: int, priority: int) -> None:
        """Change the priority of this process where that is allowed; a container may forbid it to root, too."""
        if self._alone:
            with suppress(PermissionError):
                os.sched_setscheduler(0, policy, os.sched_param(priority))


def main() -> None:
    parent = Parent()
    watch = Watch(**parent.settings)
    parent.operations = {"begin": watch.begin, "end": watch.end}
    parent.ready()
    while not parent.stopping:
        if watch.on:
            watch.stretch(parent)
        else:
            parent.wait(3600)
