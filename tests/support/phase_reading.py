"""What tests read off the phases of a program."""

from __future__ import annotations

from itertools import pairwise

from workloads.phases import Phase, phases
from workloads.program import Program


def groups_of(program: Program, rank: int, phase: Phase) -> tuple[str, ...]:
    """The groups that ``rank`` uses in ``phase``, in order of first use."""
    return tuple(dict.fromkeys(op.group for op in program.communications(rank) if op.id in phase.operations))


def phase_changes(program: Program, rank: int) -> int:
    """Changes of dimension per steady step of ``rank``, from the last phase to the first of the next step included."""
    found = [phase.dimension for phase in phases(program, rank)]
    return sum(before != after for before, after in pairwise([*found, *found[:1]]))
