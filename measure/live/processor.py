"""Processor load of the machine and of the datapath between two readings of /proc."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_PROC = Path("/proc")
_IDLE, _SOFTIRQ, _STEAL = (3, 4), (6,), (7,)
"""Places of the ticks in a line of /proc/stat: idle and waiting for input or output; soft interrupts; other guests."""


@dataclass(frozen=True)
class Load:
    """Processor load over a period: ``busy`` is the share (0..1) of all ``cores`` that was in use.

    ``processes`` is the number of cores used by the watched processes together, ``thread`` the share (0..1) of a core
    used by the busiest of their threads; both are None if no process is watched. ``softirq`` is the share (0..1) of
    the time that the core spent on packets and other soft interrupts that spent the most, ``steal`` the share of all
    cores that the hypervisor gave to other guests while this machine had work for them.
    """

    busy: float
    cores: int
    softirq: float
    steal: float
    processes: float | None
    thread: float | None


class Processor:
    """Measures the processor load between successive calls of ``read``, of the machine and the processes ``pids``.

    Threads are read from ``schedstat`` (nanoseconds) where the kernel has it, else from ``stat`` (ticks).
    """

    def __init__(self, pids: Sequence[int] = (), proc: Path = _PROC) -> None:
        self._pids = tuple(pids)
        self._proc = proc
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        self._ticks = self._core_ticks()
        self._threads = self._thread_seconds()

    def read(self, seconds: float) -> Load:
        ticks, threads = self._core_ticks(), self._thread_seconds()
        passed = [
            [now - then for now, then in zip(*pair, strict=True)] for pair in zip(ticks, self._ticks, strict=True)
        ]
        used = [max(0.0, now - self._threads.get(thread, 0.0)) / seconds for thread, now in threads.items()]
        self._ticks, self._threads = ticks, threads
        busy, softirq = 1 - _share(passed[0], _IDLE), max(_share(core, _SOFTIRQ) for core in passed[1:])
        load = Load(min(max(busy, 0.0), 1.0), len(passed) - 1, softirq, _share(passed[0], _STEAL), None, None)
        if not self._pids:
            return load
        return replace(load, processes=sum(used), thread=min(max(used, default=0.0), 1.0))

    def _core_ticks(self) -> list[list[int]]:
        """Ticks by kind, of all cores together and then of each; time stolen by the hypervisor counts as busy."""
        lines = (self._proc / "stat").read_text().splitlines()
        return [[int(ticks) for ticks in line.split()[1:9]] for line in lines if line.startswith("cpu")]

    def _thread_seconds(self) -> dict[tuple[int, str], float]:
        """CPU seconds of every thread of the watched processes; processes that have ended are left out."""
        found = {}
        for pid in self._pids:
            tasks = self._proc / str(pid) / "task"
            try:
                threads = os.listdir(tasks)
            except OSError:
                continue
            for thread in threads:
                try:
                    found[pid, thread] = self._one_thread(tasks / thread)
                except OSError:
                    continue
        return found

    def _one_thread(self, task: Path) -> float:
        try:
            return int((task / "schedstat").read_text().split()[0]) / 1e9
        except (FileNotFoundError, IndexError):
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) * self._tick_s


def _share(ticks: Sequence[int], places: Sequence[int]) -> float:
    """Share of all ``ticks`` that are at ``places``; without any ticks all are idle."""
    whole = sum(ticks)
    return sum(ticks[place] for place in places) / whole if whole > 0 else float(places == _IDLE)
