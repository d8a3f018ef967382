"""What each rank does over time, which other ranks it waits for, and the steps of jobs.

Times are seconds of the real system since the start of the point. An agent that is blocked on an acknowledgement waits
for other members until the last of them has asked; from then on it waits for the controller, and for its own ports
where they are dark. What is left of a step without computing, transfers and such waits is a wait for other members too.
Both are known once the events up to their end are (``settle``).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from commands.page.view.bars import BAR, KIND, KINDS, Bars, Table
from measure.metrics.intervals import Interval, total, union
from measure.metrics.stall import CircuitWait, Dark, split_wait

_ASK, _DARK, _WAIT, _FAILED = KIND["ask"], KIND["dark"], KIND["wait"], KIND["failed"]
_BUSY = ("failed", "dark", "ask", "dp", "edp", "pp", "ep", "tp", "cp", "world", "other", "compute")
"""Of several things that a rank does at a moment, the first of these is shown."""
_ORDER = {KIND[name]: place for place, name in enumerate(_BUSY)}
_LOOKED_BACK = 4096
_Split = Callable[[int, float, float], tuple[list[Interval], list[Interval]]]


class _Posted:
    """When a rank posted its operations of one group, and in which step."""

    __slots__ = ("_steps", "_times")

    def __init__(self) -> None:
        self._times, self._steps = array("d"), array("q")

    def add(self, t: float, step: int) -> None:
        place = len(self._times) if not self._times or t >= self._times[-1] else bisect_left(self._times, t)
        self._times.insert(place, t)
        self._steps.insert(place, step)

    def last(self, t: float) -> tuple[int, int]:
        """The step of the last operation posted by ``t``, and how many of that step were; (-1, 0) without one."""
        place = bisect_right(self._times, t)
        if place == 0:
            return -1, 0
        step = self._steps[place - 1]
        return step, self.count(t, step)

    def count(self, t: float, step: int) -> int:
        """How many operations of ``step`` were posted by ``t``; none if a later step had begun to post long ago."""
        place = bisect_right(self._times, t)
        return sum(1 for each in self._steps[max(0, place - _LOOKED_BACK) : place] if each == step)

    def later(self, t: float, step: int) -> bool:
        """Whether an operation of a step after ``step`` was posted by ``t``."""
        place = bisect_right(self._times, t)
        return place > 0 and self._steps[place - 1] > step


class Ranks:
    """The lanes of all ranks. ``labels`` numbers names; waits shorter than ``shortest_s`` between operations are none.

    The last column of a bar of a wait is the number of its group (``groups``), from 1.
    """

    def __init__(self, ranks: int, labels: Callable[[str], int], shortest_s: float) -> None:
        self.lanes = [Bars() for _ in range(ranks)]
        self.groups: list[str] = [""]
        self.members: dict[str, set[int]] = defaultdict(set)
        self.dead: dict[int, float] = {}
        self._numbers: dict[str, int] = {"": 0}
        self._labels, self._shortest_s = labels, shortest_s
        self._waits: list[tuple[int, float, float, str, int]] = []
        self._steps: list[tuple[int, float, float]] = []
        self._posted: dict[tuple[str, int], _Posted] = defaultdict(_Posted)
        self._posts: list[list[tuple[float, float, int]]] = [[] for _ in range(ranks)]
        """By rank, operations (start, posted, group) that a wait may be for, until ``settle`` has looked at them."""
        self._acks: dict[str, tuple[array[float], array[float]]] = defaultdict(lambda: (array("d"), array("d")))

    # ---- events ------------------------------------------------------------------------------------------------

    def group(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.groups)
            self.groups.append(name)
        return number

    def posted(self, rank: int, group: str, posted: float, start: float, step: int) -> None:
        """``rank`` posted an operation of ``group`` at ``posted``, and data moved from ``start`` on."""
        self.members[group].add(rank)
        self._posted[group, rank].add(posted, step)
        self._posts[rank].append((start, posted, self.group(group)))

    def waited(self, rank: int, start: float, end: float, group: str, step: int) -> None:
        """``rank`` was blocked on the acknowledgement of ``group``."""
        self.members[group].add(rank)
        self._waits.append((rank, start, end, group, step))

    def stepped(self, rank: int, start: float, end: float) -> None:
        self._steps.append((rank, start, end))

    def acknowledged(self, t: float, ready: float, group: str) -> None:
        """The controller acknowledged ``group`` at ``t``, whose last member had asked at ``ready`` (NaN: not known)."""
        times, readies = self._acks[group]
        times.append(t)
        readies.append(ready)

    def failed(self, rank: int, t: float) -> None:
        self.dead.setdefault(rank, t)

    def settle(self, until: float, split: _Split) -> None:
        """Divide the waits and find the gaps of the steps that ended before ``until``, up to where events are known."""
        later = []
        for rank, start, end, group, step in self._waits:
            if end >= until:
                later.append((rank, start, end, group, step))
                continue
            ready = self._ready_in(group, start, end)
            dark, asking = split(rank, ready, end)
            number, label = self.group(group), self._labels(group)
            for kind, parts in ((_WAIT, [(start, ready)] if ready > start else []), (_DARK, dark), (_ASK, asking)):
                for a, b in parts:
                    self.lanes[rank].add(a, b, kind, label, 0, step, number)
        self._waits = later
        ended: dict[int, list[Interval]] = defaultdict(list)
        for rank, start, end in self._steps:
            if end < until:
                ended[rank].append((start, end))
        self._steps = [each for each in self._steps if each[2] >= until]
        for rank, steps in ended.items():
            self.lanes[rank].extend(self._gaps(rank, np.array(sorted(steps))))

    def _gaps(self, rank: int, steps: Any) -> Table:
        """The waits for other members in ``steps`` of ``rank``, an array of starts and ends."""
        rows = self.lanes[rank].within(float(steps[0, 0]), float(steps[-1, 1]))
        starts = np.concatenate((rows["s"], steps[:, 0], steps[:, 1]))
        ends = np.concatenate((rows["e"], steps[:, 0], steps[:, 1]))
        order = np.argsort(starts, kind="stable")
        reach, nexts = np.maximum.accumulate(ends[order])[:-1], starts[order][1:]
        inside = np.searchsorted(steps[:, 0], (reach + nexts) / 2, "right") - 1
        gap = (nexts - reach >= self._shortest_s) & (inside >= 0) & ((reach + nexts) / 2 < steps[inside, 1])
        found = np.zeros(int(gap.sum()), BAR)
        found["s"], found["e"], found["k"], found["st"] = reach[gap], nexts[gap], _WAIT, -1
        posts = sorted(self._posts[rank])
        self._posts[rank] = posts[bisect_left(posts, (float(steps[-1, 1]),)) :]
        begins, posted, number = np.array([*posts, (np.inf, np.inf, 0)]).T
        latest = found["e"] - self._shortest_s
        place = np.searchsorted(begins, latest)
        found["p"] = np.where(posted[place] <= latest, number[place], 0)
        names = ["between two operations", *self.groups[1:]]
        found["l"] = np.array([self._labels(name) for name in names])[found["p"]]
        return found

    # ---- questions ---------------------------------------------------------------------------------------------

    def within(self, rank: int, start: float, end: float, until: float, width: float = 0.0) -> Table:
        """The bars of ``rank`` that overlap the window, thinned; a dead rank is failed until ``until``."""
        rows = self.lanes[rank].thinned(start, end, width)
        since = self.dead.get(rank, until)
        if since >= until or since >= end or until <= start:
            return rows
        return np.append(rows, np.array([(since, until, _FAILED, self._labels("failed"), 0, -1, 0)], BAR))

    def doing(self, t: float, texts: Sequence[str]) -> dict[str, dict[str, str]]:
        """By rank what it does at ``t``: ``kind`` and ``label``; ranks that do nothing known are left out."""
        found = {}
        for rank, bars in enumerate(self.lanes):
            if t >= self.dead.get(rank, float("inf")):
                found[str(rank)] = {"kind": "failed", "label": "failed"}
                continue
            shown = _shown(bars.at(t))
            if shown is not None:
                found[str(rank)] = {"kind": KINDS[shown["k"]], "label": texts[shown["l"]]}
        return found

    def waits(self, t: float, members: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
        """Ranks that wait at ``t``: ``rank``, ``group`` and ``for``, the members that have not come that far.

        They are the ranks that wait by ``doing``. ``members`` are the members of the groups of the program; of other
        groups, those that were seen. Nobody is missing where the controller or a dark circuit is waited for, and no
        group is known of a rank that has nothing to do between two operations.
        """
        asking: dict[str, set[int]] = defaultdict(set)
        gaps: list[tuple[int, str]] = []
        for rank, bars in enumerate(self.lanes):
            row = _shown(bars.at(t)) if t < self.dead.get(rank, float("inf")) else None
            if row is not None and row["k"] == _WAIT and row["st"] < 0:
                gaps.append((rank, self.groups[row["p"]]))
            elif row is not None and row["k"] in (_ASK, _DARK, _WAIT):
                asking[self.groups[row["p"]]].add(rank)
        found = []
        for group, ranks in asking.items():
            missing = [] if self._ready(group, t) else sorted(set(members.get(group) or self.members[group]) - ranks)
            found += [{"rank": rank, "group": group, "for": missing} for rank in ranks]
        for rank, group in gaps:
            if not group:
                found.append({"rank": rank, "group": "", "for": []})
                continue
            step, count = self._posted[group, rank].last(t)
            others = set(members.get(group) or self.members[group]) - {rank}
            missing = sorted(m for m in others if self._behind(group, m, t, step, count))
            found.append({"rank": rank, "group": group, "for": missing})
        return sorted(found, key=lambda wait: (wait["rank"], wait["group"]))

    def _behind(self, group: str, rank: int, t: float, step: int, count: int) -> bool:
        posted = self._posted.get((group, rank))
        return posted is None or (not posted.later(t, step) and posted.count(t, step) < count)

    def _ready_in(self, group: str, start: float, end: float) -> float:
        """When all members had asked, of the acknowledgement that ended a wait; ``start`` where none is known."""
        times, readies = self._acks.get(group, ((), ()))
        place = bisect_right(times, start)
        known = place < len(times) and times[place] <= end and readies[place] > start
        return min(readies[place], end) if known else start

    def _ready(self, group: str, t: float) -> bool:
        """Whether ``t`` is after all members had asked, and before the acknowledgement that followed."""
        times, readies = self._acks.get(group, ((), ()))
        place = bisect_right(times, t)
        return place < len(times) and readies[place] <= t


def _shown(rows: Table) -> Any:
    """Of several bars at a moment the one that is shown; None of none."""
    return min(rows, key=lambda row: _ORDER.get(int(row["k"]), len(_ORDER)), default=None)


# ---- steps -----------------------------------------------------------------------------------------------------------


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
        """The complete steps that overlap the window: number, times, duration, prediction and wait for circuits.

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
        """The wait for circuits in a step: of the rank whose last operation on the rails ends last (``Stalls``)."""
        if self._kept > _MOST_WAITS:
            return None
        if step.stall_s is None:
            first = bisect_left(self._dark_starts, step.start - self._longest_dark_s)
            near = self._darks[first : bisect_left(self._dark_starts, step.end)]
            waited = []
            for wait in (w for w in step.waits if w.rank == step.last[1]):
                touching = [d for d in near if d.t < wait.end and d.end > wait.t and self._is_of(d, wait)]
                waited += split_wait(wait, touching)[0]
            step.stall_s = round(total(union(waited)), 6)
        return step.stall_s

    def _is_of(self, dark: Dark, wait: CircuitWait) -> bool:
        """Whether a rank waits for ``dark``; in a rotation each dark time of its group is one between two slots."""
        return dark.connects(wait.members) and (wait.group not in self.rotating or dark.group == wait.group)
