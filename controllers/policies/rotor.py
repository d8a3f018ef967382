"""Rotations of circuits for expert-parallel groups: a rotor, whatever the traffic, or slots made for a demand.

All other groups have the circuits of the Opus policy; a rotation takes the ports it needs from them, and they take them
back with their next request. On electrical rails there is no rotation: packet switches reach all ranks at once.

Sources: RotorNet, SIGCOMM'17 (slots independent of the traffic); PIP, arXiv 2501.18136 (matchings of a switch whose
ports send and receive, cyclic shifts where those are separate); Solstice, CoNEXT'15 (slots made for a demand).
"""

from __future__ import annotations

from collections.abc import Sequence

from controllers.circuits.circuits import Matching
from controllers.circuits.decomposition import birkhoff_von_neumann, check_demand, covering_matchings, most_partners
from controllers.circuits.matchings import Pairs, cyclic_shifts, one_factorization
from controllers.circuits.rotation import Cycle, Slot
from controllers.engine.jobs import Job
from controllers.policies.opus import OpusPolicy
from controllers.policies.policy import Wiring
from controllers.policies.static import ElectricalPolicy
from controllers.policies.wiring import path_circuits, rail_of_group
from railyard.errors import ConfigError
from railyard.protocol import Hop
from topos.plan import FabricPlan, SwitchPlan
from workloads.program import Group
from workloads.rank.slot_sender import HEADROOM_BYTES, LATE_S

Pacing = tuple[Pairs, float | None]
"""Pairs of positions of a group that have circuits in a slot, and for how long (s; None: until all have sent)."""


class RotorPolicy(OpusPolicy):
    """Rotates EP groups through matchings that join each two members exactly once.

    Without ``Cycle.simplex`` these are the matchings of ``one_factorization`` (with an odd number of members, each
    leaves out another one), as many in a slot as a GPU has ports, each on its own port; or those of
    ``Cycle.matchings``, if it gives some. With ``Cycle.simplex`` they are the cyclic shifts, from port 1 of the sender
    to port 0 of the receiver. Every slot lasts ``Cycle.slot_s``.
    """

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan)
        self.cycle = Cycle()
        self._packets = ElectricalPolicy(plan)
        self._slots: dict[Group, tuple[Slot, ...]] = {}

    def prepare(self, job: Job) -> None:
        """Keep the cycle of ``job``; without one, slots end when all members have sent their data."""
        self.cycle = job.cycle or Cycle()

    def start(self, groups: Sequence[Group]) -> Wiring:
        """The rings and chains of all groups that do not rotate; none on electrical rails."""
        self._slots.clear()
        optical = [group for group in groups if group.domain == "scale-out" and self._is_optical(group)]
        wiring = super().start([group for group in optical if not self._rotates(group)])
        for group in optical:
            if self._rotates(group):
                rail = self._rail_groups(group)
                circuits = [c for slot in self.rotation(group) for c in slot.wiring[rail.switch.name]]
                rail.add_rotation(group.stage, circuits)
        return wiring

    def rotation(self, group: Group) -> tuple[Slot, ...]:
        """The slots of an EP group on an optical rail; () for any other group.

        ``ConfigError`` if the members lack a port, or the cycle does not fit the group.
        """
        if not (self._rotates(group) and self._is_optical(group)):
            return ()
        if group not in self._slots:
            switch = rail_of_group(self.plan, group)
            per_slot = 1 if self.cycle.simplex else self.plan.ports_per_gpu
            pacings = list(self.pacing(group))
            batches = [pacings[k : k + per_slot] for k in range(0, len(pacings), per_slot)]
            self._slots[group] = tuple(self._slot(switch, group, batch) for batch in batches)
        return self._slots[group]

    def pacing(self, group: Group) -> Sequence[Pacing]:
        """The pairs of positions that each matching of the rotation of ``group`` joins, and for how long."""
        n = len(group.members)
        if self.cycle.simplex:
            return [(tuple(enumerate(shift)), self.cycle.slot_s) for shift in cyclic_shifts(n)]
        return [(pairs, self.cycle.slot_s) for pairs in self.cycle.matchings or one_factorization(n)]

    def wanted(self, group: Group, current: Wiring) -> Wiring:
        """The circuits of the Opus policy; rotations of other stages stay. Nothing on electrical rails."""
        return super().wanted(group, current) if self._is_optical(group) else {}

    def paths(self, group: Group, current: Wiring) -> tuple[Hop, ...]:
        """The paths of the Opus policy; on electrical rails the same ports, for an EP group port 0 of every pair."""
        if self._is_optical(group):
            return super().paths(group, current)
        if not self._rotates(group):
            return self._packets.paths(group, current)
        members = group.members
        return tuple(Hop(a, 0, b, 0) for i, a in enumerate(members) for b in members[i + 1 :])

    def _is_optical(self, group: Group) -> bool:
        return rail_of_group(self.plan, group).kind == "ocs"

    def _rotates(self, group: Group) -> bool:
        return group.dimension == "ep" and group.domain == "scale-out" and len(group.members) > 1

    def _slot(self, switch: SwitchPlan, group: Group, pacings: Sequence[Pacing]) -> Slot:
        """The slot with matching k of ``pacings`` on port k of each member (one way: from port 1 to port 0)."""
        members = group.members
        ends = [(1, 0)] if self.cycle.simplex else [(lane, lane) for lane in range(len(pacings))]
        paths = tuple(
            Hop(members[a], out, members[b], into)
            for (pairs, _), (out, into) in zip(pacings, ends, strict=True)
            for a, b in pairs
        )
        seconds = [length for _, length in pacings if length is not None]
        return Slot({switch.name: Matching(path_circuits(switch, paths))}, paths, max(seconds, default=None))


class DemandPolicy(RotorPolicy):
    """Rotates EP groups through the shortest slots made for ``Cycle.demand``, at most ``Cycle.most_slots`` of them.

    With ``Cycle.simplex`` the slots are those of ``birkhoff_von_neumann``, otherwise of ``covering_matchings``. If the
    cycle has a ``slot_s`` of any value, each slot lasts as long as its demand takes: the demand must then be in bytes
    of payload on the emulated wire, which become seconds by the goodput of the members' ports; ``Cycle.guard_s`` and
    an allowance for this machine (``workloads.agent.transport.pacing``) are added. Without a demand the demand is
    uniform, and the slots are those of a rotor.
    """

    def pacing(self, group: Group) -> Sequence[Pacing]:
        """The slots made for the demand, longest first.

        ``ConfigError`` for a demand that is not n x n for a group of n members, or that needs more slots.
        """
        cycle = self.cycle
        if not cycle.demand:
            return super().pacing(group)
        n = len(group.members)
        if len(cycle.demand) != n:
            raise ConfigError(
                f"is between {len(cycle.demand)} positions, but group {group.name} has {n} members; "
                f"use a matrix of {n} x {n}",
                key="demand",
            )
        demand = check_demand(cycle.demand, n)
        most = cycle.most_slots
        if cycle.simplex and cycle.slot_s is None:  # a demand is sent whole in its first slot, so no pair must have two
            most = most or most_partners(demand)
        decompose = birkhoff_von_neumann if cycle.simplex else covering_matchings
        slots = sorted(decompose(demand, most), key=lambda slot: -slot.length)
        if cycle.slot_s is None:
            return [(slot.pairs, None) for slot in slots]
        bytes_per_s = self._goodput(group)
        overhead_s = HEADROOM_BYTES / bytes_per_s + LATE_S + cycle.guard_s
        return [(slot.pairs, slot.length / bytes_per_s + overhead_s) for slot in slots]

    def _goodput(self, group: Group) -> float:
        """Payload bytes per second of the slowest port that the slots of ``group`` use."""
        switch = rail_of_group(self.plan, group)
        lanes = (0, 1) if self.cycle.simplex else (0,)
        members = frozenset(group.members)
        rates = [port.rate_mbps for port in switch.ports if port.rank in members and port.lane in lanes]
        return min(rates) * 1e6 / 8 * self.plan.goodput_share
