"""The Opus policy: for each pipeline stage and rail, which parallelism dimension has the ports.

Bit 0: the stage's ports form the ring of its data-parallel group. Bit 1: they are joined, per data-parallel index,
to those of the adjacent stages whose bit is 1 too (a chain, no wrap). A pipeline request between stages s and s + 1
sets both bits, a data-parallel request of stage s clears bit s; stages may diverge. When to ask (on-demand or
provisioned) is the agents' business, so one policy serves both.

With expert parallelism an all-to-all talks over the data-parallel ring, hop by hop (``controllers.policies.arcs``), so
it clears the bit like one. Where experts need rings of their own for their gradients (dimension ``edp``), that is a
third state of a stage; circuits that take turns (``controllers.policies.rotor``) are a fourth.

Source: Opus, arXiv 2602.12521, control plane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controllers.circuits.circuits import Circuit, Matching
from controllers.policies.arcs import arcs_of
from controllers.policies.policy import Policy, Wiring
from controllers.policies.wiring import group_paths, path_circuits, rail_of_group
from railyard.errors import CircuitError, ConfigError
from railyard.protocol import Hop
from topos.plan import SwitchPlan
from workloads.program import Dimension, Group

RING, CHAIN, EXPERT_RING, TURNING = 0, 1, 2, 3
"""What the ports of a stage are: its ring, parts of the chain, the rings of its experts, or circuits in turns."""
STATES: dict[Dimension, int] = {"dp": RING, "ep": RING, "edp": EXPERT_RING, "pp": CHAIN}
"""What the ports of a stage must be for a group of each dimension."""
NOTHING = Matching()


@dataclass
class RailGroups:
    """The circuits of one job on one rail: rings by stage (``RING`` or ``EXPERT_RING``), chains by upstream stage, and
    by stage every circuit that takes turns there.
    """

    switch: SwitchPlan
    rings: dict[tuple[int, int], Matching] = field(default_factory=dict)
    chains: dict[int, Matching] = field(default_factory=dict)
    turns: dict[int, frozenset[Circuit]] = field(default_factory=dict)

    def add(self, group: Group) -> None:
        """Take in one group; ``CircuitError`` if it takes a port that another group of its kind and stage has."""
        circuits = path_circuits(self.switch, group_paths(group))
        if group.dimension == "pp":
            self.chains[group.stage] = Matching([*self.chains.get(group.stage, NOTHING), *circuits])
        else:
            place = STATES[group.dimension], group.stage
            self.rings[place] = Matching([*self.rings.get(place, NOTHING), *circuits])

    def add_turns(self, stage: int, circuits: Sequence[Circuit]) -> None:
        """Take in the circuits that a group of ``stage`` has in turns."""
        self.turns[stage] = self.turns.get(stage, frozenset()).union(circuits)

    @property
    def stages(self) -> list[int]:
        """All pipeline stages that have a group here."""
        return sorted({*(s for _, s in self.rings), *self.chains, *(s + 1 for s in self.chains), *self.turns})

    def ring(self, stage: int, state: int = RING) -> Matching:
        """The rings of one stage (empty where the stage has none of two members or more)."""
        return self.rings.get((state, stage), NOTHING)

    def ports(self) -> frozenset[int]:
        """Every port that any configuration of this rail uses."""
        matchings = (*self.rings.values(), *self.chains.values())
        in_turns = (port for circuits in self.turns.values() for c in circuits for port in c.ports)
        return frozenset(in_turns).union(*(m.ports for m in matchings))


def wire(rail: RailGroups, bits: Mapping[int, int], standing: Matching = NOTHING) -> Matching:
    """The circuits of a rail for the state of each stage; of circuits in turns those that are ``standing``."""
    circuits = [c for s in rail.stages for c in rail.ring(s, bits[s])]
    for stage, chain in rail.chains.items():
        if bits[stage] == CHAIN and bits[stage + 1] == CHAIN:
            circuits += chain
    for stage, turns in rail.turns.items():
        if bits[stage] == TURNING:
            circuits += turns & standing.circuits
    return Matching(circuits)


def read_bits(rail: RailGroups, standing: Matching) -> dict[int, int]:
    """The state of each stage that ``standing`` shows: a stage is in its ring if a circuit of that ring stands.

    One that stands in turns and in the ring alike says nothing against the ring.
    """

    def state(stage: int) -> int:
        rings = {which: rail.ring(stage, which).circuits for which in (RING, EXPERT_RING)}
        if (rail.turns.get(stage, frozenset()) - rings[RING] - rings[EXPERT_RING]) & standing.circuits:
            return TURNING
        return next((which for which, ring in rings.items() if ring & standing.circuits), CHAIN)

    return {stage: state(stage) for stage in rail.stages}


class OpusPolicy(Policy):
    """On-demand and provisioned reconfiguration of one OCS per rail."""

    def start(self, groups: Sequence[Group]) -> Wiring:
        """Every stage in its ring; one without data parallelism in the chain (a pipeline-only job never changes)."""
        self._rails: dict[str, RailGroups] = {}
        groups = [group for group in groups if group.domain == "scale-out"]
        self._arcs = arcs_of(groups)
        for group in groups:
            self._add(group)
        return {
            name: wire(rail, {s: RING if rail.ring(s) else CHAIN for s in rail.stages})
            for name, rail in self._rails.items()
        }

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        """The rail with the group's stages in the state that it needs; other stages' and other jobs' circuits stay."""
        rail = self._rail(group)
        here = standing.get(rail.switch.name, NOTHING)
        bits = read_bits(rail, here)
        bits[group.stage] = STATES[group.dimension]
        if group.dimension == "pp":
            bits[group.stage + 1] = CHAIN
        return {rail.switch.name: Matching([*here.without_ports(rail.ports()), *wire(rail, bits, here)])}

    def paths(self, group: Group, standing: Wiring) -> tuple[Hop, ...]:
        """Those of the group's own paths whose circuits stand; an EP group's are those of the ring below it."""
        rail = self._rail(group)
        here = standing.get(rail.switch.name, NOTHING)
        meant = self._arcs.get(group.name) or group_paths(group)
        circuits = path_circuits(rail.switch, meant)
        return tuple(path for path, circuit in zip(meant, circuits, strict=True) if circuit in here)

    def _rail(self, group: Group) -> RailGroups:
        return self._rails[rail_of_group(self.plan, group).name]

    def _groups_of(self, group: Group) -> RailGroups:
        """Those of the rail of ``group``."""
        switch = rail_of_group(self.plan, group)
        if switch.kind != "ocs":
            raise ConfigError(f"the opus policy needs optical rails; {switch.name} is {switch.kind}", key="fabric.kind")
        return self._rails.setdefault(switch.name, RailGroups(switch))

    def _add(self, group: Group) -> None:
        rail = self._groups_of(group)
        if group.dimension not in STATES:
            raise ConfigError(
                f"group {group.name} has dimension {group.dimension} on the rails; the opus policy wires "
                f"{', '.join(STATES)}",
                key="policy",
            )
        if group.name in self._arcs:
            return
        try:
            rail.add(group)
        except CircuitError as error:
            raise ConfigError(f"the groups of stage {group.stage} do not fit on {rail.switch.name}: {error}") from None
