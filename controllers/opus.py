"""The Opus policy: one bit per pipeline stage and rail says which parallelism dimension has the ports.

Bit 0: the stage's ports form the ring of its data-parallel group. Bit 1: they are joined, per data-parallel index,
to those of the adjacent stages whose bit is 1 too (a chain, no wrap). A pipeline request between stages s and s + 1
sets both bits, a data-parallel request of stage s clears bit s; stages may diverge. When to ask (on-demand or
provisioned) is the agents' business, so one policy serves both.

Source: Opus, arXiv 2602.12521, control plane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controllers.circuits import Matching
from controllers.policy import Path, Policy, Wiring
from controllers.wiring import group_paths, path_circuits, rail_of_group
from railyard.errors import CircuitError, ConfigError
from topos.plan import SwitchPlan
from workloads.program import Group

RING, CHAIN = 0, 1
NOTHING = Matching()


@dataclass
class RailGroups:
    """The circuits of one job on one rail: rings by stage, chains by upstream stage."""

    switch: SwitchPlan
    rings: dict[int, Matching] = field(default_factory=dict)
    chains: dict[int, Matching] = field(default_factory=dict)

    def add(self, group: Group) -> None:
        """Take in one group; ``CircuitError`` if it takes a port that another group of its stage has."""
        table = self.chains if group.dimension == "pp" else self.rings
        there = table.get(group.stage, Matching())
        table[group.stage] = Matching([*there, *path_circuits(self.switch, group_paths(group))])

    @property
    def stages(self) -> list[int]:
        """All pipeline stages that have a group here."""
        return sorted({*self.rings, *self.chains, *(s + 1 for s in self.chains)})

    def ring(self, stage: int) -> Matching:
        """The rings of one stage (empty where the stage has none of two members or more)."""
        return self.rings.get(stage, NOTHING)

    def ports(self) -> frozenset[int]:
        """Every port that any configuration of this rail uses."""
        return frozenset().union(*(m.ports for m in (*self.rings.values(), *self.chains.values())))


def wire(rail: RailGroups, bits: Mapping[int, int]) -> Matching:
    """The circuits of a rail for its bit vector."""
    circuits = [c for s in rail.stages if bits[s] == RING for c in rail.ring(s)]
    for stage, chain in rail.chains.items():
        if bits[stage] == CHAIN and bits[stage + 1] == CHAIN:
            circuits += chain
    return Matching(circuits)


def read_bits(rail: RailGroups, standing: Matching) -> dict[int, int]:
    """The bit vector that ``standing`` shows: a stage is in its ring if a circuit of that ring stands."""
    return {s: RING if rail.ring(s).circuits & standing.circuits else CHAIN for s in rail.stages}


class OpusPolicy(Policy):
    """On-demand and provisioned reconfiguration of one OCS per rail."""

    def start(self, groups: Sequence[Group]) -> Wiring:
        """Every stage in its ring; one without data parallelism in the chain (a pipeline-only job never changes)."""
        self._rails: dict[str, RailGroups] = {}
        for group in groups:
            if group.domain == "scale-out":
                self._add(group)
        return {
            name: wire(rail, {s: RING if rail.ring(s) else CHAIN for s in rail.stages})
            for name, rail in self._rails.items()
        }

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        """The rail with the bits of the group's stages set (pipeline) or cleared (ring); other jobs' circuits stay."""
        rail = self._rail(group)
        here = standing.get(rail.switch.name, NOTHING)
        bits = read_bits(rail, here)
        if group.dimension == "pp":
            bits[group.stage] = bits[group.stage + 1] = CHAIN
        else:
            bits[group.stage] = RING
        return {rail.switch.name: Matching([*here.without_ports(rail.ports()), *wire(rail, bits)])}

    def paths(self, group: Group, standing: Wiring) -> tuple[Path, ...]:
        """Those of the group's own paths whose circuits stand."""
        rail = self._rail(group)
        here = standing.get(rail.switch.name, NOTHING)
        meant = group_paths(group)
        circuits = path_circuits(rail.switch, meant)
        return tuple(path for path, circuit in zip(meant, circuits, strict=True) if circuit in here)

    def _rail(self, group: Group) -> RailGroups:
        return self._rails[rail_of_group(self.plan, group).name]

    def _add(self, group: Group) -> None:
        switch = rail_of_group(self.plan, group)
        if switch.kind != "ocs":
            raise ConfigError(f"the opus policy needs optical rails; {switch.name} is {switch.kind}", key="fabric.kind")
        rail = self._rails.setdefault(switch.name, RailGroups(switch))
        if group.dimension not in ("dp", "pp"):
            raise ConfigError(
                f"group {group.name} has dimension {group.dimension} on the rails; the opus policy wires dp and pp",
                key="policy",
            )
        try:
            rail.add(group)
        except CircuitError as error:
            raise ConfigError(f"the groups of stage {group.stage} do not fit on {switch.name}: {error}") from None
