"""Processor time that others take from a run: other guests of the same hardware, and processes that are not the run's.

The time of other guests (steal) is a column of /proc/stat. The time of other processes is that of every process in
/proc but the run's own and the threads of the kernel: these move the packets of the run, and whom else they serve
cannot be told. Processes are named, as they can be stopped; guests cannot be seen from within a guest.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from measure.live.processor import Processor
from measure.metrics.checks import Limits
from measure.metrics.load import largest_of, others_says, steal_says
from railyard.process.start import MARK, MARK_VARIABLE
from railyard.verdict import NOT_FAITHFUL

_PROC = Path("/proc")
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD in the flags of /proc/PID/stat."""
_COST = 200
"""A reading is taken when this many times the time of the one before has passed: it needs 0.5 % of one processor."""
_QUIET_S = 1.0
"""How long a machine must be quiet to be called so."""
_READINGS_S = 0.5, 1.5
_MOST_NAMES, _NAME_BYTES = 5, 15
_NOT_SHOWN = re.compile(rb"[^A-Za-z0-9 ._+:/@-]")
"""What is not shown of a name: a process gives itself any, escape sequences of terminals and line ends included."""


@dataclass(frozen=True)
class OtherLoad:
    """Processor time of other processes as a ``share`` (0..1) of that of all processors.

    ``largest`` are those who took most of it, by the name of the command, each with its part of the share.
    """

    share: float = 0.0
    largest: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class _Process:
    """A line of /proc/PID/stat: ``own`` are ticks of its own, ``children`` those of its children that have ended."""

    command: bytes
    parent: int
    started: str
    own: int
    children: int
    kernel: bool


class OtherProcesses:
    """Measures the processor time of the processes that do not belong to the run of process ``run``.

    The run's own are that process, its descendants, and whatever has the run's ``mark`` (how a variable begins) in its
    environment: agents, controller, Open vSwitch and sampler. A process that ended between two readings is found with
    its parent, which inherits its time; where that is the first process, or one that the run descends from, its last
    moments are not seen, since those also inherit processes of the run. It then goes by the name of that parent.
    Processes that /proc does not show, as it is in a container, are not counted.
    """

    def __init__(
        self,
        run: int,
        mark: str = f"{MARK_VARIABLE}={MARK}",
        proc: Path = _PROC,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._mark = f"\0{mark}".encode()
        self._proc = proc
        self._clock = clock
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        self._cores = os.cpu_count() or 1
        self._others: dict[int, _Process] = {}
        self._left_out: dict[int, bool] = {}
        """Processes that are not read again, as they are the run's (True) or the kernel's."""
        self._load = OtherLoad()
        self._read_at = clock()
        self._next_at = 0.0
        self._take()

    def read(self) -> OtherLoad:
        """The load since the last reading, which this is unless it would come too soon: then that of the last one."""
        now = self._clock()
        if now < self._next_at or now <= self._read_at:
            return self._load
        used = self.used()
        total, whole = used.total(), self._cores * (now - self._read_at) / self._tick_s
        whole = max(whole, total)
        largest = tuple((name, ticks / whole) for name, ticks in used.most_common(_MOST_NAMES))
        self._load = OtherLoad(total / whole, largest)
        self._read_at, self._next_at = now, now + _COST * (self._clock() - now)
        return self._load

    def _take(self) -> None:
        """Read all processes that are not left out, and leave out those of the run and of the kernel from now on."""
        pids = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        self._left_out = {pid: own for pid, own in self._left_out.items() if pid in pids}
        found = {pid: each for pid in pids - self._left_out.keys() if (each := self._process(pid)) is not None}
        self._left_out |= {pid: False for pid, each in found.items() if each.kernel}
        self._left_out |= {pid: True for pid in found if self._is_own(pid, found)}
        self._others = {pid: each for pid, each in found.items() if pid not in self._left_out}

    def _is_own(self, pid: int, found: Mapping[int, _Process]) -> bool:
        known = pid in self._others and self._others[pid].started == found[pid].started
        if not known and self._has_mark(pid):
            return True
        ancestor = pid
        while ancestor in found and ancestor != self._run:
            ancestor = found[ancestor].parent
        return ancestor == self._run or self._left_out.get(ancestor, False)

    def used(self) -> Counter[str]:
        """Ticks that the others have used since the last reading, by the name of their command."""
        before = self._others
        self._take()
        now, keepers = self._others, {1, *self._ancestors()}
        inherited: Counter[int] = Counter()
        for pid, then in before.items():
            if pid not in now:
                heir = then.parent
                while heir in before and heir not in now:
                    heir = before[heir].parent
                inherited[heir] += then.own + then.children
        used: Counter[str] = Counter()
        for pid, each in now.items():
            then = before.get(pid, each)
            known = pid in before and then.started == each.started
            ticks = each.own - (then.own if known else 0)
            if pid not in keepers:
                ticks += max(0, each.children - (then.children if known else 0) - inherited[pid])
            if ticks > 0:
                used[_shown(each.command)] += ticks
        return used

    def _ancestors(self) -> set[int]:
        found: set[int] = set()
        process = self._process(self._run)
        while process is not None and process.parent and process.parent not in found:
            found.add(process.parent)
            process = self._others.get(process.parent)
        return found

    def _process(self, pid: int) -> _Process | None:
        try:
            head, _, rest = (self._proc / str(pid) / "stat").read_bytes().rpartition(b")")
        except OSError:
            return None
        command, fields = head.partition(b"(")[2], rest.split()
        own, children = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        kernel = bool(int(fields[6]) & _KERNEL_THREAD)
        return _Process(command, int(fields[1]), fields[19].decode(), own, children, kernel)

    def _has_mark(self, pid: int) -> bool:
        try:
            return self._mark in b"\0" + (self._proc / str(pid) / "environ").read_bytes()
        except OSError:  # it has ended, or is another user's
            return False


def _shown(command: bytes) -> str:
    """The name of a command without anything that a terminal, a page or a figure might take for more than a name."""
    return _NOT_SHOWN.sub(b"?", command[:_NAME_BYTES]).decode().strip() or "?"


def steady_load() -> tuple[float, str]:
    """The share of the processors that others keep busy, and that in words; one processor stays for a run.

    It is 0 where either of two readings is one that the verdict of a run allows: such a load may soon be gone.
    """
    cores, most, loads = os.cpu_count() or 1, Limits().other_cores, []
    for seconds in _READINGS_S:
        others = OtherProcesses(os.getpid())  # a new one, which does not repeat its last reading
        time.sleep(seconds)
        loads.append(others.read())
        if loads[-1].share * cores <= most:
            return 0.0, ""
    least = min(loads, key=lambda load: load.share)
    share = min(least.share, 1 - 1 / cores)
    says = others_says(least.share * cores, cores, largest_of({name: part * cores for name, part in least.largest}))
    left = share * cores
    return share, (
        f"{says}; the scale leaves {left:.2f} to them. Points are {NOT_FAITHFUL} while they take more than "
        f"{left + most:.3g}."
    )


def wait_for_quiet(longest_s: float) -> str | None:
    """Wait until others have left the processors alone for a second, for at most ``longest_s`` seconds (0: not at all).

    What counts are the limits of the verdict. Returns a sentence for the progress of a run, or None if the machine was
    quiet from the start.
    """
    limits = Limits()
    if longest_s <= 0:
        return None
    processor, others, cores = Processor(), OtherProcesses(os.getpid()), os.cpu_count() or 1
    began = before = time.monotonic()
    while True:
        time.sleep(_QUIET_S)
        now = time.monotonic()
        steal, load = processor.read(now - before).steal, others.read()
        other = load.share * cores
        before = now
        waited = now - began
        if steal <= limits.steal_share and other <= limits.other_cores:
            return f"waited {waited:.0f} s until the machine was quiet" if waited > 1.5 * _QUIET_S else None
        if waited + _QUIET_S > longest_s:
            by_name = {name: share * cores for name, share in load.largest}
            cause = steal_says(steal) if steal > limits.steal_share else others_says(other, cores, largest_of(by_name))
            return f"the machine did not become quiet within {longest_s:g} s: {cause}; measuring nevertheless"
