"""The Opus policy: the parallelism dimension that has the ports of each pipeline stage on each rail.

One bit per stage says which. While it is 0, the stage's ports form the ring of its data-parallel group; while it is
1, they are joined, per data-parallel index, to those of the adjacent stages whose bit is 1 too (a chain, no wrap). A
pipeline request between stages s and s + 1 sets both bits, a data-parallel request of stage s clears bit s; stages
may diverge. Agents decide when to request (on-demand or provisioned), so one policy serves both.

With expert parallelism an all-to-all is sent over the data-parallel ring, hop by hop (``controllers.policies.wiring``),
so it clears the bit too. Experts that need their own rings for gradients (dimension ``edp``) are a third state of a
stage, and rotating circuits (``controllers.policies.rotor``) a fourth.

Source: Opus, arXiv 2602.12521, control plane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from controllers.circuits.circuits import Circuit, Matching
from controllers.policies.policy import Policy, Wiring
from controllers.policies.wiring import arcs_of, group_paths, path_circuits, paths_in, rail_of_group
from railyard.errors import CircuitError, ConfigError
from railyard.protocol import Hop
from topos.plan import SwitchPlan
from workloads.program import Dimension, Group

RING, CHAIN, EXPERT_RING, ROTATING = 0, 1, 2, 3
"""The states of a stage, whose ports form its ring, parts of the chain, the rings of its experts, or a rotation."""
STATES: dict[Dimension, int] = {"dp": RING, "ep": RING, "edp": EXPERT_RING, "pp": CHAIN}
"""The state that a stage must be in for a group of each dimension."""
NO_CIRCUITS = Matching()
_KEPT = 256
"""Answers to earlier requests that a policy keeps."""


@dataclass
class RailGroups:
    """The circuits of one job on one rail, each group on its ``paths``.

    ``rings`` are by state (``RING`` or ``EXPERT_RING``) and stage, ``chains`` by upstream stage; ``rotating`` are the
    circuits of all slots of the rotations of each stage.
    """

    switch: SwitchPlan
    paths: Callable[[Group], tuple[Hop, ...]] = group_paths
    rings: dict[tuple[int, int], Matching] = field(default_factory=dict)
    chains: dict[int, Matching] = field(default_factory=dict)
    rotating: dict[int, frozenset[Circuit]] = field(default_factory=dict)

    def add(self, group: Group) -> None:
        """Add the circuits of ``group``; ``CircuitError`` if a group of its kind and stage uses one of the ports."""
        circuits = path_circuits(self.switch, self.paths(group))
        if group.dimension == "pp":
            self.chains[group.stage] = Matching([*self.chains.get(group.stage, NO_CIRCUITS), *circuits])
        else:
            place = STATES[group.dimension], group.stage
            self.rings[place] = Matching([*self.rings.get(place, NO_CIRCUITS), *circuits])

    def add_rotation(self, stage: int, circuits: Sequence[Circuit]) -> None:
        self.rotating[stage] = self.rotating.get(stage, frozenset()).union(circuits)

    @property
    def stages(self) -> list[int]:
        return sorted({*(s for _, s in self.rings), *self.chains, *(s + 1 for s in self.chains), *self.rotating})

    def ring(self, stage: int, state: int = RING) -> Matching:
        """The rings of ``stage`` in ``state`` (empty if it has none of two members or more)."""
        return self.rings.get((state, stage), NO_CIRCUITS)

    def ports(self) -> frozenset[int]:
        matchings = (*self.rings.values(), *self.chains.values())
        rotating = (port for circuits in self.rotating.values() for c in circuits for port in c.ports)
        return frozenset(rotating).union(*(m.ports for m in matchings))


def wire(rail: RailGroups, states: Mapping[int, int], current: Matching = NO_CIRCUITS) -> Matching:
    """The circuits of a rail for the state of each stage; of rotating circuits those that are in ``current``."""
    circuits = [c for s in rail.stages for c in rail.ring(s, states[s])]
    for stage, chain in rail.chains.items():
        if states[stage] == CHAIN and states[stage + 1] == CHAIN:
            circuits += chain
    for stage, circuits_of_slots in rail.rotating.items():
        if states[stage] == ROTATING:
            circuits += circuits_of_slots & current.circuits
    return Matching(circuits)


def read_states(rail: RailGroups, current: Matching) -> dict[int, int]:
    """The state of each stage, read from the ``current`` circuits of the rail.

    A stage is rotating if it has a circuit that is only in its slots, otherwise in a ring if it has a circuit of that
    ring, otherwise in the chain.
    """

    def state(stage: int) -> int:
        rings = {which: rail.ring(stage, which).circuits for which in (RING, EXPERT_RING)}
        if (rail.rotating.get(stage, frozenset()) - rings[RING] - rings[EXPERT_RING]) & current.circuits:
            return ROTATING
        return next((which for which, ring in rings.items() if ring & current.circuits), CHAIN)

    return {stage: state(stage) for stage in rail.stages}


class OpusPolicy(Policy):
    """On-demand and provisioned reconfiguration of one OCS per rail, by the state of each stage."""

    def start(self, groups: Sequence[Group]) -> Wiring:
        """Every stage in its ring, or in the chain without data parallelism (a pipeline-only job never changes).

        ``ConfigError`` for groups that do not fit on their rail or that this policy does not know.
        """
        self._rails: dict[str, RailGroups] = {}
        # A request that finds the circuits as they were gets the answer that it got before.
        self._wiring_of, self._paths_of = lru_cache(_KEPT)(self._wired), lru_cache(_KEPT)(self._hops)
        groups = [group for group in groups if group.domain == "scale-out"]
        self._arcs = arcs_of(groups)
        for group in groups:
            self._add(group)
        return {
            name: wire(rail, {s: RING if rail.ring(s) else CHAIN for s in rail.stages})
            for name, rail in self._rails.items()
        }

    def wanted(self, group: Group, current: Wiring) -> Wiring:
        """The circuits of the rail with the stages of ``group`` in the state it needs; all other circuits stay."""
        rail = self._rail(group)
        here = current.get(rail.switch.name, NO_CIRCUITS)
        return {rail.switch.name: self._wiring_of(group, here)}

    def _wired(self, group: Group, here: Matching) -> Matching:
        rail = self._rail(group)
        states = read_states(rail, here) | dict.fromkeys(self._stages(rail, group), STATES[group.dimension])
        return Matching([*here.without_ports(rail.ports()), *wire(rail, states, here)])

    def paths(self, group: Group, current: Wiring) -> tuple[Hop, ...]:
        """The paths of ``group`` whose circuits are in ``current``; an EP group has those of the ring it uses."""
        here = current.get(self._rail(group).switch.name, NO_CIRCUITS)
        return self._paths_of(group, here)

    def _hops(self, group: Group, here: Matching) -> tuple[Hop, ...]:
        switch = self._rail(group).switch
        return paths_in(switch, self._arcs.get(group.name) or group_paths(group), {switch.name: here})

    def _stages(self, rail: RailGroups, group: Group) -> Sequence[int]:
        """The stages of ``rail`` that a request of ``group`` changes: those that it uses."""
        return (group.stage, group.stage + 1) if group.dimension == "pp" else (group.stage,)

    def _rail(self, group: Group) -> RailGroups:
        return self._rails[rail_of_group(self.plan, group).name]

    def _rail_groups(self, group: Group) -> RailGroups:
        """The circuits of the job on the rail of ``group``; ``ConfigError`` if the rail is not optical."""
        switch = rail_of_group(self.plan, group)
        if switch.kind != "ocs":
            raise ConfigError(f"the opus policy needs optical rails; {switch.name} is {switch.kind}", key="fabric.kind")
        return self._rails.setdefault(switch.name, RailGroups(switch))

    def _add(self, group: Group) -> None:
        rail = self._rail_groups(group)
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


class WholeRailPolicy(OpusPolicy):
    """As Opus, but all stages of a rail change together: they never diverge, and each waits for all others."""

    def _stages(self, rail: RailGroups, group: Group) -> Sequence[int]:
        return rail.stages
