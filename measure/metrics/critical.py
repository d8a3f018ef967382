"""The critical path of a schedule: the least time it needs, round by round through the busiest port.

An algorithm that does not keep every link busy (a tree, StragglAR) needs longer than the bytes that any one of its
members sends would take.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise

from measure.metrics.bounds import critical_bytes, round_bytes, rounds_before_straggler
from railyard.scale import Scale
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective, Program
from workloads.rank.exchange import elements_of
from workloads.schedule import Schedule

OperationKey = tuple[str, str]
"""(group, name) of an operation, as the events of all ranks give it."""


@dataclass(frozen=True)
class Critical:
    """The critical path of one operation: ``bytes`` is the sum over its rounds of the busiest port's emulated bytes.

    ``first_bytes`` belong to the rounds that do not need rank ``straggler``; they can be finished before it arrives,
    but not if another rank arrives last. ``rounds`` is the number of rounds on the rails, ``changes`` the number
    of rounds that connect other positions than the round before and so need other circuits (0 on packet switches).
    """

    bytes: int
    first_bytes: int = 0
    rounds: int = 1
    changes: int = 0
    straggler: int | None = None

    def seconds(self, bytes_per_s: float, last_rank: int | None = None, gap_s: float = 0.0) -> float:
        """Seconds from the arrival of the last member, ``last_rank``, ``gap_s`` after the one before it."""
        if self.straggler is not None and last_rank != self.straggler:
            gap_s = 0.0
        first_s = self.first_bytes / bytes_per_s
        return max(0.0, first_s - gap_s) + (self.bytes - self.first_bytes) / bytes_per_s


def critical_paths(
    program: Program, scale: Scale, ports: int, *, circuits: bool, rotating: str = ""
) -> dict[OperationKey, Critical]:
    """The critical path of every collective on the rails of ``program``, on ``ports`` per rank.

    ``circuits``: the rails are optical circuit switches whose circuits follow the schedule. ``rotating``: the dimension
    whose groups are served by a rotation, so that circuits change during each operation.
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
                changes = len(group.members) - 1 if group.dimension == rotating else known[key].changes
                found[name, op.name] = replace(known[key], straggler=late, changes=changes)
    return found


def critical_path(schedule: Schedule, elements: int, ports: int, *, circuits: bool = False) -> Critical:
    """The critical path of ``schedule`` on a buffer of ``elements`` float32, with ``ports`` per position.

    Only transfers over the rails count.
    """
    rounds = round_bytes(schedule, elements, ports)
    pairs: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for t in schedule.transfers:
        if not t.local and not t.scale_up:
            pairs[t.round].add((t.src, t.dst))
    in_order = [pairs[number] for number in sorted(pairs)]
    return Critical(
        bytes=sum(r.scale_out for r in rounds),
        first_bytes=critical_bytes(rounds_before_straggler(schedule), elements, ports),
        rounds=max(1, len(pairs)),
        changes=sum(a != b for a, b in pairwise(in_order)) if circuits else 0,
    )
