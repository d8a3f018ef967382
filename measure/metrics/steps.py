"""Start and end of each step, per rank and for the job."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from measure.metrics.intervals import Interval
from railyard.timeline import Event


@dataclass(frozen=True)
class Steps:
    """The steps of a point (wall-clock seconds). ``of_rank[rank][step]`` is the interval of one rank's step.

    ``complete`` are the steps that every rank finished, ascending; only these count.
    """

    of_rank: dict[int, dict[int, Interval]]
    complete: tuple[int, ...]

    @staticmethod
    def read(events: Iterable[Event]) -> Steps:
        of_rank: dict[int, dict[int, Interval]] = defaultdict(dict)
        for e in events:
            if e.source == "agent" and e.kind == "step" and e.end is not None:
                of_rank[e["rank"]][e["step"]] = (e.t, e.end)
        found = [set(steps) for steps in of_rank.values()]
        complete = set.intersection(*found) if found else set()
        return Steps(dict(of_rank), tuple(sorted(complete)))

    def job(self, step: int) -> Interval:
        """Interval from the first rank's start of ``step`` to the last rank's end of it."""
        intervals = [steps[step] for steps in self.of_rank.values() if step in steps]
        return min(t for t, _ in intervals), max(end for _, end in intervals)

    def durations(self) -> tuple[float, ...]:
        """Duration of each complete step, in seconds.

        A step lasts from the end of the step before it to its own end (of the last rank each), as in a training log.
        If the ranks started later than that (a barrier, a pause between steps), it lasts from the first rank's start.
        """
        times, before = [], float("-inf")
        for step in self.complete:
            start, end = self.job(step)
            times.append(end - max(start, before))
            before = end
        return tuple(times)

    def during(self, interval: Interval) -> frozenset[int]:
        """Places, among the complete steps, of those that have a part in ``interval``."""
        start, end = interval
        jobs = [self.job(step) for step in self.complete]
        return frozenset(place for place, (begun, ended) in enumerate(jobs) if begun < end and ended > start)

    def at(self, rank: int, t: float) -> int | None:
        """The complete step of ``rank`` at ``t`` (a pause counts to the step before); None before the first."""
        steps = self.of_rank.get(rank, {})
        starts = [(steps[s][0], s) for s in self.complete if s in steps]
        place = bisect_right(starts, (t, float("inf")))
        if place == 0:
            return None
        last = starts[place - 1][1]
        return last if place < len(starts) or t <= self.job(last)[1] else None
