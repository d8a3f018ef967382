"""Who hears whom in every slot of a rotation: the matched partners, and nobody else. On real packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from controllers.circuits.rotation import Cycle, Slot
from controllers.policies.policy import slots_alone
from controllers.policies.rotor import RotorPolicy
from experiments.session import Session
from experiments.settings import Settings
from experiments.trials.trial import TrialFabric
from measure.live.ping_matrix import PingMatrix
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.program import Group

Ways = frozenset[tuple[int, int]]
"""(sender, receiver)."""


@dataclass(frozen=True)
class SlotReach:
    """One slot among ``n`` ranks: who should hear whom (``meant``), and who did."""

    n: int
    slot: int
    meant: Ways
    heard: Ways

    @property
    def right(self) -> bool:
        """Exactly those who should."""
        return self.meant == self.heard


def slot_reach(settings: Settings, fabric: TrialFabric, simplex: bool) -> Iterator[SlotReach]:
    """Set every slot of a rotor among the ranks of ``fabric`` in turn and have everybody call everybody. Needs root."""
    with Session(settings, fabric.topology(Scale(1.0))) as session:
        slots = rotor_slots(session.plan, simplex)
        with PingMatrix(session.plan, session.netns_fds()) as matrix:
            for number, slot in enumerate(slots):
                for name, matching in slot.wiring.items():
                    circuits = [list(circuit.ports) for circuit in matching]
                    session.call("rewire", switch=name, circuits=circuits, update="overwrite", delay_s=0.0)
                lanes = sorted({path[1] for path in slot.paths})
                meant = {(a, b) for a, _, b, _ in slot.paths}
                if not simplex:
                    meant |= {(b, a) for a, b in meant}
                yield SlotReach(fabric.ranks, number, frozenset(meant), matrix.reach(lanes))


def rotor_slots(plan: FabricPlan, simplex: bool) -> tuple[Slot, ...]:
    """The slots of a rotor among all ranks of ``plan``."""
    return slots_alone(RotorPolicy(plan), Group("everybody", "ep", tuple(range(plan.ranks))), Cycle(simplex=simplex))


def meetings(found: list[SlotReach]) -> Counter[tuple[int, int]]:
    """How often each (sender, receiver) heard each other over all slots."""
    return Counter(way for one in found for way in one.heard)
