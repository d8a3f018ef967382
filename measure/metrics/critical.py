"""The critical path of a schedule: the least time it needs, round by round through the busiest port.

An algorithm that does not keep every link busy (a tree, StragglAR) needs longer than the bytes that any one of its
members sends would take.

``bound_s`` is the alpha-beta time of a schedule whose rounds run in lock-step, a lower bound for most schedules: a
round takes alpha plus the time for the most bytes that one port sends or receives in it; the rounds add up. A run
without lock-step can be slightly faster where rounds are uneven, because chunks do not wait for each other. Source:
Hockney's model as in Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
2005; full duplex.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

from railyard.scale import Scale
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective, Program
from workloads.rank.exchange import ELEMENT_BYTES, elements_of
from workloads.schedule import Schedule

OperationKey = tuple[str, str]
"""(group, name) of an operation, as the events of all ranks give it."""


@dataclass(frozen=True)
class RoundBytes:
    """The most bytes that one port sends or receives in a round, on the rails and on the scale-up network."""

    scale_out: int = 0
    scale_up: int = 0


def round_bytes(schedule: Schedule, elements: int, ports: int = 1) -> tuple[RoundBytes, ...]:
    """The critical bytes of each round that uses a link, for ``elements`` float32 (as ``Schedule.chunk_bounds``).

    With ``ports`` = 1 all transfers of a position share its port; with 2, each lane has a port of its own. Copies
    within a position do not count.
    """
    bounds = schedule.chunk_bounds(elements)
    load: dict[int, dict[tuple[int, bool, int, bool], int]] = {}
    for t in schedule.transfers:
        if t.local:
            continue
        start, end = bounds[t.chunk]
        lane = t.lane if ports > 1 else 0
        in_round = load.setdefault(t.round, defaultdict(int))
        in_round[t.src, True, lane, t.scale_up] += (end - start) * ELEMENT_BYTES
        in_round[t.dst, False, lane, t.scale_up] += (end - start) * ELEMENT_BYTES

    def most(of_round: dict[tuple[int, bool, int, bool], int], scale_up: bool) -> int:
        return max((size for port, size in of_round.items() if port[3] == scale_up), default=0)

    return tuple(RoundBytes(most(load[r], False), most(load[r], True)) for r in sorted(load))


def bound_s(
    schedule: Schedule,
    buffer_bytes: int,
    alpha_s: float,
    bytes_per_s: float,
    ports: int = 1,
    scale_up_bytes_per_s: float = inf,
) -> float:
    """Seconds for ``schedule`` on a buffer of ``buffer_bytes`` (``Collective.bytes``), with ``bytes_per_s`` per port.

    Every round that uses a link costs ``alpha_s`` once. ``scale_up_bytes_per_s`` is the rate of the scale-up network.
    """
    rounds = round_bytes(schedule, -(-buffer_bytes // ELEMENT_BYTES), ports)
    return sum(alpha_s + max(r.scale_out / bytes_per_s, r.scale_up / scale_up_bytes_per_s) for r in rounds)


def rounds_before_straggler(schedule: Schedule) -> Schedule:
    """The rounds that do not need the straggler (``first_phase``), to be measured; not a proved schedule."""
    return replace(schedule, transfers=tuple(t for t in schedule.transfers if t.round < schedule.first_phase))


def rounds_after_straggler(schedule: Schedule) -> Schedule:
    """The rounds from ``first_phase`` on, which need the straggler; all rounds if there is no straggler."""
    return replace(schedule, transfers=tuple(t for t in schedule.transfers if t.round >= schedule.first_phase))


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
        first_bytes=sum(r.scale_out for r in round_bytes(rounds_before_straggler(schedule), elements, ports)),
        rounds=max(1, len(pairs)),
        changes=sum(a != b for a, b in pairwise(in_order)) if circuits else 0,
    )
