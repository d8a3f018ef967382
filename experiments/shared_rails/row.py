"""Rows of jobs that shared rails: when each had which servers, its steps alone and shared, its circuits, its end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar, Literal

from experiments.job_row import JobRow
from experiments.racks.recovery import JobIncarnation
from measure.metrics.point import Point
from measure.metrics.quantiles import median
from measure.metrics.stall import Dark, read_darks
from railyard.scale import Scale
from railyard.timeline import Event

Outcome = Literal["done", "stranded"]


@dataclass(kw_only=True)
class SharedJobRow(JobRow):
    """One job. Times are real seconds; those of a moment count from the beginning of the run."""

    main: ClassVar[tuple[str, ...]] = ("step_time_s", "completion_s")
    given: ClassVar[frozenset[str]] = JobRow.given | {"arrival_s", "start_s", "end_s"}
    faults: ClassVar[frozenset[str]] = JobRow.faults | {"lost_steps"}
    outcomes: ClassVar[Mapping[str, str]] = {"outcome": "reason"}

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

    def take_steps(
        self, incarnations: Sequence[JobIncarnation], began: float, events: Sequence[Event], scale: Scale
    ) -> None:
        """Set times and steps from its incarnations, in order; ``began`` is the start of the run on their clock."""
        times = [each.step_times[step] for each in incarnations for step in each.warm_steps()]
        middle, real = median(times), scale.real_s
        self.step_time_s = None if middle is None else real(middle)
        self.warmup_steps = len(incarnations)
        self.restarts = len(incarnations) - 1
        done = [step for each in incarnations for step in each.steps.complete]
        self.steps = len(set(done))
        resumed = self.restarts == 0 or any(each.steps.complete for each in incarnations[1:])
        self.lost_steps = len(done) - self.steps if resumed else None
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
        self.reconfigurations = sum(dark.group in point.groups for dark in darks)
        in_vain = zip(darks, carried_nothing(darks, events), strict=True)
        self.in_vain = sum(vain for dark, vain in in_vain if dark.group in point.groups)


def carried_nothing(darks: Sequence[Dark], events: Iterable[Event]) -> list[bool]:
    """Of each of ``darks``, in order: whether its new circuits carried nothing of its group until they changed again.

    Nothing changed them again: then they may still be used, and do not count.
    """
    ends: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for e in events:
        if e.kind == "communicate":
            ends[e.get("group", "")].append((e.end or e.t, e.t))
    for moved in ends.values():
        moved.sort()
    changes: dict[tuple[str, int], list[float]] = defaultdict(list)
    for dark in sorted(darks, key=lambda dark: dark.t):
        for port in dark.ports:
            changes[dark.switch, port].append(dark.t)

    def in_vain(dark: Dark) -> bool:
        times = [(changes[dark.switch, port], bisect_left(changes[dark.switch, port], dark.end)) for port in dark.ports]
        until = min((of_port[at] for of_port, at in times if at < len(of_port)), default=-inf)
        moved = ends[dark.group]
        after = range(bisect_right(moved, (dark.end, inf)), len(moved))
        return until > -inf and not any(moved[at][1] < until for at in after)

    return [in_vain(dark) for dark in darks]
