"""The metrics of a run of collaborative-learning jobs on edge clients, from its events, one at a time.

Every acknowledged update is followed to the sum of its round, so that losses and double counts show. No clock, no
files.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from railyard.timeline import Event

COUNTED = "acknowledged"
"""Outcome of an upload or of a leaf's flush that the receiver counted."""
LATE = "late"
"""Outcome of an upload or flush for a round that had ended, of which the sender was told."""


@dataclass(frozen=True)
class UpdateCounts:
    """The fate of the updates of a run; all are numbers of updates.

    ``acknowledged`` uploads were confirmed to their client. Of these, ``lost`` reached no sum although their round was
    completed, no attempt of it timed out with them and no server reported them late or cleared, and ``twice`` counts
    each time beyond the first that a sum held a client's update of a round. ``late`` uploads
    or parts of a leaf's sum came after their round and were reported so.
    """

    acknowledged: int
    lost: int
    twice: int
    late: int


@dataclass
class _Round:
    acknowledged: list[int] = field(default_factory=list)
    flushed: list[int] = field(default_factory=list)
    reported: list[int] = field(default_factory=list)
    order: list[int] | None = None


class Updates:
    """Takes the events ``push``, ``flush``, ``cleared``, ``sum``, ``round`` and ``timeout`` in order of time.

    The clients whose updates a sum holds are those of its field ``order`` where there is one, else those of the
    flushes that the root counted, else (no leaf in the run: the root itself acknowledges) those of the acknowledged
    uploads. Where each attempt of a round has a sum of its own, its events have a field ``attempt``.
    """

    def __init__(self) -> None:
        self._rounds: dict[tuple[int, int, int], _Round] = {}
        self._completed: set[tuple[int, int]] = set()
        self._outcomes: Counter[str] = Counter()
        self._late_flushed = 0
        self._leaves = False

    def add(self, event: Event) -> None:
        match event.kind:
            case "push":
                self._outcomes[event["outcome"]] += 1
                if event["outcome"] == COUNTED:
                    self._round(event).acknowledged.append(event["client"])
            case "flush":
                self._flush(event)
            case "cleared":
                self._round(event).reported += event["clients"]
            case "sum" if event.get("order") is not None:
                self._round(event).order = list(chain.from_iterable(event["order"]))
            case "round":
                self._completed.add((event["job"], event["round"]))
            case "timeout" if event["phase"] == "execution":
                for key in self._rounds:
                    if key[:2] == (event["job"], event["round"]):
                        self._rounds[key] = _Round()

    def _round(self, event: Event) -> _Round:
        return self._rounds.setdefault((event["job"], event["round"], event.get("attempt", 0)), _Round())

    def _flush(self, event: Event) -> None:
        self._leaves = True
        found = self._round(event)
        if event["outcome"] == COUNTED:
            found.flushed += event["clients"]
        elif event["outcome"] == LATE:
            found.reported += event["clients"]
            self._late_flushed += len(event["clients"])

    def counts(self) -> UpdateCounts:
        lost = twice = 0
        for key, found in self._rounds.items():
            if key[:2] in self._completed:
                counted = Counter(self._counted(found))
                lost += (Counter(found.acknowledged) - counted - Counter(found.reported)).total()
                twice += sum(number - 1 for number in counted.values() if number > 1)
        return UpdateCounts(
            acknowledged=self._outcomes[COUNTED],
            lost=lost,
            twice=twice,
            late=self._outcomes[LATE] + self._late_flushed,
        )

    def _counted(self, found: _Round) -> Sequence[int]:
        if found.order is not None:
            return found.order
        return found.flushed if self._leaves else found.acknowledged


BUSY = ("get", "train", "push")
"""The kinds of intervals in which a client works for a job, whether the job uses the result or not."""

OF_JOBS = ("registered", "request", "scheduled", "round", "timeout", "finished")


@dataclass(frozen=True)
class JobTime:
    """One job: its number, its name ("" where none was recorded), and its completion time (registered to finished).

    ``jct_s`` is None if it did not finish.
    """

    job: int
    name: str
    jct_s: float | None


@dataclass(frozen=True)
class EdgeMetrics:
    """The metrics of an edge run; all times are seconds of the run, None where nothing was recorded.

    The run lasts from the first ``registered`` to the last ``finished``, or to the last event if a job did not finish.
    ``jct_s`` is the mean completion time of the jobs that finished; the others are in ``unfinished``. Clients are busy
    with downloads, training and uploads, wasted ones included. ``utilisation`` is the busy time per second of the run
    and client that had any work, ``active_share`` the same per client that checked in (another definition of
    utilisation). ``repeated`` are the rounds that a time-out started again, ``bindings_per_s`` counts clients bound,
    ``completed_clients_per_s`` those of completed rounds, and ``gone`` those that vanished or were sent away.
    ``scheduling_s`` and ``response_s`` are means over completed rounds: REQUEST of the attempt that succeeded until it
    had its clients, and from then until the round was complete. ``checkin_s`` is the processor time of the client
    managers per check-in, with all that they do besides. The means ``scheduling_attempt_s`` and ``response_attempt_s``
    are over all attempts, those that timed out before they had their clients, or their updates, included, as the
    authors of Propius report them.
    """

    length_s: float
    jobs: tuple[JobTime, ...]
    jct_s: float | None
    unfinished: tuple[int, ...]
    utilisation: float | None
    active_share: float | None
    bindings_per_s: float | None
    completed_clients_per_s: float | None
    repeated: int
    scheduling_s: float | None
    scheduling_attempt_s: float | None
    response_s: float | None
    response_attempt_s: float | None
    gone: int
    updates: UpdateCounts
    checkin_s: float | None = None


class _Busy:
    """Adds up intervals, without what lies after the end of the run, which is known only when the run is over."""

    def __init__(self) -> None:
        self.before = 0.0
        self._open: list[tuple[float, float]] = []
        self.clients: set[int] = set()

    def add(self, client: int, t: float, end: float) -> None:
        self.clients.add(client)
        heapq.heappush(self._open, (end, t))

    def passed(self, now: float) -> None:
        """The run lasts at least until ``now``."""
        while self._open and self._open[0][0] <= now:
            end, t = heapq.heappop(self._open)
            self.before += end - t

    def total(self, end: float) -> float:
        self.passed(end)
        return self.before + sum(max(0.0, end - t) for _, t in self._open)


class EdgeMeter:
    """Takes the events of one run, in order of the time at which they were recorded; others than "edge" are ignored."""

    def __init__(self) -> None:
        self._updates = Updates()
        self._busy = _Busy()
        self._counts: Counter[str] = Counter()
        self._registered: dict[int, float] = {}
        self._names: dict[int, str] = {}
        self._finished: dict[int, float] = {}
        self._began: dict[tuple[int, str], float] = {}
        """When a job last began a phase: to wait for clients, or for updates."""
        self._timed_out_s = {"scheduling": 0.0, "execution": 0.0}
        self._scheduling: list[float] = []
        self._response: list[float] = []
        self._clients: set[int] = set()
        self._served, self._processor_s = 0, 0.0
        self._last = 0.0

    def add(self, event: Event) -> None:
        if event.source != "edge":
            return
        kind, at = event.kind, event.t if event.end is None else event.end
        self._counts[kind] += 1
        self._last = max(self._last, at)
        if kind in BUSY:
            self._busy.add(event["client"], event.t, at)
        elif kind in OF_JOBS:
            self._job(event, at)
            self._busy.passed(at)
        match kind:
            case "checkin":
                self._clients.add(event["client"])
            case "served":
                self._served += event["checkins"]
                self._processor_s += event["processor_s"]
            case "push" | "flush" | "cleared" | "sum" | "round" | "timeout":
                self._updates.add(event)

    def _job(self, event: Event, at: float) -> None:
        job = event["job"]
        match event.kind:
            case "registered":
                self._registered.setdefault(job, at)
                self._names[job] = event.get("name", "")
            case "finished":
                self._finished[job] = at
            case "request":
                self._began[job, "scheduling"] = at
            case "scheduled":
                self._began[job, "execution"] = at
            case "timeout":
                self._timed_out_s[event["phase"]] += at - self._began.get((job, event["phase"]), at)
                self._counts[f"timeout {event['phase']}"] += 1
            case "round":
                self._counts["completed"] += event["clients"]
                self._scheduling.append(event["scheduling_s"])
                self._response.append(event["response_s"])

    def result(self) -> EdgeMetrics:
        jobs = tuple(self._job_time(job) for job in sorted(self._registered))
        unfinished = tuple(job.job for job in jobs if job.jct_s is None)
        end = self._last if unfinished or not self._finished else max(self._finished.values())
        length = end - min(self._registered.values(), default=end)
        busy, with_work, everyone = self._busy.total(end), len(self._busy.clients), len(self._clients)
        count = self._counts
        return EdgeMetrics(
            length_s=length,
            jobs=jobs,
            jct_s=_mean(job.jct_s for job in jobs if job.jct_s is not None),
            unfinished=unfinished,
            utilisation=_per(busy, length * with_work),
            active_share=_per(busy, length * everyone),
            bindings_per_s=_per(count["bound"], length),
            completed_clients_per_s=_per(count["completed"], length),
            repeated=count["timeout"],
            scheduling_s=_mean(self._scheduling),
            scheduling_attempt_s=self._with_timeouts(self._scheduling, "scheduling"),
            response_s=_mean(self._response),
            response_attempt_s=self._with_timeouts(self._response, "execution"),
            gone=count["gone"],
            updates=self._updates.counts(),
            checkin_s=_per(self._processor_s, self._served),
        )

    def _with_timeouts(self, seconds: Sequence[float], phase: str) -> float | None:
        """The mean of a phase that came to its end in ``seconds``, with the attempts that timed out in it."""
        return _per(sum(seconds) + self._timed_out_s[phase], len(seconds) + self._counts[f"timeout {phase}"])

    def _job_time(self, job: int) -> JobTime:
        began, ended = self._registered[job], self._finished.get(job)
        return JobTime(job, self._names[job], None if ended is None else ended - began)


def edge_metrics(events: Iterable[Event]) -> EdgeMetrics:
    """The metrics of a whole timeline, in any order; an interval counts at its end."""
    meter = EdgeMeter()
    for event in sorted(events, key=lambda e: e.t if e.end is None else e.end):
        meter.add(event)
    return meter.result()


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


def _per(amount: float, divisor: float) -> float | None:
    return amount / divisor if divisor > 0 else None
