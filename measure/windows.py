"""Windows: the gaps between two phases, in which a reconfiguration can hide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from measure.timeline import Event


@dataclass(frozen=True)
class Phase:
    """A run of operations of one dimension on one rank: ``t`` is when its first operation could run."""

    rank: int
    step: int
    phase: int
    dimension: str
    t: float
    end: float


@dataclass(frozen=True)
class Window:
    """The gap after a phase of dimension ``before`` until the first operation of ``after`` could run."""

    rank: int
    step: int
    before: str
    after: str
    seconds: float


def read_phases(events: Iterable[Event]) -> tuple[Phase, ...]:
    """The phases of all ranks, by rank and time.

    A phase begins when its first operation could run (so with its wait for the acknowledgement, which is what the
    phase needs and not part of the window before it) and ends with its last operation. Operations without a phase
    (scale-up, front-end) are not on the rails and do not count.
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
        Phase(
            *key,
            dimension[key],
            min(e.t for e in members),
            max(e.end or e.t for e in members if e.kind == "communicate"),
        )
        for key, members in found.items()
        if key in dimension
    ]
    return tuple(sorted(phases, key=lambda p: (p.rank, p.step, p.t)))


def windows(phases: Sequence[Phase], measured: Iterable[int]) -> tuple[Window, ...]:
    """The windows of the measured steps (wall-clock seconds); phases that overlap have a window of 0.

    Never across a step boundary, as in Opus: no request is made there in advance.
    """
    wanted = set(measured)
    found = []
    for one, other in pairwise(phases):
        same_step = (one.rank, one.step) == (other.rank, other.step)
        if same_step and one.step in wanted and one.dimension != other.dimension:
            found.append(Window(one.rank, one.step, one.dimension, other.dimension, max(0.0, other.t - one.end)))
    return tuple(found)
