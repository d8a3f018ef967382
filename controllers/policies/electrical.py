"""Electrical rails with the control path of an OCS: groups send requests, which are granted at once.

This baseline has the overhead of the control path and no other. Each group sends over the same ports as on an OCS, so
both fabrics carry the same bytes over the same host links.
"""

from __future__ import annotations

from controllers.policies.policy import Policy, Wiring
from controllers.policies.wiring import group_paths, rail_of_group
from railyard.protocol import Hop
from workloads.program import Group


class ElectricalPolicy(Policy):
    """Packet switches without circuits, with the port assignment of the Opus wiring."""

    def wanted(self, group: Group, current: Wiring) -> Wiring:
        return {}

    def paths(self, group: Group, current: Wiring) -> tuple[Hop, ...]:
        """The ring or pair of ``group`` over lanes 0 and 1 (over lane 0 alone where a GPU has one port)."""
        rail_of_group(self.plan, group)
        return group_paths(group, high=min(1, self.plan.ports_per_gpu - 1))
