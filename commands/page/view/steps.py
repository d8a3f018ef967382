"""The steps of a point as a page shows them: times of each, and the exposed stall in it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from measure.metrics.intervals import total, union
from measure.metrics.stall import CircuitWait, Dark, split_wait

_MOST_WAITS = 50_000
"""Waits and dark times that are kept for stalls; a point with more of them has no stalls."""


@dataclass
class _Step:
    """One step of a job: times of the first start and the last end, and which ranks ended it."""

    job: str
    incarnation: int
    number: int
    start: float
    end: float
    ranks: set[int] = field(default_factory=set)
    last: tuple[float, int] = (0.0, -1)
    """End of the last operation on the rails, and its rank."""
    waits: list[CircuitWait] = field(default_factory=list)
    stall_s: float | None = None


class StepTable:
    """The steps of all jobs of a point. Times are seconds of the real system since the start of the point."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int, int], _Step] = {}
        self._job_of: dict[int, tuple[str, int]] = {}
        self._ranks: dict[tuple[str, int], set[int]] = defaultdict(set)
        """Members of each incarnation of a job."""
        self.rotating: set[str] = set()
        """Groups whose circuits follow a rotation of slots."""
        self._darks: list[Dark] = []
        self._dark_starts: list[float] = []
        self._longest_dark_s = 0.0
        self._kept = 0

    def launch(self, job: str, incarnation: int, members: Sequence[int]) -> None:
        """``run launch``: from here on the steps of ``members`` are those of ``incarnation`` of ``job``."""
        self._ranks[job, incarnation] = set(members)
        for rank in members:
            self._job_of[rank] = job, incarnation

    def step(self, rank: int, number: int, start: float, end: float) -> None:
        """``agent step`` of one rank."""
        found = self._of(rank, number)
        first = not found.ranks
        found.start = start if first else min(found.start, start)
        found.end = end if first else max(found.end, end)
        found.ranks.add(rank)
        self._ranks[found.job, found.incarnation].add(rank)

    def sent(self, rank: int, number: int, end: float) -> None:
        """An operation of ``rank`` on the rails ended at ``end``."""
        found = self._of(rank, number)
        found.last = max(found.last, (end, rank))

    def wait(self, wait: CircuitWait) -> None:
        """``agent wait``, for the stalls; also an operation in slots, from when it was posted."""
        self._kept += 1
        if self._kept <= _MOST_WAITS:
            self._of(wait.rank, wait.step).waits.append(wait)

    def dark(self, dark: Dark) -> None:
        """``controller reconfigure``, for the stalls."""
        self._kept += 1
        if self._kept <= _MOST_WAITS:
            place = bisect_right(self._dark_starts, dark.t)
            self._darks.insert(place, dark)
            self._dark_starts.insert(place, dark.t)
            self._longest_dark_s = max(self._longest_dark_s, dark.end - dark.t)

    def _of(self, rank: int, number: int) -> _Step:
        job, incarnation = self._job_of.get(rank, ("", 0))
        key = job, incarnation, number
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = _Step(job, incarnation, number, 0.0, 0.0)
        return found

    def _complete(self, job: str) -> list[_Step]:
        """The steps of ``job`` that all ranks of their incarnation have ended, by time."""
        found = [
            step
            for step in self._steps.values()
            if step.job == job and step.ranks and step.ranks >= self._ranks[job, step.incarnation]
        ]
        return sorted(found, key=lambda s: s.start)

    def shown(
        self, predicted: Sequence[float], warmup: int | None, start: float, end: float, until: float
    ) -> list[dict[str, Any]]:
        """The complete steps that overlap the window: number, times, duration, prediction and exposed stall.

        A step lasts from the end of the step before it to its own end (``measure.metrics.steps``). ``predicted`` are
        the times of steps by the model, of which the last holds for all later ones; ``warmup``: steps that do not
        count, None: the first if there are more.
        """
        found = []
        for job in sorted({s.job for s in self._steps.values()}):
            before, complete = float("-inf"), self._complete(job)
            out = (1 if len(complete) > 1 else 0) if warmup is None else warmup
            for step in complete:
                seconds = step.end - max(step.start, before)
                before = step.end
                if step.start < end and step.end > start:
                    prediction = predicted[min(step.number, len(predicted) - 1)] if predicted else None
                    shown: dict[str, Any] = {"step": step.number, "s": round(step.start, 6), "e": round(step.end, 6)}
                    shown |= {"seconds": round(seconds, 6), "predicted_s": prediction}
                    shown |= {
                        "stall_s": self._stall(step) if step.end < until else None,
                        "warmup": step.number < out and not step.incarnation,
                    }
                    found.append(shown | ({"job": job} if job else {}))
        return found

    def spans(self, start: float, end: float, shortest: float) -> Iterator[dict[str, Any]]:
        """Steps of the first job that overlap the window and last at least ``shortest`` seconds, also unfinished."""
        jobs = sorted({s.job for s in self._steps.values() if s.ranks})
        for step in sorted((s for s in self._steps.values() if s.ranks), key=lambda s: s.start):
            wanted = step.job == jobs[0] and step.start < end and step.end > start
            if wanted and step.end - step.start >= shortest:
                yield {"step": step.number, "s": round(step.start, 6), "e": round(step.end, 6)}

    def _stall(self, step: _Step) -> float | None:
        """The exposed stall of a step: of the rank whose last operation on the rails ends last (``Stalls``)."""
        if self._kept > _MOST_WAITS:
            return None
        if step.stall_s is None:
            first = bisect_left(self._dark_starts, step.start - self._longest_dark_s)
            near = self._darks[first : bisect_left(self._dark_starts, step.end)]
            exposed = []
            for wait in (w for w in step.waits if w.rank == step.last[1]):
                touching = [d for d in near if d.t < wait.end and d.end > wait.t and self._exposes(d, wait)]
                exposed += split_wait(wait, touching)[0]
            step.stall_s = round(total(union(exposed)), 6)
        return step.stall_s

    def _exposes(self, dark: Dark, wait: CircuitWait) -> bool:
        """Whether a rank waits for ``dark``; in a rotation each dark time of its group is one between two slots."""
        return dark.connects(wait.members) and (wait.group not in self.rotating or dark.group == wait.group)
