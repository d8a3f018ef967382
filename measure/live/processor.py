"""Processor load of the machine and of the datapath between two readings of /proc."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Load:
    """Processor load over a period: ``busy`` is the share (0..1) of all ``cores`` that was in use.

    ``processes`` is the number of cores used by the watched processes together, ``thread`` the share (0..1) of a core
    used by the busiest of their threads; both are None if no process is watched.
    """

    busy: float
    cores: int
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
        self._cores = sum(line[:3] == "cpu" and line[3].isdigit() for line in self._stat())
        self._idle, self._whole = self._core_ticks()
        self._threads = self._thread_seconds()

    def read(self, seconds: float) -> Load:
        """The load since the last reading, which was ``seconds`` ago."""
        idle, whole = self._core_ticks()
        threads = self._thread_seconds()
        passed = whole - self._whole
        busy = 1 - (idle - self._idle) / passed if passed > 0 else 0.0
        used = [max(0.0, now - self._threads.get(thread, 0.0)) / seconds for thread, now in threads.items()]
        self._idle, self._whole, self._threads = idle, whole, threads
        if not self._pids:
            return Load(min(max(busy, 0.0), 1.0), self._cores, None, None)
        return Load(min(max(busy, 0.0), 1.0), self._cores, sum(used), min(max(used, default=0.0), 1.0))

    def _stat(self) -> list[str]:
        return (self._proc / "stat").read_text().splitlines()

    def _core_ticks(self) -> tuple[int, int]:
        """(idle ticks, all ticks) of all cores; time stolen by the hypervisor counts as busy."""
        ticks = [int(t) for t in self._stat()[0].split()[1:9]]
        return ticks[3] + ticks[4], sum(ticks)

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
