"""Waits of ranks before they may send, for dark circuits, slower members, the controller; and the stall law.

A ``wait`` of an agent (blocked on an acknowledgement) has three parts, told apart by the controller's events:

- **circuits**: overlaps a reconfiguration that sets up a circuit of the agent's group;
- **readiness**: before the last member's request: waiting for slower members, with or without an OCS;
- **control**: the rest: messages, ports held by traffic in flight, refused and repeated requests.

Where compute overlaps with communication a wait need not make the step longer: what a delay adds to a step is
``exposed``, and is told from steps alone (``hidden_s``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from measure.metrics.intervals import Interval, difference, overlap, total, union
from measure.metrics.point import Point
from measure.metrics.quantiles import median
from measure.metrics.steps import Steps
from railyard.timeline import Event


@dataclass(frozen=True)
class Dark:
    """One reconfiguration: ``ports`` of ``switch``, which belong to ``ranks``, are dark from ``t`` to ``end``.

    ``joined`` are the pairs of ranks that new circuits connect afterwards. A port that only loses its circuit (its peer
    gets another one) is in ``ports`` and in no pair.
    """

    t: float
    end: float
    switch: str
    ports: frozenset[int]
    ranks: frozenset[int]
    joined: frozenset[tuple[int, int]]
    group: str
    asked: float | None

    def connects(self, members: frozenset[int]) -> bool:
        return any(members.issuperset(pair) for pair in self.joined)

    @property
    def interval(self) -> Interval:
        return self.t, self.end


@dataclass(frozen=True)
class Stalls:
    """Waits per step in wall-clock seconds: the median over the measured steps.

    - ``circuits_s``: of the rank whose last operation on the rails ends last in the step, since the job waits as long
      as this rank (overlapping waits count once);
    - ``circuits_worst_s``: of the rank that waited longest for circuits; what exceeds ``circuits_s`` was slack;
    - ``readiness_s`` and ``control_s``: of the worst rank.
    """

    circuits_s: float
    circuits_worst_s: float
    readiness_s: float
    control_s: float


def read_darks(point: Point, events: Sequence[Event]) -> tuple[Dark, ...]:
    """The reconfigurations of a point in order of time, with the ranks whose ports went dark."""
    darks = []
    for e in events:
        if e.source != "controller" or e.kind != "reconfigure" or e.end is None:
            continue
        switch = point.switch(e["rail"])
        ports = frozenset(e["ports"])
        rank_of = {p.number: p.rank for p in switch.ports} if switch else {}
        ranks = frozenset(rank_of[p] for p in ports if p in rank_of)
        joined = frozenset((rank_of[a], rank_of[b]) for a, b in e["circuits"] if a in rank_of and b in rank_of)
        name = switch.name if switch else str(e["rail"])
        darks.append(Dark(e.t, e.end, name, ports, ranks, joined, e.get("group") or "", e.get("asked")))
    return tuple(sorted(darks, key=lambda d: d.t))


def reconfigurations_per_step(darks: Sequence[Dark], steps: Steps, measured: Sequence[int]) -> float:
    """Number of times per step that a rank gets new circuits: the mean over the measured steps, of the highest rank.

    This is Opus' count per stage: a phase change of the stage counts once, also if its ports lose circuits in between.
    """
    counts: dict[int, int] = defaultdict(int)
    wanted = set(measured)
    for dark in darks:
        for rank in {rank for pair in dark.joined for rank in pair}:
            if steps.at(rank, dark.t) in wanted:
                counts[rank] += 1
    return max(counts.values(), default=0) / len(measured) if measured else 0.0


def stalls(point: Point, events: Sequence[Event], darks: Sequence[Dark], measured: Sequence[int]) -> Stalls:
    waits = [CircuitWait.of(point, e) for e in events if e.source == "agent" and e.kind == "wait" and e.end is not None]
    waits += _between_slots(point, events, darks)
    parts: dict[str, _PerStep] = {name: defaultdict(lambda: defaultdict(list)) for name in _PARTS}
    near = _ByTime(darks)
    for wait in waits:
        touching = [d for d in near.overlapping(wait.t, wait.end) if d.connects(wait.members)]
        for name, intervals in zip(_PARTS, split_wait(wait, touching), strict=True):
            parts[name][wait.step][wait.rank] += intervals
    circuits = parts["circuits"]
    return Stalls(
        circuits_s=_of_rank(circuits, last_rank(point, events), measured),
        circuits_worst_s=_worst_rank(circuits, measured),
        readiness_s=_worst_rank(parts["readiness"], measured),
        control_s=_worst_rank(parts["control"], measured),
    )


_PARTS = ("circuits", "readiness", "control")
_PerStep = dict[int, dict[int, list[Interval]]]
"""Step -> rank -> intervals of that rank."""


@dataclass(frozen=True)
class CircuitWait:
    """A wait of ``rank`` for the acknowledgement of a group with ``members``."""

    t: float
    end: float
    rank: int
    step: int
    group: str
    members: frozenset[int]

    @staticmethod
    def of(point: Point, e: Event) -> CircuitWait:
        """The wait of an event ``agent wait``, or of another one with a group; an unknown group is the rank alone."""
        group = point.groups.get(e["group"])
        members = frozenset(group.members) if group else frozenset({e["rank"]})
        return CircuitWait(e.t, e.t if e.end is None else e.end, e["rank"], e["step"], e["group"], members)


def _between_slots(point: Point, events: Sequence[Event], darks: Sequence[Dark]) -> list[CircuitWait]:
    """The waits of ranks for their next slot in a rotation, which take no further request."""
    rotating = {e["group"] for e in events if e.source == "controller" and e.kind == "slot"}
    near = _ByTime([dark for dark in darks if dark.group in rotating])
    found = []
    for e in events:
        if e.source == "agent" and e.kind == "communicate" and e.end is not None and e["group"] in rotating:
            whole, began = CircuitWait.of(point, e), e.get("posted", e.t)
            found += [
                replace(whole, t=max(began, dark.t), end=min(whole.end, dark.end))
                for dark in near.overlapping(began, whole.end)
                if dark.group == whole.group
            ]
    return found


_T = TypeVar("_T", Dark, CircuitWait)


class _ByTime(Generic[_T]):
    """Index of intervals by time, which finds those that overlap another one."""

    def __init__(self, items: Iterable[_T]) -> None:
        self._items: list[_T] = list(items)
        self._starts = np.array([item.t for item in self._items])
        self._ends = np.array([item.end for item in self._items])

    def overlapping(self, t: float, end: float) -> list[_T]:
        return [self._items[place] for place in np.flatnonzero((self._starts < end) & (self._ends > t))]


def split_wait(wait: CircuitWait, touching: Sequence[Dark]) -> tuple[list[Interval], list[Interval], list[Interval]]:
    """The circuits, readiness and control parts of one wait, in the order of ``_PARTS``."""
    whole = [(wait.t, wait.end)]
    circuits = overlap(whole, union(d.interval for d in touching))
    rest = difference(whole, circuits)
    own = [d.asked for d in touching if d.group == wait.group and d.asked is not None]
    ready = min(max(own), wait.end) if own else wait.end
    before = union([(wait.t, ready)])
    return circuits, overlap(rest, before), difference(rest, before)


def last_rank(point: Point, events: Sequence[Event]) -> dict[int, int]:
    """Step -> rank whose last operation on the rails ends last; the highest such rank."""
    last: dict[int, tuple[float, int]] = {}
    for e in events:
        if e.source == "agent" and e.kind == "communicate" and e.end is not None:
            group = point.groups.get(e["group"])
            if group is not None and group.domain == "scale-out":
                last[e["step"]] = max(last.get(e["step"], (0.0, -1)), (e.end, e["rank"]))
    return {step: rank for step, (_, rank) in last.items()}


def _of_rank(per_step: _PerStep, rank_of_step: dict[int, int], measured: Sequence[int]) -> float:
    """Median over the measured steps of the time of the rank given for each step."""
    return median(total(union(per_step.get(s, {}).get(rank_of_step.get(s, -1), []))) for s in measured) or 0.0


def _worst_rank(per_step: _PerStep, measured: Sequence[int]) -> float:
    """Median over the measured steps of the longest time of any rank."""
    longest = (max((total(union(i)) for i in per_step.get(s, {}).values()), default=0.0) for s in measured)
    return median(longest) or 0.0


def stall_law(windows_s: Sequence[float], delay_s: float) -> float:
    """Exposed time of a step, in seconds: the sum over its reconfigurations of max(0, T_reconf - T_window).

    Source: Opus, arXiv 2507.08119, section 4.

    >>> stall_law([0.0, 0.1, 0.3], 0.2)
    0.30000000000000004
    """
    return sum(max(0.0, delay_s - window) for window in windows_s)


def hidden_s(changes: float, delay_s: float, exposed_s: float) -> float:
    """Delays of the ``changes`` reconfigurations of a step that it does not show, in seconds, at least 0.

    ``exposed_s``: what the delays add to the step, over its own time without them.
    """
    return max(0.0, changes * delay_s - exposed_s)
