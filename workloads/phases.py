"""Phases: the runs of operations of one parallelism dimension between which a rail is rewired.

Only operations that a rail carries (domain scale-out) make phases; TP inside a server and scalars on the front-end
never touch a circuit. Source: Opus, arXiv 2602.12521 (phases, windows, one configuration per phase).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from workloads.program import Compute, Dimension, Program


@dataclass(frozen=True)
class GroupUse:
    """A group inside a phase: ids of its first and last operation there."""

    group: str
    first: int
    last: int


@dataclass(frozen=True)
class Phase:
    """A maximal run of rail operations of one dimension, on one rank, in program order."""

    number: int
    dimension: Dimension
    operations: tuple[int, ...]
    uses: tuple[GroupUse, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups used, in order of first use."""
        return tuple(use.group for use in self.uses)

    @property
    def first(self) -> int:
        """Id of the first operation."""
        return self.operations[0]

    @property
    def last(self) -> int:
        """Id of the last operation in program order."""
        return self.operations[-1]


@dataclass(frozen=True)
class Window:
    """The compute time between the end of one phase and the need for the next, on one rank, without any waiting.

    ``phase`` is the number of the phase that comes after the window. The first phase of a step has no window: a
    request is never sent ahead across a step boundary.
    """

    rank: int
    phase: int
    dimension: Dimension
    seconds: float


def phases(program: Program, rank: int) -> tuple[Phase, ...]:
    """The phases of ``rank`` in one step."""
    runs: list[tuple[Dimension, list[int]]] = []
    for op in program.communications(rank):
        group = program.groups[op.group]
        if group.domain != "scale-out":
            continue
        if not runs or runs[-1][0] != group.dimension:
            runs.append((group.dimension, []))
        runs[-1][1].append(op.id)
    return tuple(_phase(program, rank, number, dimension, ids) for number, (dimension, ids) in enumerate(runs))


def _phase(program: Program, rank: int, number: int, dimension: Dimension, ids: list[int]) -> Phase:
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for id_ in ids:
        op = program.operations[rank][id_]
        if isinstance(op, Compute):
            continue
        first.setdefault(op.group, id_)
        last[op.group] = id_
    uses = tuple(GroupUse(group, id_, last[group]) for group, id_ in first.items())
    return Phase(number, dimension, tuple(ids), uses)


def phase_changes(program: Program, rank: int) -> int:
    """Changes of dimension per steady step of ``rank``, from the last phase to the first of the next step included."""
    found = phases(program, rank)
    return sum(1 for before, after in zip(found, (*found[1:], *found[:1]), strict=True) if _differ(before, after))


def _differ(before: Phase, after: Phase) -> bool:
    return before.dimension != after.dimension


def windows(program: Program, rank: int) -> tuple[Window, ...]:
    """The windows of ``rank`` in one step, were communication to take no time and nobody to wait for anybody."""
    ends = _compute_ends(program, rank)
    found = phases(program, rank)
    result = []
    for before, after in pairwise(found):
        finished = max(ends[id_] for id_ in before.operations)
        result.append(Window(rank, after.number, after.dimension, max(0.0, ends[after.first] - finished)))
    return tuple(result)


def _compute_ends(program: Program, rank: int) -> list[float]:
    """When each operation would end if communication took no time."""
    ends: list[float] = []
    compute_free = 0.0
    group_free: dict[str, float] = {}
    for op in program.operations[rank]:
        start = max((ends[d] for d in op.deps), default=0.0)
        if isinstance(op, Compute):
            compute_free = max(start, compute_free) + op.seconds
            ends.append(compute_free)
        else:
            group_free[op.group] = max(start, group_free.get(op.group, 0.0))
            ends.append(group_free[op.group])
    return ends
