"""What a policy is: given a group that wants to talk, which circuits must stand.

A policy is pure: no switch, no socket, no clock of its own. The engine (``controllers.engine.engine``) does the rest
for every policy: it waits until all members have asked, sees that nothing is in flight on the ports that change, keeps
the ports dark for the configured delay, and acknowledges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controllers.circuits.circuits import Matching, SwitchCircuit
from controllers.circuits.rotation import Cycle, Slot
from railyard.protocol import Hop
from topos.plan import FabricPlan
from workloads.program import Group

Wiring = Mapping[str, Matching]
"""Switch name -> the circuits that stand, or shall stand, on it."""


@dataclass(frozen=True)
class ClusterState:
    """``policies`` are those of the other jobs, in order of registration, and ``ranks`` all who are or were in these.

    ``circuits`` are those between ``ranks`` that stand, are being tuned, or come back if what is being tuned fails.
    ``dead`` are all chips that have failed.
    """

    policies: tuple[Policy, ...] = ()
    ranks: frozenset[int] = frozenset()
    circuits: frozenset[SwitchCircuit] = frozenset()
    dead: frozenset[int] = frozenset()


class Policy:
    """Base of all policies; a user's own policy subclasses it and is named ``module:Class``.

    ``plan`` is the fabric. Only ``wanted`` must be written.
    """

    def __init__(self, plan: FabricPlan) -> None:
        self.plan = plan

    def see(self, state: ClusterState) -> None:
        """What is there beside this job: other jobs' policies and circuits, and every dead chip.

        Called before each ``start`` and ``replace`` of the engine. Default: it does not matter.
        """
        return

    def prepare(self, cycle: Cycle | None) -> None:
        """How the job wants circuits to take turns (None: it does not say). Called once, before ``start``.

        ``ConfigError`` for what cannot be done. Default: it does not matter.
        """
        return

    def start(self, groups: Sequence[Group]) -> Wiring:
        """The circuits to install before the job's first step (no delay is charged). Default: none."""
        return {}

    def asks(self, group: Group) -> bool:
        """Whether ``group`` asks before each phase. False: it is told its paths once and never asks again."""
        return group.domain == "scale-out"

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        """The complete circuits of every switch that must change so that ``group`` can talk.

        ``standing`` holds all circuits now. Called when every member of ``group`` has asked. Return ``{}`` (or the
        standing circuits) if nothing has to change: the group is then acknowledged at once. Must not depend on being
        called once: while ports are in use the engine asks again later.
        """
        raise NotImplementedError

    def rotation(self, group: Group) -> tuple[Slot, ...]:
        """The slots that the circuits of ``group`` go through, again and again, while it talks; ``wanted`` and
        ``paths`` are then not asked. Default: none, its circuits stand until it is done.
        """
        return ()

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """Who stands in when chip ``dead`` of the job with ``groups`` has failed: old rank -> new rank.

        ``free``: the spares that live and are in no job, in the plan's order. ``dead`` must be among the old ranks;
        others may move as well. The circuits of the new groups are then those of ``start``. Default: nobody can.
        """
        return {}

    def paths(self, group: Group, standing: Wiring) -> tuple[Hop, ...]:
        """The paths that ``group`` may use: by default every standing circuit between two of its members."""
        return tuple(circuit_paths(self.plan, group, standing))


def slots_alone(policy: Policy, group: Group, cycle: Cycle | None) -> tuple[Slot, ...]:
    """The slots of ``group`` under a fresh ``policy``, were it the only group of its job."""
    policy.prepare(cycle)
    policy.start([group])
    return policy.rotation(group)


def circuit_paths(plan: FabricPlan, group: Group, standing: Wiring) -> Iterable[Hop]:
    """Every standing circuit that joins two members of ``group``, as a path."""
    members = set(group.members)
    for switch in plan.network("rail"):
        here = {p.number: p for p in switch.ports}
        for circuit in standing.get(switch.name, Matching()):
            a, b = here[circuit.a], here[circuit.b]
            if a.rank in members and b.rank in members:
                yield Hop(a.rank, a.lane, b.rank, b.lane)
