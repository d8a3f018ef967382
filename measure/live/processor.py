"""Processor load between two readings of /proc, and facts about this machine that may explain a result."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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


_CPU = Path("/proc/cpuinfo")
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


def machine_facts(cpu: Path = _CPU, clock: Path = _CLOCK) -> dict[str, Any]:
    """CPU model, clock source and the load of the last 1, 5 and 15 minutes; None for what cannot be read."""
    model = re.search(r"^(?:model name|Model)[ \t]*:(.*)$", _text(cpu), re.MULTILINE)
    name = model[1].strip() if model else platform.processor() or platform.machine()
    return {"cpu": name or None, "clock_source": _text(clock).strip() or None, "load_before": _load()}


def _load() -> list[float] | None:
    with suppress(OSError):
        return [round(load, 2) for load in os.getloadavg()]
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
