"""The record of one step of a PyTorch script: the calls of every rank, and the Program that they are.

Ranks with the same calls are one class; a call names its group by a role, of which a rank has at most one group. So a
record of 16,384 ranks is as long as that of one rank of each class. The n-th call of a rank is the n-th communication
of its operations, each with a compute of its own right before it; a last compute ends the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Literal

from workloads.collectives.catalog import algorithm_for, schedule
from workloads.program import (
    Collective,
    Communication,
    Compute,
    Dimension,
    Group,
    Operation,
    Program,
    Recv,
    Send,
    check_size,
)
from workloads.schedule import CollectiveKind, Schedule
from workloads.training.expert_parallel import weighted
from workloads.training.ranks import on_its_network

Kind = CollectiveKind | Literal["send", "recv"]
Matrix = tuple[tuple[int, ...], ...]
"""Bytes from each member of a group (row) to each (column)."""


@dataclass(frozen=True)
class GroupRole:
    """Groups of different ranks that take the same part in a step, each in ring order (a pair: upstream first)."""

    dimension: Dimension
    groups: tuple[tuple[int, ...], ...]
    front_end: bool = False

    @cached_property
    def group_of(self) -> Mapping[int, tuple[int, ...]]:
        return {rank: group for group in self.groups for rank in group}


@dataclass(frozen=True)
class RecordedCall:
    """A communication in the group of ``role``, and the compute before it.

    The compute lasts ``seconds`` and begins when the rank's calls number ``waits`` are over. ``root`` is a position in
    the group. ``uneven`` names the matrix of an all-to-all in which not all pairs have the same bytes to send.
    """

    kind: Kind
    role: str
    bytes: int
    seconds: float = 0.0
    waits: tuple[int, ...] = ()
    name: str = ""
    root: int = 0
    uneven: str = ""


@dataclass(frozen=True)
class RankClass:
    """Ranks with the same ``calls``; the compute after them lasts ``end_seconds`` and follows calls ``end_waits``."""

    ranks: tuple[int, ...]
    calls: tuple[RecordedCall, ...]
    end_seconds: float = 0.0
    end_waits: tuple[int, ...] = ()


@dataclass(frozen=True)
class Record:
    """One step of all ``ranks`` of a job on servers of ``gpus_per_server``; rates of its fabric are in Gb/s.

    ``step`` is the number of the recorded step. ``repeats`` are those of ``Program``, by role.
    """

    name: str
    ranks: int
    roles: Mapping[str, GroupRole]
    classes: tuple[RankClass, ...]
    step: int = 0
    gpus_per_server: int = 1
    port_gbps: float = 12.5
    scale_up_gbps: float = 2400.0
    uneven: Mapping[str, Matrix] = field(default_factory=dict)
    repeats: Mapping[str, float] = field(default_factory=dict)

    @property
    def operations(self) -> int:
        """How many operations the program of all ranks has."""
        return sum(len(one.ranks) * (2 * len(one.calls) + 1) for one in self.classes)

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """The pipeline stage of each rank."""
        return stages_of(chain(*(role.groups for role in self.roles.values() if role.dimension == "pp")), self.ranks)

    @cached_property
    def groups(self) -> Mapping[str, Mapping[tuple[int, ...], Group]]:
        """The groups of each role by their members; ``ConfigError`` where no network joins them."""
        return {
            name: {
                members: on_its_network(
                    Group(
                        f"{name}.{members[0]}",
                        role.dimension,
                        members,
                        "front-end" if role.front_end else "scale-out",
                        self.stages[members[0]],
                    ),
                    self.gpus_per_server,
                )
                for members in role.groups
            }
            for name, role in self.roles.items()
        }

    def first_ranks(self) -> list[int]:
        """A rank of each class."""
        return [one.ranks[0] for one in self.classes]

    def program(self, ranks: Collection[int] | None = None) -> Program:
        """The step of all ranks, or of ``ranks`` alone (all others then have nothing to do).

        ``ConfigError`` for more than are built, or a group that no network joins.
        """
        if ranks is None:
            check_size(self.ranks, self.operations, "ranks")
        schedules: dict[str, Schedule] = {}
        operations: list[tuple[Operation, ...]] = [()] * self.ranks
        for one in self.classes:
            for rank in one.ranks if ranks is None else set(ranks).intersection(one.ranks):
                operations[rank] = tuple(self._operations(one, rank, schedules))
        groups = {group.name: group for by_members in self.groups.values() for group in by_members.values()}
        repeats = {group.name: times for name, times in self.repeats.items() for group in self.groups[name].values()}
        return Program(self.name, tuple(operations), groups, schedules, repeats=repeats)

    def calls(self, rank: int) -> list[dict[str, Any]]:
        """The calls of ``rank`` in order, as plain values: kind, ranks (of a pair: both, upstream first), bytes,
        on_rail (false: the front-end network carries it), seconds of the compute before it, and peer (or None).
        """
        own = next(ranks for ranks in self.classes if rank in ranks.ranks)
        told = []
        for call in own.calls:
            group = self._group(call, rank)
            told.append(
                {
                    "kind": call.kind,
                    "ranks": list(group.members),
                    "bytes": call.bytes,
                    "on_rail": group.domain != "front-end",
                    "seconds": call.seconds,
                    "peer": _peer(group, rank) if call.kind in ("send", "recv") else None,
                }
            )
        return told

    def _group(self, call: RecordedCall, rank: int) -> Group:
        return self.groups[call.role][self.roles[call.role].group_of[rank]]

    def _operations(self, ranks: RankClass, rank: int, schedules: dict[str, Schedule]) -> Iterator[Operation]:
        for number, call in enumerate(ranks.calls):
            yield Compute(2 * number, f"compute.{call.name}", call.seconds, _ids(call.waits))
            yield self._communication(call, 2 * number + 1, rank, schedules)
        yield Compute(2 * len(ranks.calls), "compute.end", ranks.end_seconds, _ids(ranks.end_waits))

    def _communication(self, call: RecordedCall, id_: int, rank: int, schedules: dict[str, Schedule]) -> Communication:
        group, deps, size = self._group(call, rank), (id_ - 1,), max(1, call.bytes)
        if call.kind == "send" or call.kind == "recv":
            kind = Send if call.kind == "send" else Recv
            return kind(id_, call.name, group.name, _peer(group, rank), size, deps)
        algorithm = self._algorithm(call, call.kind, group, schedules)
        return Collective(id_, call.name, call.kind, group.name, size, deps, algorithm)

    def _algorithm(self, call: RecordedCall, kind: CollectiveKind, group: Group, schedules: dict[str, Schedule]) -> str:
        """The algorithm of a collective; one of the program itself, then in ``schedules``, if it is no plain one.

        What has a root goes along the ring on the rails, whose circuits it then shares with all others.
        """
        n = len(group.members)
        ring = group.domain == "scale-out" and kind in ("broadcast", "reduce")
        plain = "ring" if ring else algorithm_for(kind, group.domain)
        if call.uneven:
            name = f"{call.uneven}.{call.role}"
            if name not in schedules:
                schedules[name] = weighted(schedule(kind, n, plain), list(chain(*self.uneven[call.uneven])))
        elif call.root:
            name = f"{plain}.{kind}.{n}.root{call.root}"
            if name not in schedules:
                schedules[name] = _rooted(schedule(kind, n, plain), call.root)
        else:
            name = "ring" if ring else ""
        return name


def stages_of(pairs: Iterable[tuple[int, ...]], ranks: int) -> tuple[int, ...]:
    """The pipeline stage of each of ``ranks``: its place, by number, among the ranks that ``pairs`` join to it."""
    lines = {rank: [rank] for rank in range(ranks)}
    for first, second in pairs:
        if lines[first] is not lines[second]:
            lines[first] += lines[second]
            lines |= dict.fromkeys(lines[second], lines[first])
    stage_of = {rank: stage for line in lines.values() for stage, rank in enumerate(sorted(line))}
    return tuple(stage_of[rank] for rank in range(ranks))


def _ids(calls: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(2 * number + 1 for number in calls)


def _peer(group: Group, rank: int) -> int:
    return group.members[1 - group.members.index(rank)]


def _rooted(plain: Schedule, root: int) -> Schedule:
    """``plain``, whose root is position 0, turned so that it is ``root``; each position keeps its own chunks."""
    n = plain.n
    turn = root if plain.kind in ("gather", "scatter") else 0  # one chunk a position; else all have all
    transfers = tuple(
        replace(
            t,
            src=(t.src + root) % n,
            dst=(t.dst + root) % n,
            chunk=(t.chunk + turn) % plain.chunks,
            to=t.to if t.to < 0 else (t.to + turn) % plain.chunks,
        )
        for t in plain.transfers
    )
    return replace(plain, root=root, transfers=transfers)


def fits_opus(record: Record, program: Program) -> bool:
    """Whether the groups on the rails are those of Opus: one ring a rank of each kind, pairs of adjacent stages."""
    rings: dict[str, dict[int, Group]] = defaultdict(dict)
    for group in (group for group in program.groups.values() if group.domain == "scale-out"):
        stages = [record.stages[rank] for rank in group.members]
        if group.dimension == "pp":
            if stages[1] != stages[0] + 1:
                return False
            continue
        mine = rings[group.dimension]
        if (
            group.dimension not in ("dp", "ep", "edp")
            or len(set(stages)) > 1
            or not mine.keys().isdisjoint(group.members)
        ):
            return False
        mine |= dict.fromkeys(group.members, group)
    for rank, group in rings["ep"].items():
        ring = rings["dp"].get(rank)
        if ring is not None and group.members not in _arcs(ring.members, len(group.members)):
            return False
    kinds = {
        op.kind
        for rank in range(program.ranks)
        for op in program.communications(rank)
        if isinstance(op, Collective) and program.groups[op.group].domain == "scale-out"
    }
    return kinds.isdisjoint(("gather", "scatter"))


def _arcs(ring: tuple[int, ...], length: int) -> set[tuple[int, ...]]:
    twice = ring + ring
    return {twice[start : start + length] for start in range(len(ring))}
