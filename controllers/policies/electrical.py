"""Electrical rails under a control plane: groups ask as on an OCS, and are granted at once.

The baseline that pays for the control path and for nothing else. Each group sends over the same ports as it would
on an OCS, so both fabrics carry the same bytes over the same host links.
"""

from __future__ import annotations

from controllers.policies.policy import Policy, Wiring
from controllers.policies.wiring import group_paths, rail_of_group
from railyard.protocol import Hop
from workloads.program import Group


class ElectricalPolicy(Policy):
    """No circuits; the port assignment of the Opus wiring."""

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        """Nothing: packet switches reach everybody."""
        return {}

    def paths(self, group: Group, standing: Wiring) -> tuple[Hop, ...]:
        """Ring or pair over lanes 0 and 1 (over lane 0 alone where a GPU has one port)."""
        rail_of_group(self.plan, group)
        return group_paths(group, high=min(1, self.plan.ports_per_gpu - 1))
