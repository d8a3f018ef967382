"""Checks a program before it runs: groups, operations, their counterparts on other ranks, and that it reaches its end.

A send and its receive wait for each other (agents send when the receiver is ready, as NCCL does), unless the program's
sends are buffered, and a collective waits for all members.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from math import isfinite

from railyard.errors import ConfigError, VerifyError
from workloads.collectives.verify import verify
from workloads.program import Collective, Communication, Compute, MessageName, Operation, Program, Recv, Send
from workloads.rank.executor import all_dependencies
from workloads.schedule import Schedule


def check(program: Program) -> None:
    """Raise ``ConfigError`` naming rank and operation when ``program`` cannot run."""
    _check_groups(program)
    _check_schedules(program)
    for rank, operations in enumerate(program.operations):
        for place, op in enumerate(operations):
            _check_operation(program, rank, place, op)
    _check_counterparts(program)
    _check_ends(program)


def _where(program: Program, rank: int, op: Operation) -> str:
    return f"program {program.name}: rank {rank}, operation {op.id} ({op.name})"


def _check_groups(program: Program) -> None:
    for name, group in program.groups.items():
        where = f"program {program.name}: group {name}"
        if group.name != name:
            raise ConfigError(f"{where} contains the name {group.name}; both names must be the same")
        if len(set(group.members)) != len(group.members) or not group.members:
            raise ConfigError(f"{where} must have at least one member and none twice")
        for rank in group.members:
            if not 0 <= rank < program.ranks:
                raise ConfigError(f"{where} has member {rank}; ranks are 0 to {program.ranks - 1}")


def _check_schedules(program: Program) -> None:
    for name, schedule in program.schedules.items():
        try:
            verify(schedule)
        except VerifyError as error:
            raise ConfigError(f"program {program.name}: schedule {name} is wrong: {error}") from None


def _check_operation(program: Program, rank: int, place: int, op: Operation) -> None:
    where = _where(program, rank, op)
    if op.id != place:
        raise ConfigError(f"{where} is at position {place}; ids must be the positions 0, 1, 2, ...")
    for dep in op.deps:
        if not 0 <= dep < place:
            raise ConfigError(f"{where} depends on operation {dep}; it can depend on those before it, 0 to {place - 1}")
    if isinstance(op, Compute):
        if not (op.seconds >= 0 and isfinite(op.seconds)):
            raise ConfigError(f"{where} lasts {op.seconds} s; it must be 0 or more, and finite")
        for late in op.late:
            if not (late >= 0 and isfinite(late)):
                raise ConfigError(f"{where} is late by {late} s; it must be 0 or more, and finite")
        if op.arrivals is not None and (op.id or not all(at >= 0 and isfinite(at) for at in op.arrivals.at_s)):
            raise ConfigError(f"{where} has arrivals; only the first operation can, at finite times of 0 or more")
        return
    group = program.groups.get(op.group)
    if group is None:
        raise ConfigError(f"{where} uses group {op.group}, which does not exist")
    if rank not in group.members:
        raise ConfigError(f"{where} uses group {op.group}, of which rank {rank} is not a member")
    if op.bytes < 1:
        raise ConfigError(f"{where} moves {op.bytes} bytes; it must move at least 1")
    if isinstance(op, (Send, Recv)) and (op.peer not in group.members or op.peer == rank):
        raise ConfigError(f"{where} names peer {op.peer}; it must be another member of {op.group}")
    if isinstance(op, Collective) and op.algorithm in program.schedules:
        _check_fits(where, op, program.schedules[op.algorithm], len(group.members))


def _check_fits(where: str, op: Collective, schedule: Schedule, members: int) -> None:
    if (schedule.kind, schedule.n) != (op.kind, members):
        raise ConfigError(
            f"{where} is {op.kind} over the {members} members of {op.group}, but its schedule {op.algorithm} is "
            f"{schedule.kind} over {schedule.n}; both must be the same"
        )


def _check_counterparts(program: Program) -> None:
    """Check that all ranks that take part in a message have it, alike, at the same place in its stream."""
    messages: dict[MessageName, dict[int, Communication]] = defaultdict(dict)
    for rank in range(program.ranks):
        for name, op in program.messages(rank):
            messages[name][rank] = op
    for (group, *_), ops in messages.items():
        rank, op = next(iter(ops.items()))
        if isinstance(op, Collective):
            _check_alike(program, {member: ops.get(member) for member in program.groups[group].members})
        elif len(ops) == 1:
            missing = "receive" if isinstance(op, Send) else "send"
            raise ConfigError(f"{_where(program, rank, op)} has no {missing} on rank {op.peer} in group {group}")
        elif op.bytes != (other := ops[op.peer]).bytes:
            send, recv = (op, other) if isinstance(op, Send) else (other, op)
            sender, receiver = (rank, op.peer) if isinstance(op, Send) else (op.peer, rank)
            raise ConfigError(
                f"{_where(program, receiver, recv)} expects {recv.bytes} bytes, but rank {sender} sends {send.bytes} "
                f"({send.name}); both must be equal"
            )


def _check_alike(program: Program, ops: dict[int, Communication | None]) -> None:
    """Check that all members run the same collective; None stands for a member that runs none."""
    first, ours = next((rank, op) for rank, op in ops.items() if isinstance(op, Collective))
    for rank, theirs in ops.items():
        if not isinstance(theirs, Collective):
            where = _where(program, first, ours)
            raise ConfigError(f"{where} has no counterpart on rank {rank} in group {ours.group}")
        if (ours.kind, ours.bytes, ours.algorithm) != (theirs.kind, theirs.bytes, theirs.algorithm):
            raise ConfigError(
                f"{_where(program, rank, theirs)} is {_what(theirs)} in group {ours.group}, where rank {first} runs "
                f"{_what(ours)} ({ours.name}); members must run the same collectives in the same order"
            )


def _what(op: Collective) -> str:
    return f"{op.kind} of {op.bytes} bytes" + (f" by {op.algorithm}" if op.algorithm else "")


def _check_ends(program: Program) -> None:
    """Order the operations of all ranks by what they wait for; the error names the first that never starts.

    What ends at one time on several ranks is one node: a collective, or a send and its receive unless it is buffered.
    """
    sorter: TopologicalSorter[Hashable] = TopologicalSorter()
    nodes: list[list[Hashable]] = []
    for rank, operations in enumerate(program.operations):
        names: dict[int, Hashable] = {op.id: name for name, op in program.messages(rank)}
        mine: list[Hashable] = []
        for op, needs in zip(operations, all_dependencies(operations), strict=True):
            buffered = program.eager and isinstance(op, Send)
            mine.append((rank, op.id) if buffered else names.get(op.id, (rank, op.id)))
            sorter.add(mine[-1], *(mine[need] for need in needs))
            if buffered:
                sorter.add(names[op.id], mine[-1])
        nodes.append(mine)
    with suppress(CycleError):
        sorter.prepare()
        return
    done: set[Hashable] = set()
    while ready := sorter.get_ready():
        done.update(ready)
        sorter.done(*ready)
    rank, op = next((r, op) for r, mine in enumerate(nodes) for op in program.operations[r] if mine[op.id] not in done)
    raise ConfigError(
        f"{_where(program, rank, op)} never starts: its dependencies, or the operations of other ranks that it needs, "
        "wait for each other"
    )
