"""LUMION (arXiv 2505.23105): a rack of circuit switches that splices a spare into the place of a dead accelerator.

The ports of a chip are divided among its groups. When a chip fails, the spare takes its position in each group and gets
circuits to the neighbours of the dead chip; all other circuits stay up. The even division of ports over groups is the
rule of MORPHLUX (arXiv 2508.03674), by the same authors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controllers.circuits.circuits import Matching, SwitchCircuit
from controllers.policies.policy import Wiring
from controllers.policies.rack_policy import RackPolicy
from controllers.policies.split import Lanes, ports_needed, split_ports
from controllers.policies.wiring import fitting, matched_paths, path_circuits, rail_of_group
from railyard.protocol import Hop
from topos.plan import FabricPlan
from workloads.program import Group


class LumionPolicy(RackPolicy):
    """Rings over all ports of the chips; the first free spare replaces a dead chip."""

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan)
        self._lanes: Mapping[str, Lanes] = {}

    def start(self, groups: Sequence[Group]) -> Wiring:
        """The circuits of all scale-out groups; ``ConfigError`` for a group without ports (``split_ports``)."""
        lanes = self.lanes(self.scale_out(groups, "ocs"))
        wiring = fitting(circuit for group in groups for circuit, _ in self._circuits(group, lanes))
        self._lanes = lanes
        return wiring

    def lanes(self, groups: Sequence[Group]) -> Mapping[str, Lanes]:
        return split_ports(self.plan, groups)

    def paths(self, group: Group, current: Wiring) -> tuple[Hop, ...]:
        return tuple(
            path
            for (switch, circuit), path in self._circuits(group, self._lanes)
            if circuit in current.get(switch, Matching())
        )

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """The replacement of ``dead`` by the first free spare; empty if no spare is free."""
        return {dead: free[0]} if free else {}

    def _circuits(self, group: Group, lanes: Mapping[str, Lanes]) -> list[tuple[SwitchCircuit, Hop]]:
        """The circuit and the path of every hop of ``group``; none for a group without ``lanes``."""
        if group.name not in lanes:
            return []
        switch, paths = rail_of_group(self.plan, group), matched_paths(group.members, lanes[group.name])
        return [((switch.name, c), path) for path, c in zip(paths, path_circuits(switch, paths), strict=True)]


class FixedPortsPolicy(LumionPolicy):
    """A photonic rack that splices and does not steer: the first free spare replaces a dead chip as in LUMION.

    Every port is fixed to a direction of the torus, as on an electrical rack. A ring then uses the ports of two of the
    directions of a chip and has one circuit per hop; the other ports stay dark. (Railyard's, to tell what a splice is
    worth from what steering is worth; no paper builds this rack.)
    """

    def lanes(self, groups: Sequence[Group]) -> Mapping[str, Lanes]:
        needed = {group.name: ports_needed(group) for group in groups}
        split = split_ports(self.plan, groups)
        return {name: tuple(lanes[: needed[name]] for lanes in members) for name, members in split.items()}
