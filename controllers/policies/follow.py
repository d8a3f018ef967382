"""Circuits that follow a schedule: each collective asks for the circuits of its rounds, one by one, as it gets there.

A circuit group (two members, ``lanes``, ``parent``) gets its circuit from whoever had the two ports; the collective's
own group does not ask. Any other group on the rails gets its ring or pair the same way. The circuits that are asked for
first stand from the start. On packet switches there is nothing to change: groups are told their paths.
"""

from __future__ import annotations

from collections.abc import Sequence

from controllers.circuits.circuits import Matching
from controllers.policies.policy import Policy, Wiring
from controllers.policies.wiring import group_paths, path_circuits, rail_of_group
from railyard.errors import ConfigError
from railyard.protocol import Hop
from workloads.program import Group


class FollowPolicy(Policy):
    """A circuit for whoever asks, taken from whoever had its ports."""

    def start(self, groups: Sequence[Group]) -> Wiring:
        """For each port the circuit of the first group that wants it. ``ConfigError`` for a pair on two rails."""
        self._parents = {group.parent for group in groups if group.parent}
        wiring: dict[str, Matching] = {}
        for group in groups:
            if not self.asks(group):
                continue
            switch = rail_of_group(self.plan, group)
            if switch.kind != "ocs":
                continue
            wanted = Matching(path_circuits(switch, self._meant(group)))
            standing = wiring.get(switch.name, Matching())
            if not standing.ports & wanted.ports:
                wiring[switch.name] = Matching([*standing, *wanted])
        return wiring

    def asks(self, group: Group) -> bool:
        """Every group on the rails but those whose circuits ask for themselves."""
        return group.domain == "scale-out" and group.name not in self._parents

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        """The group's circuits; whatever stood on their ports is gone."""
        switch = rail_of_group(self.plan, group)
        if switch.kind != "ocs":
            return {}
        here = standing.get(switch.name, Matching())
        return {switch.name: here.replaced_by(Matching(path_circuits(switch, self._meant(group))))}

    def paths(self, group: Group, standing: Wiring) -> tuple[Hop, ...]:
        """The group's own paths, on an optical rail those whose circuits stand."""
        if group.name in self._parents:
            return ()
        switch, meant = rail_of_group(self.plan, group), self._meant(group)
        if switch.kind != "ocs":
            return meant
        here = standing.get(switch.name, Matching())
        return tuple(p for p, c in zip(meant, path_circuits(switch, meant), strict=True) if c in here)

    def _meant(self, group: Group) -> tuple[Hop, ...]:
        if group.lanes is None:
            return group_paths(group, high=min(1, self.plan.ports_per_gpu - 1))
        if len(group.members) != 2:
            raise ConfigError(f"group {group.name} has lanes and {len(group.members)} members; a circuit joins 2")
        (a, b), (lane_a, lane_b) = group.members, group.lanes
        missing = [lane for lane in group.lanes if lane >= self.plan.ports_per_gpu]
        if missing:
            raise ConfigError(
                f"group {group.name} uses port {missing[0]} of a GPU; this fabric has {self.plan.ports_per_gpu}",
                key="fabric.ports",
            )
        return (Hop(a, lane_a, b, lane_b),)
