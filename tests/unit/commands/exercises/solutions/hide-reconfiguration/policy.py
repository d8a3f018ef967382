"""A solution of lab hide-reconfiguration: from the break-even on, circuits stand that fit the ports of all groups."""

from __future__ import annotations

from collections.abc import Sequence

from controllers.circuits.circuits import Matching
from controllers.engine.jobs import Job
from controllers.policies.policy import Policy, Wiring
from controllers.policies.wiring import group_paths, path_circuits, rail_of_group
from railyard.protocol import Hop
from workloads.program import Group

BREAK_EVEN_S = 0.071
"""Half of what a step with circuits that stand takes longer: such a step has two reconfigurations."""


class Hide(Policy):
    """Decides which circuits a group has, and when they change."""

    delay_s = 0.0
    """The time of a reconfiguration, in seconds."""

    def prepare(self, job: Job) -> None:
        """Called once, before everything else."""
        self.delay_s = job.dark_s

    def own_paths(self, group: Group) -> Sequence[Hop]:
        """The paths of a group: `Hop(rank, port, other rank, its port)`; ports of a GPU are 0 and 1.

        `group.members` are its ranks, `group.dimension` is "dp" or "pp", `group.stage` its stage of the pipeline.
        """
        if self.delay_s < BREAK_EVEN_S or group.dimension == "pp":
            return group_paths(group)
        first, second = group.members
        free = group.stage  # the chain uses port 1 of stage 0 and port 0 of stage 1
        return [Hop(first, free, second, free)]

    def joined(self, group: Group, current: Wiring) -> Wiring:
        """The `current` circuits of the group's rail, with those of its own paths in place of those on their ports."""
        rail = rail_of_group(self.plan, group)
        own = Matching(path_circuits(rail, self.own_paths(group)))
        return {rail.name: current.get(rail.name, Matching()).replaced_by(own)}

    def start(self, groups: Sequence[Group]) -> Wiring:
        """The circuits before the first step, which cost no delay."""
        wiring: dict[str, Matching] = {}
        for group in groups:
            if group.domain == "scale-out" and (group.dimension == "dp" or self.delay_s >= BREAK_EVEN_S):
                wiring.update(self.joined(group, wiring))
        return wiring

    def wanted(self, group: Group, current: Wiring) -> Wiring:
        """The circuits that must exist when `group` asks; if they exist already, there is no delay."""
        return self.joined(group, current)
