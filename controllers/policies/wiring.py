"""The port assignments of rings and pipeline pairs, shared by all policies.

Source: Opus, arXiv 2602.12521: two duplex ports per GPU and rail; a ring uses both, a pipeline chain one to each side.
All-to-alls of experts have no circuits of their own: their data is forwarded from member to member over the ring of the
data-parallel group. The members of an EP group are neighbours on that ring, as the EP index runs faster than the DP
index (``workloads.training.ranks``): they have an arc of the ring, or all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from controllers.circuits.circuits import Circuit, Matching, SwitchCircuit
from railyard.errors import CircuitError, ConfigError
from railyard.protocol import Hop
from topos.plan import FabricPlan, SwitchPlan
from workloads.program import Group


def ring_paths(members: Sequence[int], low: int = 0, high: int = 1) -> tuple[Hop, ...]:
    """The ring of ``members``: lane ``high`` of each to lane ``low`` of the next (two members: two paths)."""
    return matched_paths(members, [(low, high)] * len(members))


def matched_paths(members: Sequence[int], lanes: Sequence[Sequence[int]]) -> tuple[Hop, ...]:
    """The ring of ``members`` over different lanes: ``lanes[i]`` are those of member i, the same number for each.

    Lanes are matched by position: circuit k of a hop joins position 2k + 1 of a member to position 2k of the next. The
    last of an odd number stays dark, except between two members, which it joins as well.
    """
    if len(members) < 2:
        return ()
    following = [*range(1, len(members)), 0]
    count = len(lanes[0])
    paths = [
        Hop(members[here], lanes[here][low + 1], members[there], lanes[there][low])
        for low in range(0, count - 1, 2)
        for here, there in enumerate(following)
    ]
    if len(members) == 2 and count % 2:
        paths.append(Hop(members[0], lanes[0][-1], members[1], lanes[1][-1]))
    return tuple(paths)


def ring_neighbours(members: Sequence[int], rank: int) -> tuple[int, ...]:
    """The members before and after ``rank`` on the ring (one of two members, none of one)."""
    at = members.index(rank)
    beside = (members[at - 1], members[(at + 1) % len(members)])
    return tuple(r for r in dict.fromkeys(beside) if r != rank)


def group_paths(group: Group, low: int = 0, high: int = 1) -> tuple[Hop, ...]:
    """The paths that ``group`` needs: a pair in dimension pp, a ring in every other; ``ConfigError`` for a bad pair.

    A pair joins lane ``high`` of the upstream rank to lane ``low`` of the downstream rank.
    """
    if group.dimension == "pp":
        if len(group.members) != 2:
            raise ConfigError(f"group {group.name} has {len(group.members)} members; a pipeline pair must have 2")
        upstream, downstream = group.members
        return (Hop(upstream, high, downstream, low),)
    return ring_paths(group.members, low, high)


def path_circuits(switch: SwitchPlan, paths: Iterable[Hop]) -> tuple[Circuit, ...]:
    """The circuits on ``switch`` for ``paths``, in order; ``ConfigError`` if a GPU lacks a lane."""
    number = {(port.rank, port.lane): port.number for port in switch.ports}

    def port(rank: int, lane: int) -> int:
        try:
            return number[rank, lane]
        except KeyError:
            raise ConfigError(
                f"GPU {rank} has no port {lane} on {switch.name}; this wiring needs at least {lane + 1} ports per GPU"
            ) from None

    return tuple(Circuit(port(rank, lane), port(peer, peer_lane)) for rank, lane, peer, peer_lane in paths)


def paths_in(switch: SwitchPlan, paths: Sequence[Hop], current: Mapping[str, Matching]) -> tuple[Hop, ...]:
    """The part of ``paths`` whose circuits on ``switch`` are in ``current``; all of them on a packet switch."""
    if switch.kind != "ocs":
        return tuple(paths)
    here = current.get(switch.name, Matching())
    return tuple(path for path, circuit in zip(paths, path_circuits(switch, paths), strict=True) if circuit in here)


def fitting(circuits: Iterable[SwitchCircuit]) -> dict[str, Matching]:
    """The matching of each switch with ``circuits``; ``ConfigError`` if two of them use the same port."""
    by_switch: dict[str, list[Circuit]] = {}
    for switch, circuit in circuits:
        by_switch.setdefault(switch, []).append(circuit)
    try:
        return {name: Matching(found) for name, found in by_switch.items()}
    except CircuitError as error:
        raise ConfigError(f"the circuits of all groups do not fit at once: {error}") from None


def rail_of_group(plan: FabricPlan, group: Group) -> SwitchPlan:
    """The rail that all members of ``group`` are on; ``ConfigError`` if they are on several."""
    rails = rails_of_group(plan, group)
    if len(rails) != 1:
        raise ConfigError(
            f"group {group.name} has members on rails {', '.join(map(str, rails))}; a group on a rail needs members "
            "of one local rank"
        )
    return plan.rail_of(group.members[0])


def rails_of_group(plan: FabricPlan, group: Group) -> list[int]:
    """The rails that the members of ``group`` are on; ``ConfigError`` for a rank that the fabric does not have."""
    for rank in group.members:
        if not 0 <= rank < plan.ranks:
            raise ConfigError(f"group {group.name} has rank {rank}; the fabric's ranks are 0 to {plan.ranks - 1}")
    return sorted({plan.rail_index(rank) for rank in group.members})


def arcs_of(groups: Iterable[Group]) -> dict[str, tuple[Hop, ...]]:
    """The paths of each EP group on the ring of the DP group of its stage that has all its members, by group name.

    EP groups without such a DP group are left out. ``ConfigError`` for a group whose members are not neighbours on the
    ring, in the order of the group.
    """
    groups = [group for group in groups if group.domain == "scale-out"]
    found = {}
    for group in groups:
        ring = _ring_below(group, groups) if group.dimension == "ep" else None
        if ring is None:
            continue
        arc = _arc(group_paths(ring), ring.members, group.members)
        if arc is None:
            raise ConfigError(
                f"the members of group {group.name} ({_listed(group.members)}) must be neighbours, in this order, on "
                f"the ring of group {ring.name} ({_listed(ring.members)}) to communicate over it",
                key="groups",
            )
        found[group.name] = arc
    return found


def _ring_below(group: Group, groups: Iterable[Group]) -> Group | None:
    """The DP group of the same stage that has all members of ``group``."""
    members = set(group.members)
    rings = (g for g in groups if g.dimension == "dp" and g.stage == group.stage and members <= set(g.members))
    return next(rings, None)


def _arc(paths: Sequence[Hop], ring: Sequence[int], members: Sequence[int]) -> tuple[Hop, ...] | None:
    """The paths of ``ring`` between ``members``: all if they are the whole ring, None if they are no arc of it."""
    count = len(ring)
    for run in (tuple(members), tuple(reversed(members))):
        start = ring.index(run[0])
        if tuple(ring[(start + i) % count] for i in range(len(run))) == run:
            return tuple(paths) if len(run) == count else tuple(paths[(start + i) % count] for i in range(len(run) - 1))
    return None


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
