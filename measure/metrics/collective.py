"""Times of one collective, step by step: the arrival of each rank, and the time from the first and the last arrival.

The timelines of live and simulated runs are read in the same way, so that measured and predicted times are the same
quantity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from measure.metrics.quantiles import median
from railyard.errors import AgentError, ConfigError
from railyard.timeline import Event
from workloads.schedule import Schedule


@dataclass(frozen=True)
class StepTimes:
    """Times of a collective in one step (wall-clock seconds), in ascending order of ``ranks``.

    ``arrivals[i]`` is when the rank posted the collective: from then on its data could move and its circuits could be
    requested. ``ends[i]`` is when the rank had received all its data and all data it sent was acknowledged.
    """

    step: int
    ranks: tuple[int, ...]
    arrivals: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def time_s(self) -> float:
        """Seconds from the first arrival to the last end."""
        return max(self.ends) - min(self.arrivals)

    @property
    def after_arrival_s(self) -> float:
        """Seconds from the last arrival to the last end: the time of nccl-tests, where all ranks arrive together."""
        return max(self.ends) - max(self.arrivals)


@dataclass(frozen=True)
class CollectiveTimes:
    """Times of a collective over the measured ``steps`` of a point (wall-clock seconds).

    ``wrong`` counts the wrong elements over all ranks and steps, the warm-up included; None if none was verified.
    """

    steps: tuple[StepTimes, ...]
    wrong: int | None = None

    @property
    def time_s(self) -> float:
        """Median over the steps of the seconds from the first arrival to the last end."""
        return median(step.time_s for step in self.steps) or 0.0

    @property
    def after_arrival_s(self) -> float:
        """Median over the steps of the seconds from the last arrival to the last end."""
        return median(step.after_arrival_s for step in self.steps) or 0.0


def joined(parts: Sequence[CollectiveTimes]) -> CollectiveTimes:
    """Collectives of each step taken as one: a rank arrives at the first of its own, and ends with the last."""
    steps = []
    for number in sorted(set.intersection(*({step.step for step in part.steps} for part in parts))):
        arrivals, ends = dict[int, float](), dict[int, float]()
        for step in (step for part in parts for step in part.steps if step.step == number):
            for rank, arrival, end in zip(step.ranks, step.arrivals, step.ends, strict=True):
                arrivals[rank] = min(arrival, arrivals.get(rank, arrival))
                ends[rank] = max(end, ends.get(rank, end))
        ranks = tuple(sorted(ends))
        steps.append(StepTimes(number, ranks, tuple(arrivals[r] for r in ranks), tuple(ends[r] for r in ranks)))
    wrong = [part.wrong for part in parts if part.wrong is not None]
    return CollectiveTimes(tuple(steps), sum(wrong) if wrong else None)


def collective_times(
    events: Iterable[Event], schedule: Schedule, group: str, warmup_steps: int, name: str = ""
) -> CollectiveTimes:
    """Times of the collective that runs once a step over ``group`` by ``schedule``.

    ``name`` selects one of several such collectives. Only steps that all members ended count, without the first
    ``warmup_steps`` of them. Raises ``AgentError`` if no step is left, ``ConfigError`` for several such collectives in
    a step.
    """
    found: dict[int, dict[int, Event]] = defaultdict(dict)
    waits: dict[tuple[int, int, int], float] = {}
    verified: dict[tuple[int, int, int], int] = {}
    for e in events:
        if e.source != "agent":
            continue
        if e.kind == "communicate" and e["group"] == group and e["op_kind"] == schedule.kind:
            if e.end is not None and name in ("", e["name"]):
                if e["rank"] in found[e["step"]]:
                    raise ConfigError(f"group {group} has several {schedule.kind} a step; name one of them", key="name")
                found[e["step"]][e["rank"]] = e
        elif e.kind == "wait":
            waits[_key(e)] = min(e.t, waits.get(_key(e), e.t))
        elif e.kind == "verified":
            verified[_key(e)] = e["wrong"]
    whole = [step for step in sorted(found) if len(found[step]) == schedule.n]
    measured = whole[warmup_steps:]
    if not measured:
        raise AgentError(
            f"no step in which all {schedule.n} members of group {group} ended the {schedule.kind} is left after "
            f"{warmup_steps} steps of warm-up; run more steps"
        )
    times = tuple(_step_times(step, list(found[step].values()), waits) for step in measured)
    wrong = [verified[_key(e)] for members in found.values() for e in members.values() if _key(e) in verified]
    return CollectiveTimes(times, sum(wrong) if wrong else None)


def _key(e: Event) -> tuple[int, int, int]:
    return e["rank"], e["step"], e["op"]


def _step_times(step: int, members: Sequence[Event], waits: dict[tuple[int, int, int], float]) -> StepTimes:
    ordered = sorted(members, key=lambda e: e["rank"])
    arrivals = tuple(min(e.get("posted", e.t), waits.get(_key(e), e.t)) for e in ordered)
    return StepTimes(step, tuple(e["rank"] for e in ordered), arrivals, tuple(e.end or e.t for e in ordered))
