"""Policies of electrical racks, a torus of packet switches: a failed chip is replaced, or the job migrates.

Both are baselines of MORPHLUX (arXiv 2508.03674) and LUMION (arXiv 2505.23105): a spare in the same rack that is
reached over the links of other chips (E1), and migration to a free rack (E0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controllers.circuits.torus_routes import distances
from controllers.policies.lumion import RackPolicy
from controllers.policies.policy import ClusterState, Wiring
from controllers.policies.wiring import ring_neighbours
from railyard.protocol import Hop
from topos.plan import FabricPlan
from workloads.program import Group


class TorusPolicy(RackPolicy):
    """Routes packets hop by hop over the links of any chips (``controllers.circuits.torus_routes``).

    A dead chip is replaced by the free one with the fewest hops to its ring neighbours.
    """

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan)
        self._dead: set[int] = set()

    def see(self, state: ClusterState) -> None:
        """Take the dead chips of the cluster, which distances avoid from now on."""
        self._dead.update(state.dead)

    def start(self, groups: Sequence[Group]) -> Wiring:
        """No circuits; ``ConfigError`` for a group that is not on the torus."""
        self.scale_out(groups, "electrical")
        return {}

    def paths(self, group: Group, current: Wiring) -> tuple[Hop, ...]:
        return ()

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """The replacement of ``dead`` by the free chip with the fewest hops in total to its ring neighbours.

        Ties go to the chip whose longest distance is shortest (it limits the speed of the ring), then to the first in
        the plan. Distances avoid ``dead``, the dead chips of ``see`` and those of earlier calls; neighbours among these
        do not count. Empty if no spare reaches all neighbours.
        """
        self._dead.add(dead)
        rings = [g for g in groups if dead in g.members and g.domain == "scale-out"]
        neighbours = [r for g in rings for r in ring_neighbours(g.members, dead)]
        hops_from = [distances(self.plan, rank, self._dead) for rank in neighbours if rank not in self._dead]
        reachable = [spare for spare in free if all(spare in hops for hops in hops_from)]
        near = {spare: [hops[spare] for hops in hops_from] for spare in reachable}
        return {dead: min(near, key=lambda spare: (sum(near[spare]), max(near[spare], default=0)))} if near else {}


class MigratePolicy(TorusPolicy):
    """Moves the whole job to the same positions of another rack, if all of them are free there."""

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """Every member and its counterpart in the first later rack where all counterparts are free; else empty."""
        members = sorted({rank for group in groups if group.domain == "scale-out" for rank in group.members})
        chips = self.torus.chips
        for offset in range(chips, chips * self.rack.racks, chips):
            moved = {rank: rank + offset for rank in members}
            if set(moved.values()) <= set(free):
                return moved
        return {}
