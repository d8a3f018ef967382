"""A program on other ranks: that of a job which shares a fabric with other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workloads.program import Compute, Operation, Program, Recv, Send


def placed(program: Program, members: Sequence[int], ranks: int, job: str) -> Program:
    """``program`` on a fabric of ``ranks``: its rank r is ``members[r]``, and all others have nothing to do.

    Names of groups begin with that of the ``job``, so that those of several jobs differ.
    """

    def moved(op: Operation) -> Operation:
        if isinstance(op, Compute):
            return op
        named = replace(op, group=f"{job}/{op.group}")
        return replace(named, peer=members[named.peer]) if isinstance(named, (Send, Recv)) else named

    operations: list[tuple[Operation, ...]] = [()] * ranks
    for rank, own in zip(members, program.operations, strict=True):
        operations[rank] = tuple(map(moved, own))
    groups = {
        f"{job}/{name}": replace(
            group,
            name=f"{job}/{name}",
            members=tuple(members[rank] for rank in group.members),
            parent=group.parent and f"{job}/{group.parent}",
        )
        for name, group in program.groups.items()
    }
    repeats = {f"{job}/{name}": times for name, times in program.repeats.items()}
    return replace(program, name=job, operations=tuple(operations), groups=groups, repeats=repeats)
