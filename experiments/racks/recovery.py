"""The recovery of a job from a fault, part by part: from the chip's death to the end of the first step after it.

The parts are intervals on one clock and follow each other without gaps::

    fault > failed > replaced > (replaced) end > launch > stages ... > first step begins > first step done
      detect  decide   rewire               restart                           first step
      |------------------------------------- outage -----------------------------------|

The outage ends when all members of a later incarnation have finished its first step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from experiments.racks.incarnations import NEVER, JobIncarnation, faults_of, incarnations_of, read_incarnations
from measure.metrics.point import Point
from measure.metrics.quantiles import median
from measure.metrics.transfers import Bandwidth, bandwidths, read_transfers
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.program import Group

State = Literal["recovered", "stranded", "not detected", "not decided", "not resumed", "no member"]
"""Outcome of a fault: the job resumed; no spare was left; the controller did not detect the fault; it detected the
fault and made no decision; it named a replacement and the job did no step afterwards; the dead chip was a spare."""

_NOWHERE = FabricPlan("", 0, 0, 0, 9000, ())
_WORK = ("step", "compute", "communicate", "transfer", "wait")


@dataclass(frozen=True)
class Stage:
    """A start-up stage before the first step of an incarnation; ``seconds`` is the time of the slowest rank.

    The first rank begins the stage ``from_s`` after the fault, and all ranks have finished it ``until_s`` after the
    fault. ``given``: the duration was given and not measured. Times are in real seconds.
    """

    name: str
    seconds: float
    given: bool
    from_s: float
    until_s: float


@dataclass(frozen=True)
class Recovery:
    """The recovery from one fault of one job, in real seconds; ``fault_t`` is on the event clock.

    A value is None if the recovery did not reach that part. ``restart_s`` is from the circuits being up to the start of
    the first step on the first rank, ``launch_s`` the part of it until the survivors are stopped and new agents are
    launched. ``first_collective_s`` is from the start of the first step to the end of its first communication on all
    ranks. ``step_time_before_s`` is the median of complete steps of the incarnation before the fault,
    ``step_time_after_s`` of the next incarnation until the next fault, both without the incarnation's first step.

    ``lost_steps`` were finished by all members and had to be repeated; ``unfinished`` steps (0 or 1) were under way
    when the chip died. A fault of an incarnation that another fault had already ended loses no steps. ``steps_done``
    is the number of steps that each rank did for the job in the whole run.
    """

    job: str
    rank: int
    what: str
    state: State
    fault_t: float
    cause: str = ""
    reason: str = ""
    replacements: tuple[tuple[int, int], ...] = ()
    changed_ports: int | None = None
    detect_s: float | None = None
    decide_s: float | None = None
    rewire_s: float | None = None
    restart_s: float | None = None
    launch_s: float | None = None
    first_step_s: float | None = None
    first_collective_s: float | None = None
    outage_s: float | None = None
    stages: tuple[Stage, ...] = ()
    lost_steps: int | None = None
    unfinished: int = 0
    first_step: int | None = None
    incarnation: int | None = None
    step_time_before_s: float | None = None
    step_time_after_s: float | None = None
    bandwidth_before: Bandwidth | None = None
    bandwidth_after: Bandwidth | None = None
    steps_done: Mapping[int, int] = field(default_factory=dict)

    @property
    def checkpoint_s(self) -> float | None:
        """Time to copy the checkpoint on the slowest rank; None without a copy."""
        return next((stage.seconds for stage in self.stages if stage.name == "checkpoint"), None)

    @property
    def circuits_s(self) -> float | None:
        """Time from the fault until the circuits (or routes) to the spare are up."""
        parts = self.detect_s, self.decide_s, self.rewire_s
        return None if None in parts else sum(part for part in parts if part is not None)

    @property
    def breakdown(self) -> tuple[tuple[str, float], ...]:
        """The parts in order, by name; they add up to the outage, or to the time reached if the job did not resume.

        ``launch`` ends when the first stage begins, a stage counts from the end of the stage before it on all ranks,
        and ``start`` is the rest before the first step.
        """
        parts: list[tuple[str, float | None]] = [
            ("detect", self.detect_s),
            ("decide", self.decide_s),
            ("rewire", self.rewire_s),
        ]
        if self.restart_s is not None and self.launch_s is not None and self.circuits_s is not None:
            begun = self.circuits_s + self.restart_s
            forked = min([begun, *(stage.from_s for stage in self.stages)])
            reached = max(self.circuits_s + self.launch_s, forked)
            parts.append(("launch", reached - self.circuits_s))
            for stage in self.stages:
                until = min(max(reached, stage.until_s), begun)
                parts.append((stage.name, until - reached))
                reached = until
            parts += [("start", begun - reached), ("first step", self.first_step_s)]
        return tuple((name, seconds) for name, seconds in parts if seconds is not None)

    @property
    def marks(self) -> tuple[tuple[str, float], ...]:
        """The ends of the parts in seconds after the fault, by name."""
        found, reached = [], 0.0
        for name, seconds in self.breakdown:
            reached += seconds
            found.append((name, reached))
        return tuple(found)


def recoveries(events: Sequence[Event], scale: Scale, job: str | None = None) -> list[Recovery]:
    """The recovery from each fault (``run fault``) of ``job`` (None: of all jobs), in order of time.

    ``events`` are those of one run on one fabric: of the run, the controller and the agents of all jobs.
    """
    incarnations = read_incarnations(events)
    return [
        _recovery(fault, events, incarnations_of(incarnations, fault.get("job", "")), scale)
        for fault in faults_of(events, job)
    ]


def resumed(incarnations: Iterable[JobIncarnation], t: float) -> JobIncarnation | None:
    """The first incarnation of a job launched at ``t`` or later in which all members finished a step."""
    return next(
        (incarnation for incarnation in incarnations if incarnation.t >= t and incarnation.steps.complete), None
    )


def _recovery(fault: Event, events: Sequence[Event], incarnations: Sequence[JobIncarnation], scale: Scale) -> Recovery:
    rank, job = fault["rank"], fault.get("job", "")
    found: dict[str, Any] = {
        "job": job,
        "rank": rank,
        "what": fault.get("what", ""),
        "fault_t": fault.t,
        "steps_done": _steps_done(incarnations),
    }
    affected = next((incarnation for incarnation in reversed(incarnations) if incarnation.t <= fault.t), None)
    if affected is None or rank not in affected.members:
        return Recovery(state="no member", **found)
    found |= _before(affected, fault, faults_of(events, job), scale)
    ours = [e for e in events if e.source == "controller" and e.get("job") == job]
    failed = next((e for e in ours if e.kind == "failed" and e["rank"] == rank), None)
    answer = next((e for e in ours if e.kind in ("replaced", "stranded") and rank in e["dead"]), None)
    if failed is None and answer is None:
        return Recovery(state="not detected", **found)
    noticed = failed or answer
    assert noticed is not None
    found |= {"cause": noticed.get("cause", ""), "detect_s": scale.real_s(max(0.0, noticed.t - fault.t))}
    if answer is None:
        return Recovery(state="not decided", **found)
    found["decide_s"] = scale.real_s(max(0.0, answer.t - max(noticed.t, fault.t)))
    if answer.kind == "stranded":
        return Recovery(state="stranded", reason=answer.get("reason", ""), **found)
    up = max(fault.t, answer.t if answer.end is None else answer.end)
    found |= {
        "replacements": tuple((old, new) for old, new in answer["replacements"]),
        "changed_ports": _count(answer.get("ports")),
        "rewire_s": scale.real_s(up - max(answer.t, noticed.t, fault.t)),
    }
    incarnation = resumed(incarnations, answer.t)
    if incarnation is None:
        later = any(e.kind == "stranded" and e.t > answer.t for e in ours)
        return Recovery(state="not resumed", reason="after a later fault no spare was left" if later else "", **found)
    next_fault = next(
        (f.t for f in faults_of(events, job) if f.t > incarnation.t and f["rank"] in incarnation.members), NEVER
    )
    if found["lost_steps"] is None:
        found["lost_steps"] = sum(step >= incarnation.steps.complete[0] for step in affected.steps.complete)
    return Recovery(state="recovered", **found, **_after(incarnation, fault.t, up, next_fault, scale))


def _count(ports: Any) -> int | None:
    return len(ports) if isinstance(ports, (list, tuple)) else ports


def _before(incarnation: JobIncarnation, fault: Event, faults: Iterable[Event], scale: Scale) -> dict[str, Any]:
    """Columns of the incarnation that lost the chip, up to the fault, or to an earlier fault that ended it."""
    earlier = [f for f in faults if incarnation.t <= f.t < fault.t and f["rank"] in incarnation.members]
    until = min((f.t for f in earlier), default=fault.t)
    return {
        "step_time_before_s": _step_time(incarnation, until, scale),
        "bandwidth_before": all_reduce_bandwidth(incarnation, scale, end=until),
        "unfinished": 0 if earlier else _unfinished(incarnation, fault.t),
        "lost_steps": 0 if earlier else None,
    }


def _after(incarnation: JobIncarnation, fault_t: float, up: float, end: float, scale: Scale) -> dict[str, Any]:
    """Columns of the restart and the incarnation after it, in real seconds; arguments are on the event clock."""
    first = incarnation.steps.complete[0]
    begun, done = incarnation.steps.job(first)
    return {
        "incarnation": incarnation.number,
        "first_step": first,
        "launch_s": scale.real_s(max(0.0, min(incarnation.t, begun) - up)),
        "restart_s": scale.real_s(begun - up),
        "first_step_s": scale.real_s(done - begun),
        "outage_s": scale.real_s(done - fault_t),
        "stages": read_stages(incarnation.events, fault_t, scale),
        "first_collective_s": _first_collective(incarnation, first, begun, scale),
        "step_time_after_s": _step_time(incarnation, end, scale),
        "bandwidth_after": all_reduce_bandwidth(incarnation, scale, end=end),
    }


def read_stages(events: Iterable[Event], zero: float, scale: Scale) -> tuple[Stage, ...]:
    """The start-up stages of an incarnation, in the order of their ends on all ranks; times count from ``zero``.

    Starts have another order: ranks that have the checkpoint begin the next stage while a spare still copies it.
    """
    by_name: dict[str, list[Event]] = defaultdict(list)
    for e in sorted(events, key=lambda e: e.t):
        if e.source == "agent" and e.kind == "stage" and e.end is not None:
            by_name[e["name"]].append(e)
    stages = (
        Stage(
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


def all_reduce_bandwidth(
    incarnation: JobIncarnation, scale: Scale, start: float = 0.0, end: float = NEVER
) -> Bandwidth | None:
    """Median algbw and busbw (``measure.metrics.transfers``) of all-reduces in the complete steps of [start, end].

    The first step of the incarnation is left out as a warm-up; None without all-reduces in the other steps.
    """
    events = [e for e in incarnation.events if e.kind == "communicate"]
    members: dict[str, set[int]] = defaultdict(set)
    for e in events:
        members[e["group"]].add(e["rank"])
    groups = {name: Group(name, "world", tuple(sorted(ranks))) for name, ranks in members.items()}
    point = Point(0, incarnation.job, _NOWHERE, groups, scale)
    moved = read_transfers(point, events, incarnation.warm_steps(start, end))
    return bandwidths(point, moved).get("all_reduce")
