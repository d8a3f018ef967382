"""Circuits that follow a schedule: each collective requests the circuits of its rounds one by one.

A circuit group (two members, ``lanes``, ``parent``) gets its circuit in place of those that used its two ports; the
group of the whole collective sends no requests. Any other group on the rails gets its ring or pair the same way. The
circuits that are requested first are up from the start. On packet switches nothing changes: groups get their paths.
"""

from __future__ import annotations

from collections.abc import Sequence

from controllers.circuits.circuits import Matching
from controllers.policies.policy import Policy, Wiring
from controllers.policies.wiring import group_paths, path_circuits, paths_in, rail_of_group
from railyard.errors import ConfigError
from railyard.protocol import Hop
from workloads.program import Group


class FollowPolicy(Policy):
    """Sets up the circuits of each request in place of all that share a port with them."""

    def start(self, groups: Sequence[Group]) -> Wiring:
        """For each port the circuit of the first group that uses it. ``ConfigError`` for a pair on two rails."""
        self._parents = {group.parent for group in groups if group.parent}
        wiring: dict[str, Matching] = {}
        for group in groups:
            if not self.asks(group):
                continue
            switch = rail_of_group(self.plan, group)
            if switch.kind != "ocs":
                continue
            wanted = Matching(path_circuits(switch, self._own_paths(group)))
            others = wiring.get(switch.name, Matching())
            if not others.ports & wanted.ports:
                wiring[switch.name] = Matching([*others, *wanted])
        return wiring

    def asks(self, group: Group) -> bool:
        """Whether ``group`` sends requests: all groups on the rails do, except parents of circuit groups."""
        return group.domain == "scale-out" and group.name not in self._parents

    def wanted(self, group: Group, current: Wiring) -> Wiring:
        switch = rail_of_group(self.plan, group)
        if switch.kind != "ocs":
            return {}
        here = current.get(switch.name, Matching())
        return {switch.name: here.replaced_by(Matching(path_circuits(switch, self._own_paths(group))))}

    def paths(self, group: Group, current: Wiring) -> tuple[Hop, ...]:
        """The paths of ``group``; on an optical rail those whose circuits are in ``current``."""
        if group.name in self._parents:
            return ()
        return paths_in(rail_of_group(self.plan, group), self._own_paths(group), current)

    def _own_paths(self, group: Group) -> tuple[Hop, ...]:
        if group.lanes is None:
            return group_paths(group, high=min(1, self.plan.ports_per_gpu - 1))
        if len(group.members) != 2:
            raise ConfigError(f"group {group.name} has lanes and {len(group.members)} members; it must have 2 members")
        (a, b), (lane_a, lane_b) = group.members, group.lanes
        missing = [lane for lane in group.lanes if lane >= self.plan.ports_per_gpu]
        if missing:
            raise ConfigError(
                f"group {group.name} uses port {missing[0]} of a GPU; this fabric has {self.plan.ports_per_gpu}"
            )
        return (Hop(a, lane_a, b, lane_b),)
