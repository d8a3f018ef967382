"""The alpha-beta time of a schedule whose rounds run in lock-step, a lower bound for most schedules.

A round takes alpha plus the time for the most bytes that one port sends or receives in it; the rounds add up. A run
without lock-step can be slightly faster where rounds are uneven, because chunks do not wait for each other.

Source: Hockney's model as in Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
MPICH", 2005; full duplex.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from math import inf

from workloads.rank.exchange import ELEMENT_BYTES
from workloads.schedule import Schedule


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


def critical_bytes(schedule: Schedule, elements: int, ports: int = 1) -> int:
    """Bytes on the critical path of the rails: the sum over rounds of the most that one port sends or receives."""
    return sum(r.scale_out for r in round_bytes(schedule, elements, ports))


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
