"""Base class of rack policies, whose circuits change only at allocation and on failures, without requests."""

from __future__ import annotations

from collections.abc import Sequence

from controllers.policies.policy import StandingPolicy
from controllers.policies.wiring import rails_of_group
from railyard.errors import ConfigError
from topos.plan import RackPlan, SwitchKind
from topos.torus import Torus
from workloads.program import Group


class RackPolicy(StandingPolicy):
    """Base of the policies of racks: groups get their paths at check-in and send no requests."""

    @property
    def rack(self) -> RackPlan:
        """The rack of the plan; ``ConfigError`` if the fabric is not a rack."""
        if self.plan.rack is None:
            raise ConfigError(
                f"this policy needs a rack of accelerators on a torus; fabric {self.plan.fabric} has none", key="policy"
            )
        return self.plan.rack

    @property
    def torus(self) -> Torus:
        return Torus(self.rack.torus, self.rack.server)

    def scale_out(self, groups: Sequence[Group], kind: SwitchKind) -> list[Group]:
        """The scale-out groups; ``ConfigError`` for a rank that is unknown or on a switch of another kind."""
        found = [group for group in groups if group.domain == "scale-out"]
        rails = self.plan.network("rail")
        for group in found:
            for rail in rails_of_group(self.plan, group):
                if rails[rail].kind != kind:
                    raise ConfigError(
                        f"group {group.name} is on {rails[rail].name}, which is {rails[rail].kind}; this policy needs "
                        f"a rack of kind {kind}",
                        key="fabric.kind",
                    )
        return found
