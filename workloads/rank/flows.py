"""Common names of communications: each rank numbers its operations by itself, and all must name a message alike."""

from __future__ import annotations

from typing import NamedTuple

from workloads.program import Collective, Program


class Flow(NamedTuple):
    """Identity of one operation in one step, equal on all ranks that take part.

    ``group`` is the position of the group in the program. ``sequence`` counts the collectives of a group in a step, or
    the sends from one member of a pair to the other.
    """

    step: int
    group: int
    sequence: int
    point_to_point: bool = False

    def at(self, step: int) -> Flow:
        return self._replace(step=step)


FlowKey = tuple[Flow, int]
"""A flow, and the peer for point to point (-1 for a collective)."""


def key_at_peer(key: FlowKey, rank: int) -> FlowKey:
    """The key of a flow of ``rank`` as the rank at the other end names it."""
    flow, peer = key
    return flow, peer if peer < 0 else rank


def flow_names(program: Program, rank: int) -> dict[int, Flow]:
    """Map operation id -> flow in step 0, for every communication of ``rank``.

    The k-th collective of a group is the same on all members; the k-th send from one member of a pair to the other
    matches the k-th receive there.
    """
    number = {name: position for position, name in enumerate(program.groups)}
    return {
        op.id: Flow(0, number[group], sequence, not isinstance(op, Collective))
        for (group, _, sequence), op in program.messages(rank)
    }
