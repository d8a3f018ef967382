"""Phases: the runs of operations of one parallelism dimension between which a rail is reconfigured.

Only operations that a rail carries (domain scale-out) make phases; TP inside a server and scalars on the front-end
never use a circuit.
Source: Opus, arXiv 2602.12521 (phases, windows, one configuration per phase).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise

from workloads.program import Communication, Compute, Dimension, Program, Recv, Send

MessageName = tuple[str, str, int]
"""(group, stream in the group, number in the stream): one send with its receive, or one collective."""

Use = tuple[MessageName, int, int]
"""A message on one rank: its name, its phase, and its position among the rail operations of the rank."""


@dataclass(frozen=True)
class GroupUse:
    """Use of a group inside a phase: ids of its first and last operation there."""

    group: str
    first: int
    last: int


@dataclass(frozen=True)
class Phase:
    """A run of rail operations of one dimension, on one rank, in program order (its end: see ``all_phases``)."""

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

    ``phase`` is the number of the phase that comes after the window. The first phase of a step has no window: a request
    is never sent ahead across a step boundary.
    """

    rank: int
    phase: int
    dimension: Dimension
    seconds: float


def phases(program: Program, rank: int) -> tuple[Phase, ...]:
    """The phases of ``rank`` in one step (``all_phases`` gives those of every rank)."""
    return all_phases(program)[rank]


def all_phases(program: Program) -> tuple[tuple[Phase, ...], ...]:
    """The phases of every rank in one step.

    A phase ends where the dimension changes, and also where it changes for another member of a group in use: the
    operations of that member in between may take the group's circuits away, so all members must release and request
    them again. (Opus: the boundaries are the union over all ranks. Without this a pipeline of three stages deadlocks:
    stage 0 would hold the circuits to stage 1 from its first send to its first receive, and stage 1 could not gather in
    between.)
    """
    streams = [[op for op in program.communications(r) if _on_rail(program, op)] for r in range(program.ranks)]
    cuts = [_dimension_changes(program, stream) for stream in streams]
    names = _message_names(streams)
    while _cut_for_peers(program, streams, cuts, names):
        pass
    return tuple(
        tuple(_phase(program, number, run) for number, run in enumerate(_runs(stream, cut)))
        for stream, cut in zip(streams, cuts, strict=True)
    )


def _on_rail(program: Program, op: Communication) -> bool:
    return program.groups[op.group].domain == "scale-out"


def _dimension_changes(program: Program, stream: list[Communication]) -> set[int]:
    """Positions at which a phase begins because the dimension changes.

    A collective whose circuits follow its schedule takes its ports from the groups before it, so it has its own phase
    too.
    """
    alone = {group.parent for group in program.groups.values() if group.parent}
    kinds = [(program.groups[op.group].dimension, op.group if op.group in alone else "") for op in stream]
    return {i for i, kind in enumerate(kinds) if i == 0 or kind != kinds[i - 1]}


def _runs(stream: list[Communication], cut: set[int]) -> list[list[Communication]]:
    bounds = [*sorted(cut), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


def _message_names(streams: list[list[Communication]]) -> list[list[MessageName]]:
    """Name of each operation on all ranks that take part in it: a stream of its group, and a number."""
    names = []
    for rank, stream in enumerate(streams):
        count: Counter[tuple[str, str]] = Counter()
        mine = []
        for op in stream:
            if isinstance(op, Send):
                kind = f"{rank}>{op.peer}"
            elif isinstance(op, Recv):
                kind = f"{op.peer}>{rank}"
            else:
                kind = "collective"
            mine.append((op.group, kind, count[op.group, kind]))
            count[op.group, kind] += 1
        names.append(mine)
    return names


def _cut_for_peers(
    program: Program, streams: list[list[Communication]], cuts: list[set[int]], names: list[list[MessageName]]
) -> bool:
    """Begin a phase where a group's next operation belongs to another round than its last; whether any was added."""
    uses: dict[str, dict[int, list[Use]]] = defaultdict(lambda: defaultdict(list))
    for rank, stream in enumerate(streams):
        segment = -1
        for position, op in enumerate(stream):
            segment += position in cuts[rank]
            uses[op.group][rank].append((names[rank][position], segment, position))
    added = False
    for by_rank in uses.values():
        rounds = _rounds(list(by_rank.values()))
        if rounds is None:
            continue
        for rank, used in by_rank.items():
            for (before, segment, _), (after, other, position) in pairwise(used):
                if segment == other and rounds[before] != rounds[after] and position not in cuts[rank]:
                    cuts[rank].add(position)
                    added = True
    return added


def _rounds(members: list[list[Use]]) -> dict[MessageName, int] | None:
    """Round of each message of a group, such that each phase of every member holds one round.

    None if the members' orders contradict each other (the run will then time out with an error).
    """
    rounds = {name: 0 for used in members for name, _, _ in used}
    for _ in range(len(rounds) + 1):
        moved = False
        for used in members:
            for (before, segment, _), (after, other, _) in pairwise(used):
                least = rounds[before] + (segment != other)
                if rounds[after] < least:
                    rounds[after] = least
                    moved = True
        if not moved:
            return rounds
    return None


def _phase(program: Program, number: int, run: list[Communication]) -> Phase:
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for op in run:
        first.setdefault(op.group, op.id)
        last[op.group] = op.id
    uses = tuple(GroupUse(group, id_, last[group]) for group, id_ in first.items())
    return Phase(number, program.groups[run[0].group].dimension, tuple(op.id for op in run), uses)


def phase_changes(program: Program, rank: int) -> int:
    """Changes of dimension per steady step of ``rank``, from the last phase to the first of the next step included."""
    found = phases(program, rank)
    return sum(1 for before, after in zip(found, (*found[1:], *found[:1]), strict=True) if _differ(before, after))


def _differ(before: Phase, after: Phase) -> bool:
    return before.dimension != after.dimension


def windows(program: Program, rank: int) -> tuple[Window, ...]:
    """The windows of ``rank`` in one step, if communication took no time and no rank waited for another."""
    ends = _compute_ends(program, rank)
    found = phases(program, rank)
    result = []
    for before, after in pairwise(found):
        if not _differ(before, after):
            continue
        finished = max(ends[id_] for id_ in before.operations)
        result.append(Window(rank, after.number, after.dimension, max(0.0, ends[after.first] - finished)))
    return tuple(result)


def _compute_ends(program: Program, rank: int) -> list[float]:
    """Time at which each operation would end if communication took no time."""
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
