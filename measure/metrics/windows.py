"""Windows: the gaps between two phases, in which a reconfiguration can hide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from railyard.timeline import Event


@dataclass(frozen=True)
class ObservedPhase:
    """Consecutive operations of one dimension on one rank; ``t`` is when the first of them could run."""

    rank: int
    step: int
    phase: int
    dimension: str
    t: float
    end: float


def read_phases(events: Iterable[Event]) -> tuple[ObservedPhase, ...]:
    """The phases of all ranks, sorted by rank and time.

    A phase begins when its first operation could run and ends with its last operation. So it includes the wait for its
    acknowledgement, which is not part of the window before it. Operations without a phase (scale-up, front-end) are not
    on the rails and do not count.
    """
    found: dict[tuple[int, int, int], list[Event]] = defaultdict(list)
    dimension: dict[tuple[int, int, int], str] = {}
    for e in events:
        if e.source != "agent" or e.end is None:
            continue
        phase = e.get("phase")
        if phase is None or phase == "" or (isinstance(phase, int) and phase < 0):
            continue
        key = (e["rank"], e["step"], phase)
        if e.kind == "communicate":
            dimension[key] = e["dimension"]
        if e.kind in ("communicate", "wait"):
            found[key].append(e)
    phases = [
        ObservedPhase(
            *key,
            dimension[key],
            min(e.t for e in members),
            max(e.end or e.t for e in members if e.kind == "communicate"),
        )
        for key, members in found.items()
        if key in dimension
    ]
    return tuple(sorted(phases, key=lambda p: (p.rank, p.step, p.t)))


Transition = tuple[str, str]
"""The dimensions of the phases before and after a window, such as ``("dp", "pp")``."""


def windows(phases: Sequence[ObservedPhase], measured: Iterable[int]) -> tuple[float, ...]:
    """The windows of the measured steps (wall-clock seconds): the gap after each phase until one of another dimension.

    Phases that overlap have a window of 0. There are no windows across step boundaries, as in Opus, since no request is
    made there in advance.
    """
    return tuple(window for _, window in windows_between(phases, measured))


def windows_between(phases: Sequence[ObservedPhase], measured: Iterable[int]) -> tuple[tuple[Transition, float], ...]:
    """The windows as ``windows`` has them, each with its transition."""
    wanted = set(measured)
    return tuple(
        ((one.dimension, other.dimension), max(0.0, other.t - one.end))
        for one, other in pairwise(phases)
        if (one.rank, one.step) == (other.rank, other.step) and one.step in wanted and one.dimension != other.dimension
    )


def critical_windows(
    phases: Sequence[ObservedPhase], last_rank: Mapping[int, int], measured: Iterable[int]
) -> tuple[float, ...]:
    """The window before each change of dimension in a step, on the step's ``last_rank`` (wall-clock seconds).

    Input of the stall law, with one reconfiguration per window. A change at the start of the step has a window of 0,
    since no request is made across a step boundary. The step is the last measured one; without a step before it, it is
    taken to follow one like itself. The result is empty if no step has phases.
    """
    for step in sorted(measured, reverse=True):
        rank = last_rank.get(step)
        here = [p for p in phases if p.rank == rank and p.step == step]
        before = [p for p in phases if p.rank == rank and p.step == step - 1]
        if here:
            first = (0.0,) if (before or here)[-1].dimension != here[0].dimension else ()
            return (*first, *windows(here, (step,)))
    return ()
