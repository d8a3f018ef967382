"""The record of one step of a PyTorch script: the calls of every rank, and the Program that they are.

Ranks with the same calls are one class; a call names its group by a role, of which a rank has at most one group. So a
record of 16,384 ranks is as long as that of one rank of each class. The n-th call of a rank is the n-th communication
of its operations, each with a compute of its own right before it; a last compute ends the step. What a rank computed
before it had to wait is a compute too, so that communication goes on beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Literal

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
_RINGS: tuple[Dimension, ...] = ("dp", "ep", "edp")
"""Dimensions whose groups are rings that Opus wires."""


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
class ClassCall:
    """A communication in the group of ``role``, and the compute before it.

    The compute is of ``ahead`` seconds at once, and of ``seconds`` when the rank's calls number ``waits`` are over.
    ``root`` is a position in the group. ``uneven`` names the matrix of an all-to-all in which not all pairs have the
    same bytes to send.
    """

    kind: Kind
    role: str
    bytes: int
    seconds: float = 0.0
    waits: tuple[int, ...] = ()
    ahead: float = 0.0
    name: str = ""
    root: int = 0
    uneven: str = ""


@dataclass(frozen=True)
class RankClass:
    """Ranks with the same ``calls``, and the compute after them (``end_...`` as in a call)."""

    ranks: tuple[int, ...]
    calls: tuple[ClassCall, ...]
    end_seconds: float = 0.0
    end_waits: tuple[int, ...] = ()
    end_ahead: float = 0.0

    @property
    def operations(self) -> int:
        """How many operations each of its ranks has."""
        ahead = sum(call.ahead > 0 for call in self.calls) + (self.end_ahead > 0)
        return 2 * len(self.calls) + 1 + ahead

    @property
    def compute_s(self) -> float:
        """All seconds that a rank computes in the step."""
        return sum(call.ahead + call.seconds for call in self.calls) + self.end_ahead + self.end_seconds


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

    def __hash__(self) -> int:
        return hash((self.name, self.ranks, self.step, self.port_gbps))

    @property
    def operations(self) -> int:
        """How many operations the program of all ranks has."""
        return sum(len(ranks.ranks) * ranks.operations for ranks in self.classes)

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

    def program(self) -> Program:
        """The step of all ranks of the classes (any other has nothing to do).

        ``ConfigError`` for more than are built, or a group that no network joins.
        """
        check_size(sum(len(ranks.ranks) for ranks in self.classes), self.operations, "ranks")
        schedules: dict[str, Schedule] = {}
        operations: list[tuple[Operation, ...]] = [()] * self.ranks
        for ranks in self.classes:
            for rank in ranks.ranks:
                operations[rank] = self._operations(ranks, rank, schedules)
        groups = {group.name: group for by_members in self.groups.values() for group in by_members.values()}
        repeats = {group.name: times for name, times in self.repeats.items() for group in self.groups[name].values()}
        return Program(self.name, tuple(operations), groups, schedules, repeats=repeats)

    def _operations(self, ranks: RankClass, rank: int, schedules: dict[str, Schedule]) -> tuple[Operation, ...]:
        operations: list[Operation] = []
        ids: list[int] = []

        def compute(name: str, seconds: float, waits: tuple[int, ...], ahead: float) -> None:
            if ahead > 0:
                operations.append(Compute(len(operations), f"ahead.{name}", ahead))
            operations.append(Compute(len(operations), name, seconds, tuple(ids[n] for n in waits)))

        for call in ranks.calls:
            compute(f"compute.{call.name}", call.seconds, call.waits, call.ahead)
            ids.append(len(operations))
            operations.append(self._communication(call, ids[-1], rank, schedules))
        compute("compute.end", ranks.end_seconds, ranks.end_waits, ranks.end_ahead)
        return tuple(operations)

    def _communication(self, call: ClassCall, id_: int, rank: int, schedules: dict[str, Schedule]) -> Communication:
        group, deps, size = self.groups[call.role][self.roles[call.role].group_of[rank]], (id_ - 1,), max(1, call.bytes)
        if call.kind == "send" or call.kind == "recv":
            peer = group.members[1 - group.members.index(rank)]
            return (Send if call.kind == "send" else Recv)(id_, call.name, group.name, peer, size, deps)
        algorithm = self._algorithm(call, call.kind, group, schedules)
        return Collective(id_, call.name, call.kind, group.name, size, deps, algorithm)

    def _algorithm(self, call: ClassCall, kind: CollectiveKind, group: Group, schedules: dict[str, Schedule]) -> str:
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
        )
        for t in plain.transfers
    )
    return replace(plain, root=root, transfers=transfers)


def fits_opus(record: Record, program: Program) -> bool:
    """Whether the groups on the rails are those of Opus: one ring a rank of each kind, pairs of adjacent stages."""
    rings: dict[tuple[Dimension, int], tuple[int, ...]] = {}
    for group in (group for group in program.groups.values() if group.domain == "scale-out"):
        stages = [record.stages[rank] for rank in group.members]
        mine = {(group.dimension, rank): group.members for rank in group.members}
        alone = len(set(stages)) == 1 and rings.keys().isdisjoint(mine)
        if not (stages[1] == stages[0] + 1 if group.dimension == "pp" else group.dimension in _RINGS and alone):
            return False
        rings |= mine
    arcs = (members in _arcs(rings.get(("dp", rank), members), len(members))
            for (dimension, rank), members in rings.items() if dimension == "ep")  # fmt: skip
    collectives = (
        op for rank in range(program.ranks) for op in program.communications(rank) if op.type == "collective"
    )
    on_trees = any(
        op.kind in ("gather", "scatter") and program.groups[op.group].domain == "scale-out" for op in collectives
    )
    return all(arcs) and not on_trees


def _arcs(ring: tuple[int, ...], length: int) -> set[tuple[int, ...]]:
    twice = ring + ring
    return {twice[start : start + length] for start in range(len(ring))}
