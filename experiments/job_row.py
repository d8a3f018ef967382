"""The row of a job on a fabric: what the rows of all experiments with steps have."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from measure.results.row import MeasuredRow

if TYPE_CHECKING:
    from experiments.runner import Measured


@dataclass(kw_only=True)
class JobRow(MeasuredRow):
    """A row about the steps of one job."""

    steps: Annotated[int, "steps that all ranks finished"] = 0
    warmup_steps: Annotated[int, "first steps that no other number counts"] = 0
    step_time_s: Annotated[float | None, "step time, median"] = None
    predicted_step_time_s: Annotated[float | None, "step time of the model"] = None
    packets_lost: Annotated[int | None, "packets dropped by queues and switches"] = None
    retransmissions: Annotated[int | None, "TCP segments sent again"] = None

    def take(self, found: Measured) -> None:
        """Set the fields of a measured point that have the same name in ``PointMetrics``, of delivery and verdict."""
        for each in fields(self):
            if hasattr(found.metrics, each.name):
                setattr(self, each.name, getattr(found.metrics, each.name))
        self.point = found.point.number
        self.count(found.delivered)
        self.judge(found.verdict)
