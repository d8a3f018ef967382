"""The recovery of a job from a fault, part by part: from the chip's death to the end of the first step after it.

The parts are intervals on one clock and follow each other without gaps::

    fault > failed > replaced > (replaced) end > launch > stages ... > first step begins > first step done
      detect  decide   rewire               restart                           first step
      |------------------------------------- outage -----------------------------------|

The outage ends when all members of a later incarnation have finished its first step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from experiments.racks.incarnations import NEVER, JobIncarnation, faults_of, read_incarnations
from experiments.racks.row import FailoverRow, StartupStage
from measure.metrics.point import Point
from measure.metrics.quantiles import median
from measure.metrics.transfers import bandwidths, read_transfers
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.program import Group

_NOWHERE = FabricPlan("", 0, 0, 0, 9000, ())
_WORK = ("step", "compute", "communicate", "transfer", "wait")


def recoveries(events: Sequence[Event], scale: Scale, job: str | None = None) -> list[FailoverRow]:
    """The recovery from each fault (``run fault``) of ``job`` (None: of all jobs), in order of time.

    ``events`` are those of one run on one fabric: of the run, the controller and the agents of all jobs. Fields of the
    fabric, the model and the verdict are not set.
    """
    faults = faults_of(events, job)
    incarnations = {name: read_incarnations(events, name) for name in {fault.get("job", "") for fault in faults}}
    found = [_recovery(fault, events, incarnations[fault.get("job", "")], scale) for fault in faults]
    for row in found:
        row.breakdown = _breakdown(row)
    return found


def _breakdown(row: FailoverRow) -> tuple[tuple[str, float], ...]:
    """The parts in order, by name; they add up to the outage, or to the time reached if the job did not resume.

    ``launch`` ends when the first stage begins, a stage counts from the end of the stage before it on all ranks, and
    ``start`` is the rest before the first step.
    """
    parts = [("detect", row.detect_s), ("decide", row.decide_s), ("rewire", row.rewire_s)]
    if row.restart_s is not None and row.launch_s is not None and row.circuits_s is not None:
        begun = row.circuits_s + row.restart_s
        forked = min([begun, *(stage.from_s for stage in row.stages)])
        reached = max(row.circuits_s + row.launch_s, forked)
        parts.append(("launch", reached - row.circuits_s))
        for stage in row.stages:
            until = min(max(reached, stage.until_s), begun)
            parts.append((stage.name, until - reached))
            reached = until
        parts += [("start", begun - reached), ("first step", row.first_step_s)]
    return tuple((name, seconds) for name, seconds in parts if seconds is not None)


def _recovery(
    fault: Event, events: Sequence[Event], incarnations: Sequence[JobIncarnation], scale: Scale
) -> FailoverRow:
    rank, job = fault["rank"], fault.get("job", "")
    row = FailoverRow(tenant=job, event=f"kill {rank}", rank=rank, fault_t=fault.t, time_scale=scale.time)
    row.steps_done = _steps_done(incarnations)
    affected = next((incarnation for incarnation in reversed(incarnations) if incarnation.t <= fault.t), None)
    if affected is None or rank not in affected.members:
        row.state, row.event = "no member", f"{row.event} (spare)"
        return row
    _before(row, affected, faults_of(events, job), scale)
    ours = [e for e in events if e.source == "controller" and e.get("job") == job]
    failed = next((e for e in ours if e.kind == "failed" and e["rank"] == rank), None)
    answer = next((e for e in ours if e.kind in ("replaced", "stranded") and rank in e["dead"]), None)
    noticed = failed or answer
    if noticed is None:
        row.state = "not detected"
        return row
    row.cause, row.detect_s = noticed.get("cause", ""), scale.real_s(max(0.0, noticed.t - fault.t))
    if answer is None:
        row.state = "not decided"
        return row
    row.decide_s = scale.real_s(max(0.0, answer.t - max(noticed.t, fault.t)))
    if answer.kind == "stranded":
        row.state, row.reason = "stranded", answer.get("reason", "")
        return row
    up = max(fault.t, answer.t if answer.end is None else answer.end)
    row.replaced_by = dict(answer["replacements"]).get(rank)
    row.changed_ports = len(answer.get("ports", ()))
    row.rewire_s = scale.real_s(up - max(answer.t, noticed.t, fault.t))
    row.circuits_s = row.detect_s + row.decide_s + row.rewire_s
    resumed = next((i for i in incarnations if i.t >= answer.t and i.steps.complete), None)
    if resumed is None:
        later = any(e.kind == "stranded" and e.t > answer.t for e in ours)
        row.state, row.reason = "not resumed", "after a later fault no spare was left" if later else ""
        return row
    row.state = "recovered"
    if row.lost_steps is None:
        row.lost_steps = sum(step >= resumed.steps.complete[0] for step in affected.steps.complete)
    next_fault = next((f.t for f in faults_of(events, job) if f.t > resumed.t and f["rank"] in resumed.members), NEVER)
    _after(row, resumed, up, next_fault, scale)
    return row


def _before(row: FailoverRow, incarnation: JobIncarnation, faults: Iterable[Event], scale: Scale) -> None:
    """Set the fields of the incarnation that lost the chip, up to the fault, or to an earlier fault that ended it."""
    assert row.fault_t is not None
    earlier = [f for f in faults if incarnation.t <= f.t < row.fault_t and f["rank"] in incarnation.members]
    until = min((f.t for f in earlier), default=row.fault_t)
    row.step_time_before_s = _step_time(incarnation, until, scale)
    row.busbw_before_gb_s = all_reduce_busbw(incarnation, scale, end=until)
    row.unfinished_steps = 0 if earlier else _unfinished(incarnation, row.fault_t)
    row.lost_steps = 0 if earlier else None


def _after(row: FailoverRow, incarnation: JobIncarnation, up: float, end: float, scale: Scale) -> None:
    """Set the fields of the restart and of the incarnation after it; ``up`` and ``end`` are on the event clock."""
    assert row.fault_t is not None
    first = incarnation.steps.complete[0]
    begun, done = incarnation.steps.job(first)
    row.incarnation, row.first_step = incarnation.number, first
    row.launch_s = scale.real_s(max(0.0, min(incarnation.t, begun) - up))
    row.restart_s = scale.real_s(begun - up)
    row.first_step_s = scale.real_s(done - begun)
    row.outage_s = scale.real_s(done - row.fault_t)
    row.stages = _stages(incarnation.events, row.fault_t, scale)
    row.checkpoint_s = next((stage.seconds for stage in row.stages if stage.name == "checkpoint"), None)
    row.first_collective_s = _first_collective(incarnation, first, begun, scale)
    row.step_time_after_s = _step_time(incarnation, end, scale)
    row.busbw_after_gb_s = all_reduce_busbw(incarnation, scale, end=end)


def _stages(events: Iterable[Event], zero: float, scale: Scale) -> tuple[StartupStage, ...]:
    """The start-up stages of an incarnation, in the order of their ends on all ranks; times count from ``zero``.

    Starts have another order: ranks that have the checkpoint begin the next stage while a spare still copies it.
    """
    by_name: dict[str, list[Event]] = defaultdict(list)
    for e in sorted(events, key=lambda e: e.t):
        if e.source == "agent" and e.kind == "stage" and e.end is not None:
            by_name[e["name"]].append(e)
    stages = (
        StartupStage(
            name,
            scale.real_s(max(e.seconds for e in found)),
            any(e.get("given") for e in found),
            scale.real_s(found[0].t - zero),
            scale.real_s(max(e.end or e.t for e in found) - zero),
        )
        for name, found in by_name.items()
    )
    return tuple(sorted(stages, key=lambda stage: stage.until_s))


def _first_collective(incarnation: JobIncarnation, step: int, begun: float, scale: Scale) -> float | None:
    """Seconds from the start of the step to the end of its first communication on all ranks that have one."""
    ends: dict[int, float] = {}
    for e in incarnation.events:
        if e.kind == "communicate" and e["step"] == step and e.end is not None:
            ends.setdefault(e["rank"], e.end)
    return scale.real_s(max(ends.values()) - begun) if ends else None


def _step_time(incarnation: JobIncarnation, end: float, scale: Scale) -> float | None:
    found = median(incarnation.step_times[step] for step in incarnation.warm_steps(end=end))
    return None if found is None else scale.real_s(found)


def _unfinished(incarnation: JobIncarnation, t: float) -> int:
    """1 if a step was under way at ``t``: a rank had begun the step, or had finished the step before it; else 0."""
    last = max(incarnation.steps.complete, default=-1)
    if any(e.kind in _WORK and e.get("step", -1) > last and e.t <= t for e in incarnation.events):
        return 1
    return int(last >= 0 and any(last in steps and steps[last][1] <= t for steps in incarnation.steps.of_rank.values()))


def _steps_done(incarnations: Iterable[JobIncarnation]) -> dict[int, int]:
    done: dict[int, int] = defaultdict(int)
    for incarnation in incarnations:
        for rank in incarnation.members:
            done[rank] += len(incarnation.steps.of_rank.get(rank, ()))
    return dict(done)


def all_reduce_busbw(incarnation: JobIncarnation, scale: Scale, end: float = NEVER) -> float | None:
    """Median busbw (``measure.metrics.transfers``) of the all-reduces in complete steps until ``end``, in GB/s.

    The first step of the incarnation is left out as a warm-up; None without all-reduces in the other steps.
    """
    events = [e for e in incarnation.events if e.kind == "communicate"]
    groups = {e["group"]: Group(e["group"], "world", incarnation.members) for e in events}
    point = Point(0, incarnation.job, _NOWHERE, groups, scale)
    moved = read_transfers(point, events, incarnation.warm_steps(end=end))
    found = bandwidths(point, moved).get("all_reduce")
    return None if found is None else found.busbw_gb_s
