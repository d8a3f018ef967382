"""Expert-parallel groups on circuits that take turns: everybody meets everybody, or for as long as a demand says.

All other groups have the circuits that the Opus policy gives them; a rotation takes the ports it needs from them, and
they take them back when they ask. On electrical rails nothing turns: packet switches reach everybody at once.

Sources: RotorNet, SIGCOMM'17 (turns that know nothing of the traffic); PIP, arXiv 2501.18136 (matchings of a switch
whose ports send and receive, cyclic shifts where those are apart); Solstice, CoNEXT'15 (turns made for a demand).
"""

from __future__ import annotations

from collections.abc import Sequence

from controllers.circuits.circuits import Matching
from controllers.circuits.decomposition import birkhoff_von_neumann, check_demand, covering_matchings, most_partners
from controllers.circuits.matchings import Pairs, cyclic_shifts, one_factorization
from controllers.circuits.rotation import Cycle, Slot
from controllers.policies.electrical import ElectricalPolicy
from controllers.policies.opus import OpusPolicy
from controllers.policies.policy import Wiring
from controllers.policies.wiring import path_circuits, rail_of_group
from railyard.errors import ConfigError
from railyard.protocol import Hop
from railyard.scale import goodput_share
from topos.plan import FabricPlan, SwitchPlan
from workloads.agent.transport.pacing import HEADROOM_BYTES, LATE_S
from workloads.program import Group

Pacing = tuple[Pairs, float | None]
"""Positions of a group that have circuits in a slot, and for how long (seconds; None: until all have sent)."""


class RotorPolicy(OpusPolicy):
    """EP groups go through matchings that join each member to each other one exactly once.

    Without ``Cycle.simplex`` those of ``one_factorization`` (of an odd number one is left out in turn), as many at a
    time as a GPU has ports, each on a port of its own; with it the cyclic shifts, from port 1 of the sender to port 0
    of the receiver. Every slot lasts ``Cycle.slot_s``.
    """

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan)
        self.cycle = Cycle()
        self._packets = ElectricalPolicy(plan)
        self._slots: dict[Group, tuple[Slot, ...]] = {}

    def prepare(self, cycle: Cycle | None) -> None:
        """Remember it; None is a cycle whose slots end when everybody has sent its part."""
        self.cycle = cycle or Cycle()

    def start(self, groups: Sequence[Group]) -> Wiring:
        """The rings and chains of all groups that do not rotate; none on electrical rails."""
        self._slots.clear()
        optical = [group for group in groups if group.domain == "scale-out" and self._is_optical(group)]
        wiring = super().start([group for group in optical if not self._rotates(group)])
        for group in optical:
            if self._rotates(group):
                rail = self._groups_of(group)
                circuits = [c for slot in self.rotation(group) for c in slot.wiring[rail.switch.name]]
                rail.add_turns(group.stage, circuits)
        return wiring

    def rotation(self, group: Group) -> tuple[Slot, ...]:
        """The slots of an EP group on an optical rail; () for any other.

        ``ConfigError`` where the members lack a port, or the cycle does not fit the group.
        """
        if not (self._rotates(group) and self._is_optical(group)):
            return ()
        if group not in self._slots:
            switch = rail_of_group(self.plan, group)
            at_once = 1 if self.cycle.simplex else self.plan.ports_per_gpu
            turns = list(self.pacing(group))
            together = [turns[k : k + at_once] for k in range(0, len(turns), at_once)]
            self._slots[group] = tuple(self._slot(switch, group, slot) for slot in together)
        return self._slots[group]

    def pacing(self, group: Group) -> Sequence[Pacing]:
        """Who has circuits to whom in each slot of ``group``, by position, and for how long."""
        n = len(group.members)
        if self.cycle.simplex:
            return [(tuple(enumerate(shift)), self.cycle.slot_s) for shift in cyclic_shifts(n)]
        return [(pairs, self.cycle.slot_s) for pairs in one_factorization(n)]

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        """As Opus wants it; the circuits of a rotation in another stage stay. Nothing on electrical rails."""
        return super().wanted(group, standing) if self._is_optical(group) else {}

    def paths(self, group: Group, standing: Wiring) -> tuple[Hop, ...]:
        """As Opus tells them; on electrical rails by the same ports, for an EP group port 0 of every two members."""
        if self._is_optical(group):
            return super().paths(group, standing)
        if not self._rotates(group):
            return self._packets.paths(group, standing)
        members = group.members
        return tuple(Hop(a, 0, b, 0) for i, a in enumerate(members) for b in members[i + 1 :])

    def _is_optical(self, group: Group) -> bool:
        return rail_of_group(self.plan, group).kind == "ocs"

    def _rotates(self, group: Group) -> bool:
        return group.dimension == "ep" and group.domain == "scale-out" and len(group.members) > 1

    def _slot(self, switch: SwitchPlan, group: Group, turns: Sequence[Pacing]) -> Slot:
        """Turn k of ``turns`` on port k of each member; from port 1 to port 0 where circuits are used one way."""
        members = group.members
        ends = [(1, 0)] if self.cycle.simplex else [(lane, lane) for lane in range(len(turns))]
        paths = tuple(
            Hop(members[a], out, members[b], into)
            for (pairs, _), (out, into) in zip(turns, ends, strict=True)
            for a, b in pairs
        )
        seconds = [length for _, length in turns if length is not None]
        return Slot({switch.name: Matching(path_circuits(switch, paths))}, paths, max(seconds, default=None))


class DemandPolicy(RotorPolicy):
    """EP groups go through matchings made for ``Cycle.demand``, at most ``Cycle.most_slots``, as short as can be.

    With ``Cycle.simplex`` those of ``birkhoff_von_neumann``, otherwise of ``covering_matchings``. Where the cycle gives
    a ``slot_s``, each slot lasts as long as its demand takes, whatever that ``slot_s`` is: the demand then must be in
    bytes of payload as they go over the emulated wire, since it becomes seconds by the goodput of the members' ports;
    ``Cycle.guard_s`` is added, and what is not planned for on this machine (``workloads.agent.transport.pacing``).
    Without a demand everybody demands as much of everybody: the turns of a rotor.
    """

    def pacing(self, group: Group) -> Sequence[Pacing]:
        """The turns of the demand. ``ConfigError`` for one that is not between as many as the group has members."""
        cycle = self.cycle
        if not cycle.demand:
            return super().pacing(group)
        n = len(group.members)
        if len(cycle.demand) != n:
            raise ConfigError(
                f"is between {len(cycle.demand)} positions, but group {group.name} has {n} members; "
                f"a matrix of {n} x {n} is right",
                key="demand",
            )
        demand = check_demand(cycle.demand, n)
        most = cycle.most_slots
        if cycle.simplex and cycle.slot_s is None:  # what has a circuit is sent whole, so it must not have two
            most = most or most_partners(demand)
        decompose = birkhoff_von_neumann if cycle.simplex else covering_matchings
        turns = sorted(decompose(demand, most), key=lambda turn: -turn.length)
        if cycle.slot_s is None:
            return [(turn.pairs, None) for turn in turns]
        bytes_per_s = self._goodput(group)
        beside_s = HEADROOM_BYTES / bytes_per_s + LATE_S + cycle.guard_s
        return [(turn.pairs, turn.length / bytes_per_s + beside_s) for turn in turns]

    def _goodput(self, group: Group) -> float:
        """Payload bytes per second of the slowest port that the slots of ``group`` use."""
        switch = rail_of_group(self.plan, group)
        lanes = (0, 1) if self.cycle.simplex else (0,)
        members = frozenset(group.members)
        rates = [port.rate_mbps for port in switch.ports if port.rank in members and port.lane in lanes]
        return min(rates) * 1e6 / 8 * goodput_share(self.plan.mtu)
