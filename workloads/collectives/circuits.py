"""The circuits that a schedule needs, their rounds, and the groups that request them from a controller.

A GPU has two ports on an optical rail. A round in which every position has at most one peer is a matching: each pair is
joined by lane 0 of both. In any other round a position that sends to one and receives from one sends by lane 1 into
lane 0 (a ring); the counter-clockwise half of two rings goes back over the circuits of the clockwise one. Transfers on
the scale-up network and those inside a position need no circuit.

In a provisioned schedule successive matchings take lanes 0 and 1 in turn, so that one can be set up while the other is
used; rounds on the same matching stay on its lane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import chain, groupby

from railyard.errors import ConfigError, shortened
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective, Compute, Group, Operation, Program
from workloads.schedule import Schedule, Transfer

End = tuple[int, int]
"""(position, lane)."""
Ends = tuple[End, End]

PORTS = 2
"""Ports of a GPU on an optical rail, for circuits that follow a schedule."""


@dataclass(frozen=True)
class CircuitUse:
    """One use of the duplex circuit between ``ends`` by ``transfers`` in rounds ``first`` to ``last``.

    ``transfers`` are numbers in the schedule. Neither port is used otherwise in between, so the circuit may stay up all
    that time.
    """

    ends: Ends
    first: int
    last: int
    transfers: tuple[int, ...]


def circuit_uses(schedule: Schedule) -> tuple[CircuitUse, ...]:
    """The uses of all circuits in order of their first round.

    Raises ``ConfigError`` where a position needs more than two ports in one round, and for an eager schedule.
    """
    if schedule.pieces:
        raise ConfigError(
            f"{schedule.title} finds out as it runs which rank is late, and its circuits have to be known before; use "
            "packet switches, or stragglar",
            key="algorithm",
        )
    uses: list[tuple[Ends, list[int]]] = []
    holds: dict[End, tuple[Ends, list[int]]] = {}
    numbered = sorted(
        ((number, t) for number, t in enumerate(schedule.transfers) if not (t.local or t.scale_up)),
        key=lambda entry: (entry[1].round, entry[0]),
    )
    matching: set[Ends] = set()
    turn = 1
    for _, in_round in groupby(numbered, key=lambda entry: entry[1].round):
        circuits = _circuits_of(schedule, list(in_round))
        if schedule.provisioned and all(lane == 0 for ends in circuits for _, lane in ends):
            turn, matching = turn ^ (matching != circuits.keys()), set(circuits)
            circuits = {((a, turn), (b, turn)): transfers for ((a, _), (b, _)), transfers in circuits.items()}
        for ends, transfers in circuits.items():
            use = holds.get(ends[0])
            if use is None or use[0] != ends or holds.get(ends[1]) is not use:
                holds[ends[0]] = holds[ends[1]] = use = (ends, [])
                uses.append(use)
            use[1].extend(transfers)
    rounds = [t.round for t in schedule.transfers]
    return tuple(CircuitUse(ends, rounds[used[0]], rounds[used[-1]], tuple(used)) for ends, used in uses)


def _circuits_of(schedule: Schedule, transfers: list[tuple[int, Transfer]]) -> dict[Ends, list[int]]:
    """The circuits of one round, each with its transfers; raises ``ConfigError`` if they share a port."""
    peers: dict[int, set[int]] = {}
    for _, t in transfers:
        peers.setdefault(t.src, set()).add(t.dst)
        peers.setdefault(t.dst, set()).add(t.src)
    crowded = max(peers, key=lambda position: len(peers[position]))
    if len(peers[crowded]) > PORTS:
        raise _no_ports(schedule, crowded, peers[crowded], transfers[0][1].round)
    both_lanes = any(t.lane for _, t in transfers)
    matching = not both_lanes and all(len(others) == 1 for others in peers.values())
    against = {} if matching or both_lanes else _against(transfers)
    circuits: dict[Ends, list[int]] = {}
    far: dict[End, End] = {}
    for number, t in transfers:
        ends = _ends(t, matching, against)
        for end, other in (ends, ends[::-1]):
            if far.setdefault(end, other) != other:
                raise _no_ports(schedule, end[0], peers[end[0]], t.round)
        circuits.setdefault(ends, []).append(number)
    return circuits


def _no_ports(schedule: Schedule, position: int, peers: Iterable[int], number: int) -> ConfigError:
    return ConfigError(
        f"{schedule.title} needs circuits from position {position} to positions "
        f"{shortened(', '.join(map(str, sorted(peers))))} in round {number}, more than its {PORTS} ports can hold; "
        "ring, pairwise and stragglar fit",
        key="algorithm",
    )


def _ends(t: Transfer, matching: bool, against: Collection[tuple[int, int]]) -> Ends:
    if matching:
        a, b = (t.src, 0), (t.dst, 0)
    elif t.lane or (t.src, t.dst) in against:
        a, b = (t.src, 0), (t.dst, 1)
    else:
        a, b = (t.src, 1), (t.dst, 0)
    return (a, b) if a < b else (b, a)


def _against(transfers: list[tuple[int, Transfer]]) -> set[tuple[int, int]]:
    """The transfers against the direction of their circuit (into lane 1), as (source, destination).

    There are none where each position sends to at most one and receives from at most one. Otherwise circuits are laid
    along the chains and rings that the pairs of peers form, each serving both directions.
    """
    pairs = sorted({(t.src, t.dst) for _, t in transfers})
    if len({src for src, _ in pairs}) == len({dst for _, dst in pairs}) == len(pairs):
        return set()
    peers: dict[int, list[int]] = {}
    for src, dst in sorted({(min(pair), max(pair)) for pair in pairs}):
        peers.setdefault(src, []).append(dst)
        peers.setdefault(dst, []).append(src)
    along: set[tuple[int, int]] = set()
    for start in sorted(peers, key=lambda p: (len(peers[p]), p)):
        here = start
        while onward := [p for p in peers[here] if (here, p) not in along and (p, here) not in along]:
            along.add((here, onward[0]))
            here = onward[0]
    return {pair for pair in pairs if pair not in along}


def circuit_name(group: Group, ends: Ends) -> str:
    (a, lane_a), (b, lane_b) = ends
    return f"{group.name}/{group.members[a]}.{lane_a}-{group.members[b]}.{lane_b}"


def circuit_groups(group: Group, schedule: Schedule) -> dict[str, Group]:
    """Groups of two, one for every circuit that ``schedule`` over ``group`` uses, in order of first use."""
    groups: dict[str, Group] = {}
    for use in circuit_uses(schedule):
        name = circuit_name(group, use.ends)
        (a, lane_a), (b, lane_b) = use.ends
        members = group.members[a], group.members[b]
        groups[name] = replace(group, name=name, members=members, lanes=(lane_a, lane_b), parent=group.name)
    return groups


def follow_circuits(program: Program) -> Program:
    """Add the groups of the circuits used by scale-out collectives to ``program``, for a controller that follows it.

    The rail operations of a rank are put in program order around each such collective: two of them must not wait for
    each other's ports. Raises ``ConfigError`` where a collective needs more ports than there are.
    """
    circuits: dict[str, Group] = {}
    for op in chain.from_iterable(program.operations):
        if not isinstance(op, Collective):
            continue
        group = program.groups[op.group]
        if group.domain != "scale-out" or len(group.members) < 2:
            continue
        try:
            circuits.update(circuit_groups(group, schedule_of(program, op)))
        except ConfigError as error:
            raise ConfigError(f"program {program.name}: {op.name}: {error.message}") from None
    in_order = tuple(_in_order(program, ops) for ops in program.operations)
    return replace(program, operations=in_order, groups={**program.groups, **circuits})


def _in_order(program: Program, operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Order each rail collective after all rail operations before it, and each other one after the last collective."""
    ordered: list[Operation] = []
    last: int | None = None
    since: list[int] = []
    for op in operations:
        if isinstance(op, Compute) or program.groups[op.group].domain != "scale-out":
            ordered.append(op)
            continue
        after = {*op.deps, *([] if last is None else [last])}
        if isinstance(op, Collective):
            after.update(since)
            last, since = op.id, []
        else:
            since.append(op.id)
        ordered.append(replace(op, deps=tuple(sorted(after))))
    return tuple(ordered)
