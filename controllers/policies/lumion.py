"""LUMION (arXiv 2505.23105): a rack of circuit switches that splices a spare into a dead accelerator's place.

Every port of a chip is steered to the groups it is in. When a chip dies, the spare takes its position in each group and
gets circuits to the dead one's neighbours; all others stay as they are. That ports are divided evenly over groups is
MORPHLUX's rule (arXiv 2508.03674), of the same authors.
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
    """Rings over all ports; the first free spare takes a dead chip's place."""

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan)
        self._lanes: dict[str, Lanes] = {}

    def start(self, groups: Sequence[Group]) -> Wiring:
        """The circuits of all scale-out groups; ``ConfigError`` for a group that finds no port (``split_ports``)."""
        lanes = split_ports(self.plan, self.scale_out(groups, "ocs"))
        wiring = self.wiring(groups, lanes)
        self._lanes = lanes
        return wiring

    def paths(self, group: Group, standing: Wiring) -> tuple[Hop, ...]:
        """Those of the group's own paths whose circuits stand."""
        lanes = self._lanes.get(group.name, ())
        return tuple(
            path for switch, path, circuit in self._meant(group, lanes) if circuit in standing.get(switch, Matching())
        )

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """The first free spare."""
        return {dead: free[0]} if free else {}

    def wiring(self, groups: Sequence[Group], lanes: Mapping[str, Lanes]) -> Wiring:
        """The circuits of ``groups`` over ``lanes``, by switch."""
        return self.matchings(
            (switch, circuit)
            for group in groups
            for switch, _, circuit in self._meant(group, lanes.get(group.name, ()))
        )

    def matchings(self, lights: Iterable[SwitchCircuit]) -> Wiring:
        """Circuits by switch; ``ConfigError`` where two want the same port."""
        circuits: dict[str, list[Circuit]] = {}
        for switch, circuit in lights:
            circuits.setdefault(switch, []).append(circuit)
        try:
            return {name: Matching(found) for name, found in circuits.items()}
        except CircuitError as error:
            raise ConfigError(f"the circuits of all groups do not fit at once: {error}", key="fabric.ports") from None

    def _meant(self, group: Group, lanes: Lanes) -> Iterator[tuple[str, Hop, Circuit]]:
        """The switch, path and circuit of every hop of ``group``."""
        if lanes:
            switch = rail_of_group(self.plan, group)
            paths = matched_paths(group.members, lanes)
            yield from ((switch.name, p, c) for p, c in zip(paths, path_circuits(switch, paths), strict=True))
