"""Rows of jobs that shared rails: when each had which servers, its steps alone and shared, its circuits, its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from experiments.job_row import JobRow
from experiments.racks.recovery import JobIncarnation
from measure.metrics.point import Point
from measure.metrics.quantiles import median
from measure.metrics.stall import Dark, read_darks
from railyard.timeline import Event

Outcome = Literal["done", "stranded"]


@dataclass(kw_only=True)
class SharedJobRow(JobRow):
    """One job. Times are real seconds; those of a moment count from the beginning of the run."""

    main: ClassVar[tuple[str, ...]] = ("step_time_s", "completion_s")
    given: ClassVar[frozenset[str]] = JobRow.given | {"arrival_s", "start_s", "end_s"}
    faults: ClassVar[frozenset[str]] = JobRow.faults | {"lost_steps"}
    outcomes: ClassVar = {"outcome": "reason"}

    job: Annotated[str, "name of the job"] = ""
    workload: Annotated[str, "name of its workload"] = ""
    mode: Annotated[str, "mode of the run"] = ""
    alone: Annotated[bool, "whether it had the fabric to itself"] = False
    gpus: Annotated[int, "its GPUs"] = 0
    placement: Annotated[str, "placement that it asked for"] = ""
    servers: Annotated[str, "servers that it got at its start"] = ""
    reconfiguration_delay_ms: Annotated[float, "reconfiguration delay of the switches"] = 0.0
    arrival_s: Annotated[float, "its arrival"] = 0.0
    start_s: Annotated[float | None, "when it got its servers"] = None
    end_s: Annotated[float | None, "end of its last step"] = None
    queue_s: Annotated[float | None, "its wait for servers"] = None
    predicted_queue_s: Annotated[float | None, "the same of the model"] = None
    completion_s: Annotated[float | None, "from its arrival to the end of its last step"] = None
    predicted_completion_s: Annotated[float | None, "the same of the model"] = None
    predicted_start_s: Annotated[float | None, "start_s of the model"] = None
    predicted_end_s: Annotated[float | None, "end_s of the model"] = None
    alone_step_time_s: Annotated[float | None, "step time of the same workload with the fabric to itself"] = None
    circuit_wait_s: Annotated[float | None, "time of a step in which its last rank waited for circuits"] = None
    reconfigurations: Annotated[int | None, "changes of circuits that its groups asked for"] = None
    in_vain: Annotated[int | None, "of these, those whose new circuits carried nothing before they changed again"] = (
        None
    )
    freed_wall_s: Annotated[float | None, "from the end of its last step until its ports were free"] = None
    lost_steps: Annotated[int | None, "steps that all members had finished and repeated"] = None
    restarts: Annotated[int | None, "its incarnations after the first"] = None
    outcome: Annotated[Outcome | None, "whether it did all its steps, or was given up"] = None
    reason: Annotated[str, "why it was given up"] = ""

    def take_steps(self, incarnations: Sequence[JobIncarnation], began: float, events: Sequence[Event]) -> None:
        """Set times and steps from its incarnations, in order; ``began`` is the start of the run on their clock."""
        times = [each.step_times[step] for each in incarnations for step in each.warm_steps()]
        middle, real = median(times), self._real
        self.step_time_s = None if middle is None else real(middle)
        self.warmup_steps = len(incarnations)
        self.restarts = len(incarnations) - 1
        first_after = [each.steps.complete[0] for each in incarnations[1:] if each.steps.complete]
        done = [step for each in incarnations for step in each.steps.complete]
        self.steps = len(set(done))
        self.lost_steps = len(done) - len(set(done)) if first_after or not incarnations[1:] else None
        self.start_s = real(incarnations[0].t - began)
        self.queue_s = max(0.0, self.start_s - self.arrival_s)
        ends = [each.steps.job(step)[1] for each in incarnations for step in each.steps.complete]
        if self.outcome == "done" and ends:
            self.end_s = real(max(ends) - began)
            self.completion_s = self.end_s - self.arrival_s
            finished = [e.t for e in events if (e.source, e.kind, e.get("job")) == ("controller", "finished", self.job)]
            self.freed_wall_s = finished[0] - max(ends) if finished else None

    def take_circuits(self, point: Point, events: Sequence[Event]) -> None:
        """Set the numbers of its circuit changes in the whole run; ``point`` has its groups."""
        darks = read_darks(point, events)
        mine = [dark for dark in darks if dark.group in point.groups]
        self.reconfigurations = len(mine)
        self.in_vain = sum(carried_nothing(dark, darks, events) for dark in mine)

    def _real(self, wall_s: float) -> float:
        return wall_s / self.time_scale


def carried_nothing(dark: Dark, darks: Iterable[Dark], events: Iterable[Event]) -> bool:
    """Whether the circuits that were up at the end of ``dark`` carried nothing of its group until they changed again.

    Nothing changed them again: then they may still be used, and do not count.
    """
    until = min((each.t for each in darks if each.switch == dark.switch and each.t >= dark.end
                 and each.ports & dark.ports), default=None)  # fmt: skip
    return until is not None and not any(
        e.kind == "communicate" and e.get("group") == dark.group and e.t < until and (e.end or e.t) > dark.end
        for e in events
    )
