"""Facts about this machine that may explain a result: processor, clock, and the load that others put on it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

_PROC, _SYS = Path("/proc"), Path("/sys")
_CLOCK = "devices/system/clocksource/clocksource0/current_clocksource"
_KINDS, _STEAL = 8, 7
"""Kinds of ticks in a line of /proc/stat that add up to all time, and the place of those that other guests took."""


def machine_facts(proc: Path = _PROC, sys: Path = _SYS) -> dict[str, Any]:
    """CPU model, clock source and the load of the last 1, 5 and 15 minutes; None for what cannot be read."""
    return {"cpu": _cpu(proc), "clock_source": _text(sys / _CLOCK).strip() or None, "load_before": _load(proc)}


def _cpu(proc: Path) -> str | None:
    for line in _text(proc / "cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or platform.machine() or None


def _load(proc: Path) -> list[float] | None:
    try:
        return [float(number) for number in _text(proc / "loadavg").split()[:3]] or None
    except ValueError:
        return None


class StealMeter:
    """Measures the share of processor time that other guests of the same hardware took (steal) since it was made."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._before = self._ticks()

    def share(self) -> float | None:
        """The share (0..1) of all processors' time; None where the kernel does not count it, or no time has passed."""
        now = self._ticks()
        if now is None or self._before is None or now[0] <= self._before[0]:
            return None
        return round((now[1] - self._before[1]) / (now[0] - self._before[0]), 6)

    def _ticks(self) -> tuple[int, int] | None:
        words = _text(self._proc / "stat").split("\n", 1)[0].split()
        if len(words) <= _KINDS or words[0] != "cpu":
            return None
        ticks = [int(word) for word in words[1 : _KINDS + 1]]
        return sum(ticks), ticks[_STEAL]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
