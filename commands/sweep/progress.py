"""Progress of a sweep on the terminal, with an estimate of its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import fmean

from commands.sweep.execute import Outcome
from commands.sweep.point import SweepPoint
from experiments.progress import RunProgress

_SAY_EVERY_S = 10.0
_LAST = 20
"""Points whose mean time is taken as that of the others."""


def estimate_s(seconds: Sequence[float], left: int, at_once: int = 1) -> float | None:
    """Seconds until ``left`` points have ended, by the mean of the last durations; None before the first one."""
    return fmean(seconds[-_LAST:]) * left / max(1, at_once) if seconds else None


def in_time(seconds: float) -> str:
    """A duration for people: 8 s, 5 min, 2 h 10 min."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 2:
        return f"{minutes * 60 + rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if hours else f"{minutes} min"
    return f"{hours // 24} days {hours % 24} h"


class SweepProgress:
    """Says of each point how it ended, on ``progress``: of points of the model one line every ten seconds."""

    def __init__(self, progress: RunProgress, total: int, done: int, *, seldom: bool) -> None:
        self._progress, self._total, self._done, self._seldom = progress, total, done, seldom
        self._seconds: list[float] = []
        self._said_at = self._last_at = time.monotonic()
        progress.begin("points", steps=total)
        progress.step(done)

    def ended(self, point: SweepPoint, outcome: Outcome) -> None:
        """Take the end of a point."""
        now = time.monotonic()
        self._seconds.append(now - self._last_at)
        self._last_at = now
        self._done += 1
        self._progress.step(self._done)
        if self._seldom and outcome.status == 0 and now < self._said_at + _SAY_EVERY_S and self._done < self._total:
            return
        self._said_at = now
        left_s = estimate_s(self._seconds, self._total - self._done)
        left = f", about {in_time(left_s)} left" if left_s else ""
        self._progress.say(f"[{self._done}/{self._total}{left}] {point.title()}: {outcome}")
