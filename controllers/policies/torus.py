"""Electrical racks: a torus of packet switches, where a failed chip is worked around or the job moves out.

Both are baselines of MORPHLUX (arXiv 2508.03674), and of LUMION (arXiv 2505.23105) after it: a spare in the same rack
that is reached over other chips' links (E1), and migration to a rack that stands free (E0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controllers.circuits.torus_routes import distances
from controllers.policies.policy import ClusterState, Wiring
from controllers.policies.rack_policy import RackPolicy
from controllers.policies.wiring import ring_neighbours
from railyard.protocol import Hop
from topos.plan import FabricPlan
from workloads.program import Group


class TorusPolicy(RackPolicy):
    """No circuits: packets find their way hop by hop (``controllers.circuits.torus_routes``), over whoever's links
    those are.

    A dead chip is replaced by the free one with the fewest hops to its ring neighbours.
    """

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan)
        self._dead: set[int] = set()

    def see(self, state: ClusterState) -> None:
        """Ways lead round every dead chip from now on."""
        self._dead.update(state.dead)

    def start(self, groups: Sequence[Group]) -> Wiring:
        """Nothing to install; ``ConfigError`` for a group that is not on the torus."""
        self.scale_out(groups, "electrical")
        return {}

    def paths(self, group: Group, standing: Wiring) -> tuple[Hop, ...]:
        """None in particular: packet switches find each transfer's way."""
        return ()

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """The free chip with the fewest hops to the ring neighbours, all together.

        Of equals the one whose longest way is the shortest (a ring is as fast as that), then the first in the plan.
        Ways lead round ``dead``, the dead chips that it was told of and those that it was asked about before; a
        neighbour that is one of these does not count. Nobody if no spare reaches all neighbours.
        """
        self._dead.add(dead)
        beside = [r for g in groups if dead in g.members for r in ring_neighbours(g.members, dead)]
        ways = [distances(self.plan, rank, self._dead) for rank in beside if rank not in self._dead]
        reached = [spare for spare in free if all(spare in way for way in ways)]
        near = {spare: [way[spare] for way in ways] for spare in reached}
        return {dead: min(near, key=lambda spare: (sum(near[spare]), max(near[spare])))} if near else {}


class MigratePolicy(TorusPolicy):
    """The whole job moves to the same places of another rack, if all of them are free there; else nobody can."""

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """Every member and its counterpart in the first later rack where the slice is free."""
        members = sorted({rank for group in groups for rank in group.members})
        chips = self.torus.chips
        for away in range(chips, chips * self.rack.racks, chips):
            moved = {rank: rank + away for rank in members}
            if set(moved.values()) <= set(free):
                return moved
        return {}
