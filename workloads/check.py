"""Checks a program before it runs: groups, pairs, order and an abstract run that must reach its end.

In the abstract run a send and its receive wait for each other (agents send when the receiver is ready, as NCCL does),
unless the program's sends are buffered, and a collective waits for all members.
"""

from __future__ import annotations

from collections import defaultdict, deque
from math import isfinite

from railyard.errors import ConfigError, VerifyError
from workloads.collectives.verify import verify
from workloads.program import Collective, Compute, Operation, Program, Recv, Send
from workloads.rank.executor import all_dependencies
from workloads.schedule import Schedule


def check(program: Program) -> None:
    """Raise ``ConfigError`` naming rank and operation when ``program`` cannot run."""
    _check_groups(program)
    _check_schedules(program)
    for rank, operations in enumerate(program.operations):
        for place, op in enumerate(operations):
            _check_operation(program, rank, place, op)
    _check_collectives(program)
    _check_pairs(program)
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
    """Verify the program's own schedules."""
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


def _check_collectives(program: Program) -> None:
    """Check that all members run the same collectives of a group in the same order."""
    by_group: dict[str, dict[int, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    for rank, operations in enumerate(program.operations):
        for op in operations:
            if isinstance(op, Collective):
                by_group[op.group][rank].append(op)
    for name, lists in by_group.items():
        group = program.groups[name]
        first = group.members[0]
        for member in group.members[1:]:
            for ours, theirs in zip(lists[first], lists[member], strict=False):
                if (ours.kind, ours.bytes, ours.algorithm) != (theirs.kind, theirs.bytes, theirs.algorithm):
                    raise ConfigError(
                        f"{_where(program, member, theirs)} is {_what(theirs)} in group {name}, "
                        f"where rank {first} runs {_what(ours)} ({ours.name}); "
                        "members must run the same collectives in the same order"
                    )
            short, long = sorted((first, member), key=lambda rank: len(lists[rank]))
            if len(lists[short]) != len(lists[long]):
                extra = lists[long][len(lists[short])]
                raise ConfigError(f"{_where(program, long, extra)} has no counterpart on rank {short} in group {name}")


def _what(op: Collective) -> str:
    return f"{op.kind} of {op.bytes} bytes" + (f" by {op.algorithm}" if op.algorithm else "")


def _check_pairs(program: Program) -> None:
    """Check that every send has its receive, in order and of the same size."""
    sends: dict[tuple[str, int, int], list[tuple[int, Send | Recv]]] = defaultdict(list)
    recvs: dict[tuple[str, int, int], list[tuple[int, Send | Recv]]] = defaultdict(list)
    for rank in range(program.ranks):
        for op in program.communications(rank):
            if isinstance(op, Send):
                sends[op.group, rank, op.peer].append((rank, op))
            elif isinstance(op, Recv):
                recvs[op.group, op.peer, rank].append((rank, op))
    for key in sorted(sends.keys() | recvs.keys()):
        out, back = sends[key], recvs[key]
        for (_, send), (rank, recv) in zip(out, back, strict=False):
            if send.bytes != recv.bytes:
                raise ConfigError(
                    f"{_where(program, rank, recv)} expects {recv.bytes} bytes, but rank {key[1]} sends {send.bytes} "
                    f"({send.name}); both must be equal"
                )
        if len(out) != len(back):
            rank, alone = (out if len(out) > len(back) else back)[min(len(out), len(back))]
            what = "receive" if isinstance(alone, Send) else "send"
            raise ConfigError(f"{_where(program, rank, alone)} has no {what} on rank {alone.peer} in group {key[0]}")


def _check_ends(program: Program) -> None:
    """Run the program without time; the error names the first operation that never starts."""
    run = _AbstractRun(program)
    run.run()
    for rank, operations in enumerate(program.operations):
        for op in operations:
            if not run.done[rank][op.id]:
                raise ConfigError(
                    f"{_where(program, rank, op)} never starts: its dependencies, or the operations of other ranks "
                    "that it needs, wait for each other"
                )


class _AbstractRun:
    """Execution order without durations; its work grows with the operations and their dependencies only."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.done = [[False] * len(operations) for operations in program.operations]
        self.ready: deque[tuple[int, Operation]] = deque()
        self.missing: list[list[int]] = []
        self.enables: list[list[list[int]]] = []
        for rank, operations in enumerate(program.operations):
            needs = all_dependencies(operations)
            self.missing.append([len(wanted) for wanted in needs])
            enables: list[list[int]] = [[] for _ in operations]
            for op, wanted in enumerate(needs):
                for need in wanted:
                    enables[need].append(op)
            self.enables.append(enables)
            self.ready.extend((rank, op) for op in operations if not needs[op.id])
        self.joined: dict[tuple[str, int], list[tuple[int, Operation]]] = defaultdict(list)
        self.collectives: dict[tuple[str, int], int] = defaultdict(int)
        self.sends: dict[tuple[str, int, int], deque[Operation]] = defaultdict(deque)
        self.recvs: dict[tuple[str, int, int], deque[Operation]] = defaultdict(deque)
        self.arrived: dict[tuple[str, int, int], int] = defaultdict(int)

    def run(self) -> None:
        """Run until no operation can start any more."""
        while self.ready:
            rank, op = self.ready.popleft()
            if isinstance(op, Compute):
                self._finish(rank, op)
            elif isinstance(op, Collective):
                self._join(rank, op)
            elif isinstance(op, Send):
                self.sends[op.group, rank, op.peer].append(op)
                self._meet(op.group, rank, op.peer)
            else:
                self.recvs[op.group, op.peer, rank].append(op)
                self._meet(op.group, op.peer, rank)

    def _join(self, rank: int, op: Collective) -> None:
        """Let a rank join a collective, which ends when all members have joined."""
        number = self.collectives[op.group, rank]
        self.collectives[op.group, rank] += 1
        members = self.joined[op.group, number]
        members.append((rank, op))
        if len(members) == len(self.program.groups[op.group].members):
            for member, theirs in members:
                self._finish(member, theirs)

    def _meet(self, group: str, src: int, dst: int) -> None:
        """Complete the sends that may go (buffered ones always may), and the receives whose data has arrived."""
        key = (group, src, dst)
        sends, recvs = self.sends[key], self.recvs[key]
        while sends and (self.program.eager or len(recvs) > self.arrived[key]):
            self._finish(src, sends.popleft())
            self.arrived[key] += 1
        while recvs and self.arrived[key]:
            self._finish(dst, recvs.popleft())
            self.arrived[key] -= 1

    def _finish(self, rank: int, op: Operation) -> None:
        self.done[rank][op.id] = True
        for follower in self.enables[rank][op.id]:
            self.missing[rank][follower] -= 1
            if self.missing[rank][follower] == 0:
                self.ready.append((rank, self.program.operations[rank][follower]))
