"""The lives of the jobs of a run, which share a fabric: whose events are whose, and the steps of each life."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from measure.metrics.steps import Steps
from railyard.timeline import Event
from workloads.program import Group

NEVER = float("inf")


@dataclass(frozen=True)
class JobIncarnation:
    """One life of a job, launched at ``t`` with ``members``; ``end`` is the job's next launch (``NEVER``: none).

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
        """Its steps; whole are those that every member finished, so none while one member has finished nothing."""
        found = Steps.read(self.events)
        return found if set(found.of_rank) == set(self.members) else Steps(found.of_rank, ())

    @cached_property
    def step_times(self) -> Mapping[int, float]:
        """The time of every whole step (``Steps.durations``), by its number."""
        return dict(zip(self.steps.complete, self.steps.durations(), strict=True))

    def warm_steps(self, start: float = 0.0, end: float = NEVER) -> tuple[int, ...]:
        """The whole steps in [``start``, ``end``] but for the first of the life: that one warms up."""
        return tuple(
            s for s in self.steps.complete[1:] if start <= self.steps.job(s)[0] and self.steps.job(s)[1] <= end
        )

    def groups(self, first: JobIncarnation, groups: Mapping[str, Group]) -> dict[str, Group]:
        """``groups`` of the life ``first`` with the members that have those positions in this one."""
        now = dict(zip(first.members, self.members, strict=True))
        return {
            name: replace(group, members=tuple(now[rank] for rank in group.members)) for name, group in groups.items()
        }


def read_incarnations(events: Iterable[Event]) -> tuple[JobIncarnation, ...]:
    """Every life of every job, in order of their launches (``run launch``).

    An event of an agent belongs to the life that its rank was launched for last. Nothing before the first launch of
    its rank belongs to any.
    """
    of_rank: dict[int, list[Event]] = defaultdict(list)
    launches: list[Event] = []
    for e in sorted(events, key=lambda e: e.t):
        if e.source == "agent":
            of_rank[e["rank"]].append(e)
        elif e.source == "run" and e.kind == "launch":
            launches.append(e)
    return tuple(_incarnation(launch, launches[number + 1 :], of_rank) for number, launch in enumerate(launches))


def _incarnation(launch: Event, later: Sequence[Event], of_rank: Mapping[int, Sequence[Event]]) -> JobIncarnation:
    members = tuple(launch["members"])
    end = next((e.t for e in later if e["job"] == launch["job"]), NEVER)
    mine: list[Event] = []
    for rank in members:
        until = min(end, next((e.t for e in later if rank in e["members"]), NEVER))
        events = of_rank.get(rank, ())
        mine += events[_place(events, launch.t) : _place(events, until)]
    return JobIncarnation(
        launch["job"], launch["incarnation"], members, launch.t, end, tuple(sorted(mine, key=lambda e: e.t))
    )


def _place(events: Sequence[Event], t: float) -> int:
    return bisect_left(events, t, key=lambda e: e.t)


def incarnations_of(incarnations: Iterable[JobIncarnation], job: str) -> tuple[JobIncarnation, ...]:
    """The lives of one job, in order."""
    return tuple(incarnation for incarnation in incarnations if incarnation.job == job)


def jobs_of(incarnations: Iterable[JobIncarnation]) -> tuple[str, ...]:
    """The jobs of a run, in order of their first launches."""
    return tuple(dict.fromkeys(incarnation.job for incarnation in incarnations))


def faults_of(events: Iterable[Event], job: str | None = None) -> list[Event]:
    """The chips that died (``run fault``) in order of time; those of one job if it is named.

    A fault of something else (the controller: rank -1) is none of them.
    """
    faults = [e for e in events if e.source == "run" and e.kind == "fault" and e["rank"] >= 0]
    found = [e for e in faults if job in (None, e.get("job"))]
    return sorted(found, key=lambda e: e.t)


def checksums_agree(
    incarnations: Iterable[JobIncarnation], expected: Mapping[int, object] | None = None
) -> bool | None:
    """Whether a job kept its state: the running checksum after a step is the same on all members and in all lives.

    A checkpoint of k steps must have that of step k - 1. ``expected`` are the checksums of an undisturbed job, by step,
    where they are known: a job may do a step wrongly that it never does again. None if no checksum was recorded; False
    where a whole step has none, but for the last one of a life, which may have been ended before it was booked.
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
