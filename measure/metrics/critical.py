"""What a schedule needs at least, however fast its members are: one round after another through the busiest port.

An algorithm that does not keep every link busy (a tree, StragglAR) needs longer than the bytes that any of its members
sends; this says how long.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise

from measure.metrics.bounds import before, critical_bytes, round_bytes
from railyard.scale import Scale
from workloads.agent.exchange import elements_of
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective, Program
from workloads.schedule import Schedule

OperationKey = tuple[str, str]
"""Name of the group and of the operation: how the events of an operation name it on every rank."""


@dataclass(frozen=True)
class Critical:
    """The critical path of one operation, in emulated bytes: the sum over its rounds of what the busiest port moves.

    ``first_bytes`` belong to the rounds that do without rank ``straggler``, and can be over when it arrives; they
    cannot when another rank comes last. ``rounds`` is the number of rounds on the rails, ``changes`` how many of them
    join other positions than the round before, where that takes circuits (on packet switches 0).
    """

    bytes: int
    first_bytes: int = 0
    rounds: int = 1
    changes: int = 0
    straggler: int | None = None

    def seconds(self, bytes_per_s: float, last_rank: int | None = None, gap_s: float = 0.0) -> float:
        """Seconds from the arrival of the last member, ``last_rank``, which came ``gap_s`` after the one before it."""
        if self.straggler is not None and last_rank != self.straggler:
            gap_s = 0.0
        first_s = self.first_bytes / bytes_per_s
        return max(0.0, first_s - gap_s) + (self.bytes - self.first_bytes) / bytes_per_s


def critical_paths(
    program: Program, scale: Scale, ports: int, *, circuits: bool, turning: str = ""
) -> dict[OperationKey, Critical]:
    """The critical path of every collective on the rails of ``program``, on ``ports`` per rank.

    ``circuits``: the rails are optical circuit switches that follow the schedule. ``turning``: the dimension whose
    groups have circuits in turns, which change under each transfer.
    """
    found: dict[OperationKey, Critical] = {}
    known: dict[tuple[int, int], Critical] = {}
    for name, group in program.groups.items():
        if group.domain != "scale-out":
            continue
        for op in program.communications(group.members[0]):
            if isinstance(op, Collective) and op.group == name:
                schedule = schedule_of(program, op)
                elements = elements_of(scale.emulated_bytes(op.bytes))
                key = id(schedule), elements
                if key not in known:
                    known[key] = critical_path(schedule, elements, ports, circuits=circuits)
                late = None if schedule.straggler is None else group.members[schedule.straggler]
                changes = len(group.members) - 1 if group.dimension == turning else known[key].changes
                found[name, op.name] = replace(known[key], straggler=late, changes=changes)
    return found


def critical_path(schedule: Schedule, elements: int, ports: int, *, circuits: bool = False) -> Critical:
    """The critical path of ``schedule`` on a buffer of ``elements`` float32, with ``ports`` per position.

    Only what crosses the rails counts.
    """
    rounds = round_bytes(schedule, elements, ports)
    ways: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for t in schedule.transfers:
        if not t.local and not t.scale_up:
            ways[t.round].add((t.src, t.dst))
    in_order = [ways[number] for number in sorted(ways)]
    return Critical(
        bytes=sum(r.scale_out for r in rounds),
        first_bytes=critical_bytes(before(schedule), elements, ports),
        rounds=max(1, len(ways)),
        changes=sum(a != b for a, b in pairwise(in_order)) if circuits else 0,
    )
