"""Arcs: the paths of expert-parallel groups over the rings of data-parallel groups.

All-to-alls have no circuits of their own (Opus, arXiv 2602.12521, expert parallelism): their data is forwarded from
member to member over the ring of the data-parallel group. The members of an EP group are neighbours on that ring, as
the EP index runs faster than the DP index (``workloads.training.ranks``): they have an arc of the ring, or all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controllers.policies.wiring import group_paths
from railyard.errors import ConfigError
from railyard.protocol import Hop
from workloads.program import Group


def arcs_of(groups: Iterable[Group], low: int = 0, high: int = 1) -> dict[str, tuple[Hop, ...]]:
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
        arc = _arc(group_paths(ring, low, high), ring.members, group.members)
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
