"""Effect of a fault of one job on another job on the same fabric: step time before, during and after the recovery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.racks.incarnations import NEVER, JobIncarnation, incarnations_of, read_incarnations
from experiments.racks.recovery import Recovery, resumed
from measure.metrics.quantiles import median
from railyard.scale import Scale
from railyard.timeline import Event


@dataclass(frozen=True)
class NeighbourEffect:
    """Median times of the neighbour's complete steps (real seconds; None without such steps), and their numbers.

    ``before``: steps that ended before the fault, while both jobs worked, without the first of an incarnation.
    ``during``: steps between the fault and the first step of the restarted job. ``after``: steps between that and the
    last step of the job's incarnation; they show the cost of the replacement for the neighbour, since the new circuits
    or routes are unused before. There is no ``after`` for a stranded job.
    """

    job: str
    neighbour: str
    before_s: float | None
    during_s: float | None
    after_s: float | None
    steps: tuple[int, int, int]

    @property
    def change(self) -> float | None:
        """Relative change of the step time from before to after (0.03: 3 % longer); None if either is unknown."""
        return None if not self.before_s or self.after_s is None else self.after_s / self.before_s - 1


def neighbour_effect(events: Sequence[Event], scale: Scale, recovery: Recovery, neighbour: str) -> NeighbourEffect:
    """The effect of one fault, whose recovery is ``recovery``, on the job ``neighbour``."""
    incarnations = read_incarnations(events)
    job, others = incarnations_of(incarnations, recovery.job), incarnations_of(incarnations, neighbour)
    affected = next((incarnation for incarnation in reversed(job) if incarnation.t <= recovery.fault_t), None)
    later = resumed(job, recovery.fault_t) if recovery.incarnation is not None else None
    began = _first_begin(affected)
    before = _times(others, began, recovery.fault_t)
    again = _first_begin(later) if later is not None else NEVER
    during = _times(others, recovery.fault_t, again)
    after = _times(others, again, _last_end(later)) if later is not None else ()
    return NeighbourEffect(
        job=recovery.job,
        neighbour=neighbour,
        before_s=_real(median(before), scale),
        during_s=_real(median(during), scale),
        after_s=_real(median(after), scale),
        steps=(len(before), len(during), len(after)),
    )


def _first_begin(incarnation: JobIncarnation | None) -> float:
    """Start of the first step of an incarnation on its first rank (event clock)."""
    return (
        min((t for steps in incarnation.steps.of_rank.values() for t, _ in steps.values()), default=0.0)
        if incarnation
        else 0.0
    )


def _last_end(incarnation: JobIncarnation) -> float:
    return max((end for steps in incarnation.steps.of_rank.values() for _, end in steps.values()), default=0.0)


def _times(incarnations: Sequence[JobIncarnation], start: float, end: float) -> tuple[float, ...]:
    return tuple(
        incarnation.step_times[step] for incarnation in incarnations for step in incarnation.warm_steps(start, end)
    )


def _real(wall_s: float | None, scale: Scale) -> float | None:
    return None if wall_s is None else scale.real_s(wall_s)
