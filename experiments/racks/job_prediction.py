"""Predictions for each of several jobs on one fabric, read from the events of one simulation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from experiments.racks.incarnations import NEVER, JobIncarnation
from measure.metrics.critical import OperationKey
from measure.metrics.quantiles import median
from railyard.errors import ConfigError
from railyard.scale import Scale
from railyard.timeline import Event


@dataclass(frozen=True)
class JobPrediction:
    """Predicted times of one job.

    ``step_time_s`` (real seconds) is the median of the steps during which all other jobs work too, without the first
    one if there are more. ``first_step_s`` is the time of the first step in real seconds. ``operations_s`` are medians
    of communications in wall-clock seconds, from the last member's start to the last member's end.
    """

    first_step_s: float
    step_time_s: float
    operations_s: Mapping[OperationKey, float]


def predicted_jobs(
    events: Sequence[Event], jobs: Mapping[str, Sequence[int]], scale: Scale
) -> Mapping[str, JobPrediction]:
    """Predicted times of ``jobs`` (members by name), read from the events of a prediction (``Prediction.events``).

    ``ConfigError`` for a job without a step in the prediction.
    """
    incarnations = {name: _incarnation(name, tuple(members), events) for name, members in jobs.items()}
    for name, incarnation in incarnations.items():
        if not incarnation.steps.complete:
            raise ConfigError(f"job {name} does no step in this prediction; its members are not those of the program")
    until = min(
        (incarnation.steps.job(incarnation.steps.complete[-1])[1] for incarnation in incarnations.values()), default=0.0
    )
    return {name: _predicted(incarnation, until * (1 + 1e-9), scale) for name, incarnation in incarnations.items()}


def _incarnation(name: str, members: tuple[int, ...], events: Iterable[Event]) -> JobIncarnation:
    """The incarnation of a simulated job, launched at time 0."""
    mine = tuple(e for e in events if e.source == "agent" and e["rank"] in members)
    return JobIncarnation(name, 0, members, 0.0, NEVER, mine)


def _predicted(incarnation: JobIncarnation, until: float, scale: Scale) -> JobPrediction:
    times, first = incarnation.step_times, incarnation.steps.complete[0]
    steps = incarnation.warm_steps(end=until) or incarnation.steps.complete[1:] or incarnation.steps.complete
    typical = median(times[step] for step in steps) or 0.0
    return JobPrediction(scale.real_s(times[first]), scale.real_s(typical), _operations(incarnation, steps))


def _operations(incarnation: JobIncarnation, steps: Iterable[int]) -> dict[OperationKey, float]:
    together: dict[tuple[str, str, int], list[Event]] = defaultdict(list)
    wanted = set(steps)
    for e in incarnation.events:
        if e.kind == "communicate" and e["step"] in wanted:
            together[e["group"], e["name"], e["step"]].append(e)
    found: dict[OperationKey, list[float]] = defaultdict(list)
    for (group, name, _), members in together.items():
        began = max(e.get("posted", e.t) for e in members)
        found[group, name].append(max(e.end or e.t for e in members) - began)
    return {key: median(times) or 0.0 for key, times in found.items()}
