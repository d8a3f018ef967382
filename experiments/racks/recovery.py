"""The recovery of a job from a fault, part by part, and its neighbours: read from the events of a run.

The parts are intervals on one clock and follow each other without gaps::

    fault > failed > replaced > (replaced) end > launch > stages ... > first step begins > first step done
      detect  decide   rewire               restart                           first step
      |------------------------------------- outage -----------------------------------|

The outage ends when all members of a later incarnation have finished its first step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from experiments.racks.row import NEIGHBOUR, FailoverRow, StartupStage
from measure.metrics.point import Point
from measure.metrics.quantiles import median
from measure.metrics.steps import Steps
from measure.metrics.transfers import bandwidths, read_transfers
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.program import Group

NEVER = float("inf")
_ROUNDING_S = 1e-6


@dataclass(frozen=True)
class JobIncarnation:
    """One incarnation of a job, launched at ``t`` with ``members``; ``end`` is the job's next launch (or ``NEVER``).

    ``events`` are those of its agents in order of time. Times are wall-clock seconds.
    """

    job: str
    number: int
    members: tuple[int, ...]
    t: float
    end: float
    events: tuple[Event, ...]

    @cached_property
    def steps(self) -> Steps:
        """Steps of the incarnation; a step is complete when every member has finished it."""
        found = Steps.read(self.events)
        return found if set(found.of_rank) == set(self.members) else Steps(found.of_rank, ())

    @cached_property
    def step_times(self) -> Mapping[int, float]:
        """Duration of every complete step (``Steps.durations``), by its number."""
        return dict(zip(self.steps.complete, self.steps.durations(), strict=True))

    def steps_in(self, start: float = 0.0, end: float = NEVER) -> tuple[int, ...]:
        """The complete steps in [``start``, ``end``]; an interval that is a sum of seconds may begin with a step."""
        job = self.steps.job
        return tuple(s for s in self.steps.complete if start - _ROUNDING_S <= job(s)[0] and job(s)[1] <= end)

    def warm_steps(self, start: float = 0.0, end: float = NEVER) -> tuple[int, ...]:
        """The complete steps in [``start``, ``end``], without the first of the incarnation, which is a warm-up."""
        return tuple(step for step in self.steps_in(start, end) if step != self.steps.complete[0])


def read_incarnations(events: Iterable[Event], job: str | None = None) -> tuple[JobIncarnation, ...]:
    """Every incarnation of ``job`` (None: of every job), in order of launches (``run launch``).

    An event of an agent belongs to the incarnation for which its rank was launched last. Events before the first launch
    of a rank belong to none.
    """
    of_rank: dict[int, list[Event]] = defaultdict(list)
    launches: list[Event] = []
    for e in sorted(events, key=lambda e: e.t):
        if e.source == "agent":
            of_rank[e["rank"]].append(e)
        elif e.source == "run" and e.kind == "launch":
            launches.append(e)
    return tuple(
        _incarnation(launch, launches[number + 1 :], of_rank)
        for number, launch in enumerate(launches)
        if job in (None, launch["job"])
    )


def _incarnation(launch: Event, later: Sequence[Event], of_rank: Mapping[int, Sequence[Event]]) -> JobIncarnation:
    members = tuple(launch["members"])
    end = next((e.t for e in later if e["job"] == launch["job"]), NEVER)
    mine: list[Event] = []
    for rank in members:
        until = min(end, next((e.t for e in later if rank in e["members"]), NEVER))
        events = of_rank.get(rank, ())
        first, last = (bisect_left(events, t, key=lambda e: e.t) for t in (launch.t, until))
        mine += events[first:last]
    return JobIncarnation(
        launch["job"], launch["incarnation"], members, launch.t, end, tuple(sorted(mine, key=lambda e: e.t))
    )


def faults_of(events: Iterable[Event], job: str | None = None) -> list[Event]:
    """The deaths of chips (``run fault``) in order of time; only those of ``job`` if it is given.

    Faults of the controller (rank -1) are left out.
    """
    faults = [e for e in events if e.source == "run" and e.kind == "fault" and e["rank"] >= 0]
    found = [e for e in faults if job in (None, e.get("job"))]
    return sorted(found, key=lambda e: e.t)


def checksums_agree(
    incarnations: Iterable[JobIncarnation], expected: Mapping[int, object] | None = None
) -> bool | None:
    """Whether a job kept its state: the running checksum of each step is the same on all members and incarnations.

    A checkpoint of k steps must have the checksum of step k - 1. ``expected`` are the checksums of an undisturbed job
    by step, if known; they catch a wrong step that is never repeated. None if no checksum was recorded; False if a
    complete step has none, except for the last of an incarnation, which may have ended before it was recorded.
    """
    seen: dict[int, set[object]] = defaultdict(set)
    whole: set[int] = set()
    for incarnation in incarnations:
        whole.update(incarnation.steps.complete[:-1])
        for e in incarnation.events:
            if e.kind in ("state", "checkpoint") and e.get("checksum") is not None:
                seen[e["step"] - (e.kind == "checkpoint")].add(e["checksum"])
    if not seen:
        return None
    known = expected or {}
    return whole <= set(seen) and all(
        len(values) == 1 and (step not in known or known[step] in values) for step, values in seen.items()
    )


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
    event = f"kill {'+'.join(map(str, sorted(fault.get('ranks', [rank]))))}"
    row = FailoverRow(tenant=job, event=event, rank=rank, fault_t=fault.t, time_scale=scale.time)
    row.steps_done = _steps_done(incarnations)
    affected = next((incarnation for incarnation in reversed(incarnations) if incarnation.t <= fault.t), None)
    if affected is None or rank not in affected.members:
        row.state, row.event = "no member", f"{row.event} (spare)"
        return row
    _before(row, affected, faults_of(events, job), scale)
    ours = [e for e in events if e.source == "controller" and e.get("job") == job]
    dying = set(fault.get("ranks", [rank]))  # of a server the one that is noticed first decides
    failed = next((e for e in ours if e.kind == "failed" and e["rank"] in dying), None)
    answer = next((e for e in ours if e.kind in ("replaced", "stranded") and dying.intersection(e["dead"])), None)
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
    row.rounds_done = None if earlier else _rounds_done(incarnation, row.fault_t)
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


def _rounds_done(incarnation: JobIncarnation, t: float) -> int:
    """Rounds of the step under way at ``t`` whose data had come to a rank; a rank may be ahead by a step."""
    transfers = [e for e in incarnation.events if e.kind == "transfer" and e.end is not None and e.end <= t]
    under_way = max(incarnation.steps.complete, default=-1) + 1
    return len({e["round"] for e in transfers if e["step"] == under_way})


def _steps_done(incarnations: Iterable[JobIncarnation]) -> dict[int, int]:
    done: dict[int, int] = defaultdict(int)
    for incarnation in incarnations:
        for rank in incarnation.members:
            done[rank] += len(incarnation.steps.of_rank.get(rank, ()))
    return dict(done)


def all_reduce_busbw(incarnation: JobIncarnation, scale: Scale, end: float = NEVER) -> float | None:
    """Median busbw (``measure.metrics.transfers``) of the all-reduces in complete steps until ``end``, in GB/s.

    The first step of the incarnation is left out as a warm-up; None without all-reduces in the other steps, and where
    they are not of all members (a job in several groups).
    """
    events = [e for e in incarnation.events if e.kind == "communicate"]
    groups = {e["group"]: Group(e["group"], "world", incarnation.members) for e in events}
    if len(groups) > 1:
        return None
    point = Point(0, incarnation.job, _NOWHERE, groups, scale)
    moved = read_transfers(point, events, incarnation.warm_steps(end=end))
    found = bandwidths(point, moved).get("all_reduce")
    return None if found is None else found.busbw_gb_s


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
