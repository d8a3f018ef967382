"""Test of a rotor's slots on real packets: in every slot exactly the matched ranks must reach each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from controllers.circuits.rotation import Cycle, Slot
from controllers.policies.policy import slots_alone
from controllers.policies.rotor import RotorPolicy
from experiments.collectives.trial import TrialFabric
from experiments.session import Session
from experiments.settings import PacketSettings
from measure.live.ping_matrix import PingMatrix
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.program import Group

RankPairs = frozenset[tuple[int, int]]
"""Ordered pairs (sender, receiver)."""


@dataclass(frozen=True)
class SlotReach:
    """One slot among ``n`` ranks: the pairs that should reach each other (``expected``), and those that did."""

    n: int
    slot: int
    expected: RankPairs
    reached: RankPairs

    @property
    def as_expected(self) -> bool:
        return self.expected == self.reached


def slot_reach(settings: PacketSettings, fabric: TrialFabric, simplex: bool) -> Iterator[SlotReach]:
    """Set the slots of a rotor on ``fabric`` one after another and ping between all ranks in each; needs root."""
    with Session(settings, fabric.topology(Scale(1.0))) as session:
        slots = rotor_slots(session.plan, simplex)
        with PingMatrix(session.plan, session.netns_fds()) as matrix:
            for number, slot in enumerate(slots):
                for name, matching in slot.wiring.items():
                    circuits = [list(circuit.ports) for circuit in matching]
                    session.call("rewire", switch=name, circuits=circuits, update="overwrite", delay_s=0.0)
                lanes = sorted({path[1] for path in slot.paths})
                expected = {(a, b) for a, _, b, _ in slot.paths}
                if not simplex:
                    expected |= {(b, a) for a, b in expected}
                yield SlotReach(fabric.ranks, number, frozenset(expected), matrix.reach(lanes))


def rotor_slots(plan: FabricPlan, simplex: bool) -> tuple[Slot, ...]:
    """The slots of a rotor policy over all ranks of ``plan``."""
    return slots_alone(RotorPolicy(plan), Group("all", "ep", tuple(range(plan.ranks))), Cycle(simplex=simplex))


def meetings(found: list[SlotReach]) -> Counter[tuple[int, int]]:
    """In how many slots each sender reached each receiver."""
    return Counter(pair for one in found for pair in one.reached)
