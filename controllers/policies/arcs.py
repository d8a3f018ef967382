"""Groups that talk over circuits which stand for another: expert-parallel ones on the rings of data-parallel ones.

All-to-alls have no circuits of their own (Opus, arXiv 2602.12521, expert parallelism): what they move is forwarded from
member to member over the ring of the moment. The members of an EP group stand next to each other on it, as the EP index
runs faster than the DP index (``workloads.training.ranks``): they have an arc of the ring, or all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controllers.policies.wiring import group_paths
from railyard.errors import ConfigError
from railyard.protocol import Hop
from workloads.program import Group


def arcs_of(groups: Iterable[Group], low: int = 0, high: int = 1) -> dict[str, tuple[Hop, ...]]:
    """By name of each EP group on the rails whose members are all in one DP group of its stage: the paths it has there.

    An EP group of which no DP group has all members is not among them. ``ConfigError`` for one whose members do not
    stand next to each other on the ring, in its order.
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
                f"the members of group {group.name} ({_listed(group.members)}) do not stand next to each other, in "
                f"this order, on the ring of group {ring.name} ({_listed(ring.members)}); they must, to talk over it",
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
    """Of ``paths`` round ``ring`` those between ``members``, None where they are no arc; a whole ring has all."""
    count = len(ring)
    for run in (tuple(members), tuple(reversed(members))):
        start = ring.index(run[0])
        if tuple(ring[(start + i) % count] for i in range(len(run))) == run:
            return tuple(paths) if len(run) == count else tuple(paths[(start + i) % count] for i in range(len(run) - 1))
    return None


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
