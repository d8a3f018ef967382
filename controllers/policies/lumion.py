"""LUMION (arXiv 2505.23105): a rack of circuit switches that splices a spare into the place of a dead accelerator.

The ports of a chip are divided among its groups. When a chip fails, the spare takes its position in each group and gets
circuits to the neighbours of the dead chip; all other circuits stay up. The even division of ports over groups is the
rule of MORPHLUX (arXiv 2508.03674), by the same authors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from controllers.circuits.circuits import Circuit, Matching, SwitchCircuit
from controllers.policies.policy import Wiring
from controllers.policies.rack_policy import RackPolicy
from controllers.policies.split import Lanes, split_ports
from controllers.policies.wiring import matched_paths, path_circuits, rail_of_group
from railyard.errors import CircuitError, ConfigError
from railyard.protocol import Hop
from topos.plan import FabricPlan
from workloads.program import Group


class LumionPolicy(RackPolicy):
    """Rings over all ports of the chips; the first free spare replaces a dead chip."""

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan)
        self._lanes: dict[str, Lanes] = {}

    def start(self, groups: Sequence[Group]) -> Wiring:
        """The circuits of all scale-out groups; ``ConfigError`` for a group without ports (``split_ports``)."""
        lanes = split_ports(self.plan, self.scale_out(groups, "ocs"))
        wiring = self.wiring(groups, lanes)
        self._lanes = lanes
        return wiring

    def paths(self, group: Group, current: Wiring) -> tuple[Hop, ...]:
        """The paths of ``group`` whose circuits are in ``current``."""
        lanes = self._lanes.get(group.name, ())
        return tuple(
            path
            for switch, path, circuit in self._own_paths(group, lanes)
            if circuit in current.get(switch, Matching())
        )

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """The replacement of ``dead`` by the first free spare; empty if no spare is free."""
        return {dead: free[0]} if free else {}

    def wiring(self, groups: Sequence[Group], lanes: Mapping[str, Lanes]) -> Wiring:
        """The circuits of ``groups`` over ``lanes``, by switch."""
        return self.matchings(
            (switch, circuit)
            for group in groups
            for switch, _, circuit in self._own_paths(group, lanes.get(group.name, ()))
        )

    def matchings(self, circuits: Iterable[SwitchCircuit]) -> Wiring:
        """The matching of each switch with ``circuits``; ``ConfigError`` if two of them use the same port."""
        by_switch: dict[str, list[Circuit]] = {}
        for switch, circuit in circuits:
            by_switch.setdefault(switch, []).append(circuit)
        try:
            return {name: Matching(found) for name, found in by_switch.items()}
        except CircuitError as error:
            raise ConfigError(f"the circuits of all groups do not fit at once: {error}", key="fabric.ports") from None

    def _own_paths(self, group: Group, lanes: Lanes) -> Iterator[tuple[str, Hop, Circuit]]:
        """The switch, path and circuit of every hop of ``group``."""
        if lanes:
            switch = rail_of_group(self.plan, group)
            paths = matched_paths(group.members, lanes)
            yield from ((switch.name, p, c) for p, c in zip(paths, path_circuits(switch, paths), strict=True))
