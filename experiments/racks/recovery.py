"""What a fault cost a job: from the chip's death to the first step that the job has done again, part by part.

Every part is a stretch of one clock, and they follow each other without a gap::

    fault > failed > replaced > (replaced) end > launch > stages ... > first step begins > first step done
      detect  decide   rewire               restart                           first step
      |------------------------------------- outage -----------------------------------|

The outage ends when all members of a later life have done its first step: then the job has gone on.
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
"""How a fault ended: the job went on; nobody was left to stand in; the controller never noticed; it noticed and named
nobody; it named somebody and the job did no step afterwards; the dead chip worked for no job (a spare)."""

_NOWHERE = FabricPlan("", 0, 0, 0, 9000, ())
_WORK = ("step", "compute", "communicate", "transfer", "wait")


@dataclass(frozen=True)
class Stage:
    """What ranks do before the first step of a life: ``seconds`` of the rank that took longest.

    The first rank begins it ``from_s`` after the fault, and it is over on all ranks ``until_s`` after it.
    ``given``: its duration was given and not lived.
    """

    name: str
    seconds: float
    given: bool
    from_s: float
    until_s: float


@dataclass(frozen=True)
class Recovery:
    """One fault of one job. Real seconds; ``fault_t`` is on the clock of the events. None: it did not come to that.

    ``restart_s`` is from the circuits' light to the start of the first step (the first rank's), ``launch_s`` the part
    until the survivors are stopped and new agents are asked for. ``first_collective_s`` is from the start of the first
    step until its first communication is over on all ranks. ``step_time_before_s`` is the median of the life's whole
    steps before the fault, ``step_time_after_s`` of the next life's until the next fault, both without the first step
    of the life.
    ``lost_steps`` were done by all members and had to be done again; ``unfinished`` steps (0 or 1) were under way when
    the chip died. A fault that strikes a life that another fault ended already has lost none. ``steps_done`` counts for
    each rank what it did for the job in the whole run.
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
        """How long the checkpoint took to come, on the rank that waited longest; None if none was fetched."""
        return next((stage.seconds for stage in self.stages if stage.name == "checkpoint"), None)

    @property
    def circuits_s(self) -> float | None:
        """From the fault until the circuits (or routes) to the spare stand."""
        parts = self.detect_s, self.decide_s, self.rewire_s
        return None if None in parts else sum(part for part in parts if part is not None)

    @property
    def breakdown(self) -> tuple[tuple[str, float], ...]:
        """The parts in order, by name; they add up to the outage (of a job that did not go on: to what was reached).

        ``launch`` is until the first stage begins, a stage counts from when the one before it was over on all ranks,
        and ``start`` is what is left before the first step.
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
        """When what was reached, in seconds after the fault: the ends of the parts."""
        found, reached = [], 0.0
        for name, seconds in self.breakdown:
            reached += seconds
            found.append((name, reached))
        return tuple(found)


def recoveries(events: Sequence[Event], scale: Scale, job: str | None = None) -> list[Recovery]:
    """What became of each fault (``run fault``) of ``job`` (None: of all jobs), in order of time.

    ``events`` are those of one run on one fabric: of the run, the controller and the agents of all jobs.
    """
    incarnations = read_incarnations(events)
    return [
        _recovery(fault, events, incarnations_of(incarnations, fault.get("job", "")), scale)
        for fault in faults_of(events, job)
    ]


def resumed(incarnations: Iterable[JobIncarnation], t: float) -> JobIncarnation | None:
    """The first of a job's lives launched at ``t`` or later in which all members did a step."""
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
    struck = next((incarnation for incarnation in reversed(incarnations) if incarnation.t <= fault.t), None)
    if struck is None or rank not in struck.members:
        return Recovery(state="no member", **found)
    found |= _before(struck, fault, faults_of(events, job), scale)
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
    lit = max(fault.t, answer.t if answer.end is None else answer.end)
    found |= {
        "replacements": tuple((old, new) for old, new in answer["replacements"]),
        "changed_ports": _count(answer.get("ports")),
        "rewire_s": scale.real_s(lit - max(answer.t, noticed.t, fault.t)),
    }
    incarnation = resumed(incarnations, answer.t)
    if incarnation is None:
        later = any(e.kind == "stranded" and e.t > answer.t for e in ours)
        return Recovery(state="not resumed", reason="a later fault left nobody to stand in" if later else "", **found)
    next_fault = next(
        (f.t for f in faults_of(events, job) if f.t > incarnation.t and f["rank"] in incarnation.members), NEVER
    )
    if found["lost_steps"] is None:
        found["lost_steps"] = sum(step >= incarnation.steps.complete[0] for step in struck.steps.complete)
    return Recovery(state="recovered", **found, **_after(incarnation, fault.t, lit, next_fault, scale))


def _count(ports: Any) -> int | None:
    return len(ports) if isinstance(ports, (list, tuple)) else ports


def _before(incarnation: JobIncarnation, fault: Event, faults: Iterable[Event], scale: Scale) -> dict[str, Any]:
    """The life that was struck, up to the fault; all of it if an earlier fault had ended it already."""
    earlier = [f for f in faults if incarnation.t <= f.t < fault.t and f["rank"] in incarnation.members]
    until = min((f.t for f in earlier), default=fault.t)
    return {
        "step_time_before_s": _step_time(incarnation, until, scale),
        "bandwidth_before": all_reduce_bandwidth(incarnation, scale, end=until),
        "unfinished": 0 if earlier else _unfinished(incarnation, fault.t),
        "lost_steps": 0 if earlier else None,
    }


def _after(incarnation: JobIncarnation, fault_t: float, lit: float, end: float, scale: Scale) -> dict[str, Any]:
    """The restart and the life that came of it; times of one clock, results in real seconds."""
    first = incarnation.steps.complete[0]
    begun, done = incarnation.steps.job(first)
    return {
        "incarnation": incarnation.number,
        "first_step": first,
        "launch_s": scale.real_s(max(0.0, min(incarnation.t, begun) - lit)),
        "restart_s": scale.real_s(begun - lit),
        "first_step_s": scale.real_s(done - begun),
        "outage_s": scale.real_s(done - fault_t),
        "stages": read_stages(incarnation.events, fault_t, scale),
        "first_collective_s": _first_collective(incarnation, first, begun, scale),
        "step_time_after_s": _step_time(incarnation, end, scale),
        "bandwidth_after": all_reduce_bandwidth(incarnation, scale, end=end),
    }


def read_stages(events: Iterable[Event], zero: float, scale: Scale) -> tuple[Stage, ...]:
    """The stages of a life in the order in which they were over on all ranks; ``zero`` is the moment they count from.

    Not in that of their beginnings: ranks that have the checkpoint begin with the next stage while a spare fetches it.
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
    """From the start of the step until its first communication is over on all ranks that have one."""
    ends: dict[int, float] = {}
    for e in incarnation.events:
        if e.kind == "communicate" and e["step"] == step and e.end is not None:
            ends.setdefault(e["rank"], e.end)
    return scale.real_s(max(ends.values()) - begun) if ends else None


def _step_time(incarnation: JobIncarnation, end: float, scale: Scale) -> float | None:
    found = median(incarnation.step_times[step] for step in incarnation.warm_steps(end=end))
    return None if found is None else scale.real_s(found)


def _unfinished(incarnation: JobIncarnation, t: float) -> int:
    """1 if a step was under way at ``t``: some rank had begun with it, or was done with the one before it."""
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
    """Median algbw and busbw (``measure.metrics.transfers``) of the all-reduces in the whole steps of [start, end].

    As everywhere the first step of the life is left out; None if no all-reduce is left.
    """
    events = [e for e in incarnation.events if e.kind == "communicate"]
    members: dict[str, set[int]] = defaultdict(set)
    for e in events:
        members[e["group"]].add(e["rank"])
    groups = {name: Group(name, "world", tuple(sorted(ranks))) for name, ranks in members.items()}
    point = Point(0, incarnation.job, _NOWHERE, groups, scale)
    moved = read_transfers(point, events, incarnation.warm_steps(start, end))
    return bandwidths(point, moved).get("all_reduce")
