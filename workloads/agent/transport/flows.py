"""Common names of communications: each rank numbers its operations by itself, and all must name a message alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from workloads.agent.transport.message import Flow
from workloads.program import Collective, Program


@dataclass(frozen=True)
class FlowName:
    """A ``Flow`` without its step."""

    group: int
    sequence: int
    point_to_point: bool

    def at(self, step: int) -> Flow:
        """The flow with this name in one step."""
        return Flow(step, self.group, self.sequence, self.point_to_point)


def flow_names(program: Program, rank: int) -> dict[int, FlowName]:
    """Map operation id -> flow name, for every communication of ``rank``.

    The k-th collective of a group is the same on all members; the k-th send from one member of a pair to the other
    matches the k-th receive there.
    """
    number = {name: position for position, name in enumerate(program.groups)}
    seen: Counter[tuple[str, str, int]] = Counter()
    names: dict[int, FlowName] = {}
    for op in program.communications(rank):
        if isinstance(op, Collective):
            key = (op.group, "collective", -1)
        else:
            key = (op.group, type(op).__name__, op.peer)
        names[op.id] = FlowName(number[op.group], seen[key], not isinstance(op, Collective))
        seen[key] += 1
    return names
