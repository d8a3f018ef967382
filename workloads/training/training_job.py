"""The step of a data-parallel training job: compute, then one all-reduce of the gradients on a multi-lane ring."""

from __future__ import annotations

from collections.abc import Sequence

from railyard.errors import ConfigError
from workloads.collectives.ring import ring, ring_name
from workloads.program import Collective, Compute, Group, Operation, Program


def training_job(
    members: Sequence[int], gradient_bytes: int, compute_s: float, lanes: int, ranks: int, *, group: str = "world"
) -> Program:
    """A program of ``ranks`` ranks in which ``members`` (in ring order) train and all others have nothing to do.

    ``gradient_bytes`` and ``compute_s`` are those of the real system. The all-reduce is over ``group`` (dimension dp,
    scale-out) on a ring of ``lanes`` lanes, whose schedule is part of the program under ``ring_name(lanes)``. Several
    jobs in one program need groups of different names. Members may change between incarnations: the contribution of a
    position stays the same. Raises ``ConfigError`` for members that do not exist or are named twice, or without a lane.
    """
    members = tuple(members)
    if not members or len(set(members)) != len(members) or not all(0 <= rank < ranks for rank in members):
        raise ConfigError(f"must be different ranks of 0 to {ranks - 1}, not {list(members)}", key="members")
    name = ring_name(lanes)
    step: tuple[Operation, ...] = (
        Compute(0, "compute", compute_s),
        Collective(1, "all-reduce gradients", "all_reduce", group, gradient_bytes, (0,), name),
    )
    return Program(
        name=f"training-{group}",
        operations=tuple(step if rank in members else () for rank in range(ranks)),
        groups={group: Group(group, "dp", members)},
        schedules={name: ring("all_reduce", len(members), lanes=lanes)},
    )
