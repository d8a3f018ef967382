"""One collective, step by step: who came when, and how long it took from the first and from the last arrival.

Reads the timeline of a live run and that of a simulated one alike, so that measured and predicted times are the same
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
    """The collective in one step (wall-clock seconds).

    In order of ``ranks``, which ascend. ``arrivals[i]`` is when the rank had posted it: from then on its data could
    move and its circuits could be asked for. ``ends[i]`` is when the rank had everything it must have, and nothing it
    sent was unacknowledged.
    """

    step: int
    ranks: tuple[int, ...]
    arrivals: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def time_s(self) -> float:
        """From the first arrival to the last end."""
        return max(self.ends) - min(self.arrivals)

    @property
    def after_arrival_s(self) -> float:
        """From the last arrival to the last end: the time of nccl-tests, where all arrive together."""
        return max(self.ends) - max(self.arrivals)

    @property
    def lateness(self) -> tuple[float, ...]:
        """How long after the first each rank arrived: what a detector of stragglers observes."""
        first = min(self.arrivals)
        return tuple(arrival - first for arrival in self.arrivals)

    @property
    def gap_s(self) -> float:
        """How long after the last but one the last rank arrived."""
        *_, before, last = (self.arrivals[0], *sorted(self.arrivals))
        return last - before


@dataclass(frozen=True)
class CollectiveTimes:
    """A collective over the steps of a point (wall-clock seconds).

    ``steps`` are the measured ones. ``wrong`` counts the elements that were not what they must be, over all ranks and
    all steps, those of the warm-up included; None if none was verified.
    """

    steps: tuple[StepTimes, ...]
    wrong: int | None = None

    @property
    def time_s(self) -> float:
        """Median over the steps, from the first arrival to the last end."""
        return median(step.time_s for step in self.steps) or 0.0

    @property
    def after_arrival_s(self) -> float:
        """Median over the steps, from the last arrival to the last end."""
        return median(step.after_arrival_s for step in self.steps) or 0.0

    @property
    def lateness(self) -> tuple[tuple[float, ...], ...]:
        """``lateness[step][i]`` of the i-th rank, for a detector of stragglers."""
        return tuple(step.lateness for step in self.steps)


def collective_times(
    events: Iterable[Event], schedule: Schedule, group: str, warmup_steps: int, name: str = ""
) -> CollectiveTimes:
    """The times of the collective that ``schedule`` carries out over ``group``, once a step.

    ``name`` tells it from others of its kind over the same group. Only steps in which all members ended it count, and
    of those not the first ``warmup_steps``. Raises ``AgentError`` if none is left, ``ConfigError`` if there are several
    such collectives in a step.
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
                    raise ConfigError(f"group {group} has several {schedule.kind} a step; say which", key="name")
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
    """Rank, step and operation: what the events of one operation share."""
    return e["rank"], e["step"], e["op"]


def _step_times(step: int, members: Sequence[Event], waits: dict[tuple[int, int, int], float]) -> StepTimes:
    ordered = sorted(members, key=lambda e: e["rank"])
    arrivals = tuple(min(e.get("posted", e.t), waits.get(_key(e), e.t)) for e in ordered)
    return StepTimes(step, tuple(e["rank"] for e in ordered), arrivals, tuple(e.end or e.t for e in ordered))
