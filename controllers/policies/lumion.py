"""LUMION (arXiv 2505.23105): a rack of circuit switches that splices a spare into the place of a dead accelerator.

A chip that is in several groups on one fabric divides its ports evenly among them (``split_ports``). A group uses as
many ports of each member as the member with the fewest has for it, because every hop of its ring must carry the same
(MORPHLUX, arXiv 2508.03674, by the same authors: evenly over the groups of a fabric, then the minimum across fabrics; a
chip with a TP ring and a DP ring holds 4 circuits). When a chip fails, the spare takes its position in each group and
gets circuits to the neighbours of the dead chip; all other circuits stay up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from controllers.circuits.circuits import Matching, SwitchCircuit
from controllers.policies.policy import StandingPolicy, Wiring
from controllers.policies.wiring import fitting, matched_paths, path_circuits, rail_of_group, rails_of_group
from railyard.errors import ConfigError
from railyard.protocol import Hop
from topos.plan import FabricPlan, RackPlan, SwitchKind
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
        """The scale-out groups, for one that is the ``parent`` of pairs these alone.

        ``ConfigError`` for a rank that is unknown or on a switch of another kind.
        """
        parents = {group.parent for group in groups}
        found = [group for group in groups if group.domain == "scale-out" and group.name not in parents]
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


Lanes = tuple[tuple[int, ...], ...]
"""The lanes that each member uses, in the order of members: the same number for all, but not always the same lanes.
Position k of one member's lanes is matched with the positions of the next as
``controllers.policies.wiring.matched_paths`` says.
"""


def split_ports(plan: FabricPlan, groups: Sequence[Group]) -> dict[str, Lanes]:
    """The lanes of every scale-out group of two members or more, by its name.

    A ring of more than two members uses an even number (two per circuit and hop); ports that an even split leaves over
    stay dark. A chip assigns its lanes in the order of ``groups``, so a chip that takes over the position of another
    has the same lanes. ``ConfigError`` naming the group for which a chip has no port left, and the ports it needs.
    """
    shared = [g for g in groups if g.domain == "scale-out" and len(g.members) > 1]
    for group in shared:
        rails_of_group(plan, group)
    ports = Counter(port.rank for switch in plan.network("rail") for port in switch.ports)
    _check_need(shared, ports)
    load = Counter(rank for group in shared for rank in group.members)
    assigned: Counter[int] = Counter()
    split: dict[str, Lanes] = {}
    for group in shared:
        even = min(ports[rank] // load[rank] for rank in group.members)
        least = ports_needed(group)
        count = max(least, even - even % least)
        split[group.name] = tuple(tuple(range(assigned[r], assigned[r] + count)) for r in group.members)
        assigned.update(dict.fromkeys(group.members, count))
    return split


def ports_needed(group: Group) -> int:
    """Ports that a member needs for one circuit per hop: two on a ring, one in a group of two, none in one of one."""
    return min(2, len(group.members) - 1)


def _check_need(groups: Sequence[Group], ports: Mapping[int, int]) -> None:
    """Raise ``ConfigError`` unless every chip has ports for one circuit per hop for each of its groups.

    That is also sufficient: if the even share of a ring is one port, the shares of the chip's other groups are one too.
    """
    needed = Counter(rank for group in groups for rank in group.members for _ in range(ports_needed(group)))
    promised: Counter[int] = Counter()
    for group in groups:
        promised.update(dict.fromkeys(group.members, ports_needed(group)))
        for rank in group.members:
            if promised[rank] > ports[rank]:
                raise ConfigError(
                    f"group {group.name} gets no port of chip {rank}, which has {ports[rank]}; one circuit per hop "
                    f"for each of its groups needs {needed[rank]}",
                    key="fabric.ports",
                )


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
        if group.name not in self._lanes:
            return super().paths(group, current)
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
