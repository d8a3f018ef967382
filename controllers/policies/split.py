"""The division of the ports of a chip among its groups.

A chip that is in several groups on one fabric divides its ports evenly among them. A group uses as many ports of each
member as the member with the fewest has for it, because every hop of its ring must carry the same (MORPHLUX, arXiv
2508.03674: evenly over the groups of a fabric, then the minimum across fabrics; a chip with a TP ring and a DP ring
holds 4 circuits).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from controllers.policies.wiring import rails_of_group
from railyard.errors import ConfigError
from topos.plan import FabricPlan
from workloads.program import Group

Lanes = tuple[tuple[int, ...], ...]
"""The lanes that each member uses, in the order of members: the same number for all, but not always the same lanes.
Position k of one member's lanes is matched with the positions of the next as
``controllers.policies.wiring.matched_paths`` says.
"""


def split_ports(plan: FabricPlan, groups: Sequence[Group]) -> dict[str, Lanes]:
    """The lanes of every scale-out group of two members or more, by its name.

    A ring of more than two members uses an even number (two per circuit and hop); ports that an even split leaves over
    stay dark. A chip assigns its lanes in the order of ``groups``, so a chip that takes over the position of another
    has the same lanes. ``ConfigError`` naming the group for which a chip has no port left, and the ports it needs.
    """
    shared = [g for g in groups if g.domain == "scale-out" and len(g.members) > 1]
    for group in shared:
        rails_of_group(plan, group)
    ports = Counter(port.rank for switch in plan.network("rail") for port in switch.ports)
    _check_need(shared, ports)
    load = Counter(rank for group in shared for rank in group.members)
    assigned: Counter[int] = Counter()
    split: dict[str, Lanes] = {}
    for group in shared:
        even = min(ports[rank] // load[rank] for rank in group.members)
        least = ports_needed(group)
        count = max(least, even - even % least)
        split[group.name] = tuple(tuple(range(assigned[r], assigned[r] + count)) for r in group.members)
        assigned.update(dict.fromkeys(group.members, count))
    return split


def ports_needed(group: Group) -> int:
    """Ports that a member needs for one circuit per hop: two on a ring, one in a group of two, none in one of one."""
    return min(2, len(group.members) - 1)


def _check_need(groups: Sequence[Group], ports: Mapping[int, int]) -> None:
    """Raise ``ConfigError`` unless every chip has ports for one circuit per hop for each of its groups.

    That is also sufficient: if the even share of a ring is one port, the shares of the chip's other groups are one too.
    """
    needed = Counter(rank for group in groups for rank in group.members for _ in range(ports_needed(group)))
    promised: Counter[int] = Counter()
    for group in groups:
        promised.update(dict.fromkeys(group.members, ports_needed(group)))
        for rank in group.members:
            if promised[rank] > ports[rank]:
                raise ConfigError(
                    f"group {group.name} gets no port of chip {rank}, which has {ports[rank]}; one circuit per hop "
                    f"for each of its groups needs {needed[rank]}",
                    key="fabric.ports",
                )
