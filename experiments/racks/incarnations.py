"""Incarnations (restarts) of the jobs of a run on one fabric: events and steps of each incarnation."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from measure.metrics.steps import Steps
from railyard.timeline import Event

NEVER = float("inf")
_ROUNDING_S = 1e-6


@dataclass(frozen=True)
class JobIncarnation:
    """One incarnation of a job, launched at ``t`` with ``members``; ``end`` is the job's next launch (or ``NEVER``).

    ``events`` are those of its agents in order of time. Times are wall-clock seconds.
    """

    job: str
    number: int
    members: tuple[int, ...]
    t: float
    end: float
    events: tuple[Event, ...]

    @cached_property
    def steps(self) -> Steps:
        """Steps of the incarnation; a step is complete when every member has finished it."""
        found = Steps.read(self.events)
        return found if set(found.of_rank) == set(self.members) else Steps(found.of_rank, ())

    @cached_property
    def step_times(self) -> Mapping[int, float]:
        """Duration of every complete step (``Steps.durations``), by its number."""
        return dict(zip(self.steps.complete, self.steps.durations(), strict=True))

    def steps_in(self, start: float = 0.0, end: float = NEVER) -> tuple[int, ...]:
        """The complete steps in [``start``, ``end``]; an interval that is a sum of seconds may begin with a step."""
        job = self.steps.job
        return tuple(s for s in self.steps.complete if start - _ROUNDING_S <= job(s)[0] and job(s)[1] <= end)

    def warm_steps(self, start: float = 0.0, end: float = NEVER) -> tuple[int, ...]:
        """The complete steps in [``start``, ``end``], without the first of the incarnation, which is a warm-up."""
        return tuple(step for step in self.steps_in(start, end) if step != self.steps.complete[0])


def read_incarnations(events: Iterable[Event], job: str | None = None) -> tuple[JobIncarnation, ...]:
    """Every incarnation of ``job`` (None: of every job), in order of launches (``run launch``).

    An event of an agent belongs to the incarnation for which its rank was launched last. Events before the first launch
    of a rank belong to none.
    """
    of_rank: dict[int, list[Event]] = defaultdict(list)
    launches: list[Event] = []
    for e in sorted(events, key=lambda e: e.t):
        if e.source == "agent":
            of_rank[e["rank"]].append(e)
        elif e.source == "run" and e.kind == "launch":
            launches.append(e)
    return tuple(
        _incarnation(launch, launches[number + 1 :], of_rank)
        for number, launch in enumerate(launches)
        if job in (None, launch["job"])
    )


def _incarnation(launch: Event, later: Sequence[Event], of_rank: Mapping[int, Sequence[Event]]) -> JobIncarnation:
    members = tuple(launch["members"])
    end = next((e.t for e in later if e["job"] == launch["job"]), NEVER)
    mine: list[Event] = []
    for rank in members:
        until = min(end, next((e.t for e in later if rank in e["members"]), NEVER))
        events = of_rank.get(rank, ())
        first, last = (bisect_left(events, t, key=lambda e: e.t) for t in (launch.t, until))
        mine += events[first:last]
    return JobIncarnation(
        launch["job"], launch["incarnation"], members, launch.t, end, tuple(sorted(mine, key=lambda e: e.t))
    )


def faults_of(events: Iterable[Event], job: str | None = None) -> list[Event]:
    """The deaths of chips (``run fault``) in order of time; only those of ``job`` if it is given.

    Faults of the controller (rank -1) are left out.
    """
    faults = [e for e in events if e.source == "run" and e.kind == "fault" and e["rank"] >= 0]
    found = [e for e in faults if job in (None, e.get("job"))]
    return sorted(found, key=lambda e: e.t)


def checksums_agree(
    incarnations: Iterable[JobIncarnation], expected: Mapping[int, object] | None = None
) -> bool | None:
    """Whether a job kept its state: the running checksum of each step is the same on all members and incarnations.

    A checkpoint of k steps must have the checksum of step k - 1. ``expected`` are the checksums of an undisturbed job
    by step, if known; they catch a wrong step that is never repeated. None if no checksum was recorded; False if a
    complete step has none, except for the last of an incarnation, which may have ended before it was recorded.
    """
    seen: dict[int, set[object]] = defaultdict(set)
    whole: set[int] = set()
    for incarnation in incarnations:
        whole.update(incarnation.steps.complete[:-1])
        for e in incarnation.events:
            if e.kind in ("state", "checkpoint") and e.get("checksum") is not None:
                seen[e["step"] - (e.kind == "checkpoint")].add(e["checksum"])
    if not seen:
        return None
    known = expected or {}
    return whole <= set(seen) and all(
        len(values) == 1 and (step not in known or known[step] in values) for step, values in seen.items()
    )
