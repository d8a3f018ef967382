"""Effect of a fault of one job on another job on the same fabric: step time before, during and after the recovery."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.racks.incarnations import NEVER, JobIncarnation, read_incarnations
from experiments.racks.row import NEIGHBOUR, FailoverRow
from measure.metrics.quantiles import median
from railyard.scale import Scale
from railyard.timeline import Event


def neighbour_row(events: Sequence[Event], scale: Scale, recovery: FailoverRow, neighbour: str) -> FailoverRow:
    """The row of job ``neighbour`` around one fault of another job; None for times without complete steps.

    ``before``: steps that ended before the fault, while both jobs worked, without the first of an incarnation.
    ``during``: steps between the fault and the first step of the restarted job. ``after``: steps between that and the
    last step of the job's incarnation; they show the cost of the replacement for the neighbour, since the new circuits
    or routes are unused before. There is no ``after`` for a stranded job.
    """
    others = read_incarnations(events, neighbour)

    def steps(start: float, end: float) -> tuple[int, float | None]:
        times = [i.step_times[step] for i in others for step in i.warm_steps(start, end)]
        middle = median(times)
        return len(times), None if middle is None else scale.real_s(middle)

    job, fault_t = read_incarnations(events, recovery.tenant), recovery.fault_t or 0.0
    affected = next((i for i in reversed(job) if i.t <= fault_t), None)
    later = next((i for i in job if i.number == recovery.incarnation), None)
    row = FailoverRow(tenant=neighbour, event=NEIGHBOUR)
    began = min((start for start, _ in _steps_of(affected)), default=0.0)
    ended = max((end for _, end in _steps_of(later)), default=0.0)
    row.steps_before, row.step_time_before_s = steps(began, fault_t)
    row.steps_during, row.step_time_during_s = steps(fault_t, recovery.restart_t if later else NEVER)
    row.steps_after, row.step_time_after_s = steps(recovery.restart_t, ended) if later else (0, None)
    if row.step_time_before_s and row.step_time_after_s is not None:
        row.change = row.step_time_after_s / row.step_time_before_s - 1
    return row


def _steps_of(incarnation: JobIncarnation | None) -> list[tuple[float, float]]:
    """(start, end) of every step of every rank, on the event clock."""
    return [step for steps in incarnation.steps.of_rank.values() for step in steps.values()] if incarnation else []
