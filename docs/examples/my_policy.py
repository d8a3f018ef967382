"""A policy of your own: it moves only the circuits that the asking group needs.

Opus moves a whole pipeline stage when one pair asks. This policy moves only the pair or the ring that asked: fewer
ports go dark at once, at the price of more reconfigurations. Run it with

    sudo railyard run rails --policy docs/examples/my_policy.py:PairByPair

A policy is one class with one method, ``wanted``: given the group that asked and all existing circuits, it returns the
complete circuits of each switch that must change. It uses no clock, no socket and no flow table. The engine does the
rest for every policy: it waits until all members have asked, leaves circuits with traffic alone and asks the policy
again later, keeps the ports dark for the configured delay, and acknowledges.
"""

from __future__ import annotations

from collections.abc import Sequence

from controllers.circuits.circuits import Matching
from controllers.policies.policy import Policy, Wiring
from controllers.policies.wiring import group_paths, path_circuits, rail_of_group
from workloads.program import Group


class PairByPair(Policy):
    """Joins exactly the ports that the asking group needs, and takes them from the groups that had them."""

    def start(self, groups: Sequence[Group]) -> Wiring:
        """Begin with the first ring of each rail, so that the first phase costs nothing."""
        wiring: dict[str, Matching] = {}
        for group in groups:
            if group.domain == "scale-out" and group.dimension == "dp":
                wiring.update(self.wanted(group, wiring))
        return wiring

    def wanted(self, group: Group, current: Wiring) -> Wiring:
        """The existing circuits of the group's rail, with the group's own circuits in place of those on its ports."""
        rail = rail_of_group(self.plan, group)
        mine = Matching(path_circuits(rail, group_paths(group)))
        return {rail.name: current.get(rail.name, Matching()).replaced_by(mine)}
