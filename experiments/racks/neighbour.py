"""What the fault of one job does to another job on the same fabric: its step time before, during and afterwards."""

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
    """Median times of the neighbour's whole steps (real seconds; None where it did none), and how many there were.

    ``before``: over before the fault, while both jobs worked, without the first step of the neighbour's life.
    ``during``: begun and ended between the fault and the restarted job's first step. ``after``: begun since that, and
    ended before the job did its last step (or its next fault); what the replacement costs the neighbour shows here,
    since until then nobody uses the new circuits or routes. A stranded job has no ``after``.
    """

    job: str
    neighbour: str
    before_s: float | None
    during_s: float | None
    after_s: float | None
    steps: tuple[int, int, int]

    @property
    def change(self) -> float | None:
        """How much longer a step takes afterwards (0.03: 3 %); None where one of the two is not known."""
        return None if not self.before_s or self.after_s is None else self.after_s / self.before_s - 1


def neighbour_effect(events: Sequence[Event], scale: Scale, recovery: Recovery, neighbour: str) -> NeighbourEffect:
    """The effect of one fault, whose recovery is ``recovery``, on the job ``neighbour``."""
    incarnations = read_incarnations(events)
    job, others = incarnations_of(incarnations, recovery.job), incarnations_of(incarnations, neighbour)
    struck = next((incarnation for incarnation in reversed(job) if incarnation.t <= recovery.fault_t), None)
    later = resumed(job, recovery.fault_t) if recovery.incarnation is not None else None
    began = _first_begin(struck)
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
    """When the first rank began the first step of a life."""
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
