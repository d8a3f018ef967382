"""Phases: the runs of operations of one parallelism dimension between which a rail is reconfigured.

Only operations that a rail carries (domain scale-out) make phases; TP inside a server and scalars on the front-end
never use a circuit.
Source: Opus, arXiv 2602.12521 (phases, one configuration per phase).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from railyard.errors import ConfigError
from workloads.program import Collective, Communication, Dimension, MessageName, Program

Stream = list[tuple[MessageName, Communication]]
"""The rail operations of one rank in program order, with their names."""

Use = tuple[MessageName, int, int]
"""A message on one rank: its name, its phase, and its position among the rail operations of the rank."""


@dataclass(frozen=True)
class Phase:
    """A run of rail operations of one dimension, on one rank: their ids in program order (its end: ``all_phases``)."""

    dimension: Dimension
    operations: tuple[int, ...]


def phases(program: Program, rank: int) -> tuple[Phase, ...]:
    return all_phases(program)[rank]


def all_phases(program: Program) -> tuple[tuple[Phase, ...], ...]:
    """The phases of every rank in one step.

    A phase ends where the dimension changes, and also where it changes for another member of a group in use: the
    operations of that member in between may take the group's circuits away, so all members must release and request
    them again. (Opus: the boundaries are the union over all ranks. Without this a pipeline of three stages deadlocks:
    stage 0 would hold the circuits to stage 1 from its first send to its first receive, and stage 1 could not gather in
    between.)
    """
    groups = program.groups
    streams = [
        [(name, op) for name, op in program.messages(rank) if groups[op.group].domain == "scale-out"]
        for rank in range(program.ranks)
    ]
    cuts = [_dimension_changes(program, stream) for stream in streams]
    while _cut_for_peers(streams, cuts):
        pass
    return tuple(
        tuple(
            Phase(groups[stream[start][1].group].dimension, tuple(op.id for _, op in stream[start:end]))
            for start, end in pairwise((*sorted(cut), len(stream)))
        )
        for stream, cut in zip(streams, cuts, strict=True)
    )


def stale_phase(program: Program, rank: int, found: Sequence[Phase]) -> int | None:
    """Number of the phase of ``rank`` that a stale profile takes for over after its first operation; None without one.

    It is the first phase of several collectives of one group that lies between other dimensions; the step is a circle,
    but the first phase of all does not count: while the first stage of a pipeline is in it, later ones wait.
    """
    follow = {group.parent for group in program.groups.values()}
    for number, (before, phase, after) in enumerate(zip(found, found[1:], (*found[2:], *found[:1]), strict=False), 1):
        operations = [program.operations[rank][op] for op in phase.operations]
        groups = {op.group if isinstance(op, Collective) else "" for op in operations}
        asks = len(groups) == 1 and groups.isdisjoint({"", *follow})
        if asks and len(operations) > 1 and phase.dimension not in (before.dimension, after.dimension):
            return number
    return None


def check_stale(program: Program) -> None:
    """Raise ``ConfigError`` for a program whose circuits may not come if a stale profile requests them.

    They come if the mistake (``stale_phase``) cuts the program alike for all members of each group: after equally many
    of its phases, and with all members or none requesting it by mistake.
    """
    views: dict[str, set[tuple[int, bool, bool]]] = defaultdict(set)
    for rank, found in enumerate(all_phases(program)):
        number = stale_phase(program, rank, found)
        if number is None:
            reason = f"and rank {rank} of {program.name} has none"
            raise ConfigError(
                f"needs a phase of several collectives between other dimensions, {reason}", key="stale_step"
            )
        group_of = {op.id: op.group for op in program.communications(rank)}
        used = [{group_of[op] for op in phase.operations} for phase in found]
        for group in set[str]().union(*used):
            before = sum(group in groups for groups in used[:number])
            views[group].add((before, group in used[number], group in used[(number + 1) % len(used)]))
    if apart := [group for group, different in views.items() if len(different) > 1]:
        reason = f"the members of group {min(apart)} of {program.name} cannot: some would wait for circuits in vain"
        raise ConfigError(f"needs ranks that can all be mistaken alike, and {reason}", key="stale_step")


def _dimension_changes(program: Program, stream: Stream) -> set[int]:
    """Positions at which a phase begins because the dimension changes.

    A collective whose circuits follow its schedule takes its ports from the groups before it, so it has its own phase
    too.
    """
    alone = {group.parent for group in program.groups.values() if group.parent}
    kinds = [(program.groups[op.group].dimension, op.group if op.group in alone else "") for _, op in stream]
    return {i for i, kind in enumerate(kinds) if i == 0 or kind != kinds[i - 1]}


def _cut_for_peers(streams: list[Stream], cuts: list[set[int]]) -> bool:
    """Begin a phase where a group's next operation belongs to another round than its last; whether any was added."""
    uses: dict[str, dict[int, list[Use]]] = defaultdict(lambda: defaultdict(list))
    for rank, stream in enumerate(streams):
        segment = -1
        for position, (name, op) in enumerate(stream):
            segment += position in cuts[rank]
            uses[op.group][rank].append((name, segment, position))
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
