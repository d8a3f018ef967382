"""The base class of policies, which choose the circuits that a group needs to communicate.

A policy is pure: it has no switch, socket or clock. The engine (``controllers.engine.engine``) does the rest for every
policy: it waits until all members have sent their request, ensures that nothing is in flight on the ports that change,
keeps the ports dark for the configured delay, and acknowledges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controllers.circuits.circuits import Matching, SwitchCircuit
from controllers.circuits.rotation import Cycle, Slot
from controllers.engine.jobs import Job
from railyard.errors import ConfigError
from railyard.protocol import Hop
from topos.plan import FabricPlan
from workloads.program import Group

Wiring = Mapping[str, Matching]
"""Switch name -> its circuits, present or wanted."""


@dataclass(frozen=True)
class ClusterState:
    """The cluster as the policy of one job sees it: the other jobs and all failed chips.

    ``policies`` are those of the other jobs, in order of registration, ``ranks`` their present and former members.
    ``circuits`` are those between ``ranks`` that are up, are tuning, or return if a reconfiguration under way fails.
    ``dead`` are all chips that have failed.
    """

    policies: tuple[Policy, ...] = ()
    ranks: frozenset[int] = frozenset()
    circuits: frozenset[SwitchCircuit] = frozenset()
    dead: frozenset[int] = frozenset()


class Policy:
    """Base of all policies; a user's own policy subclasses it and is named ``module:Class``.

    ``plan`` is the fabric. Only ``wanted`` must be overridden.
    """

    def __init__(self, plan: FabricPlan) -> None:
        self.plan = plan

    def see(self, state: ClusterState) -> None:
        """Take the cluster state: the policies and circuits of other jobs, and all dead chips.

        Called before each ``start`` and ``replace`` of the engine. Default: ignored.
        """
        return

    def prepare(self, job: Job) -> None:
        """Take what the job tells of itself: its delays, traffic and parameters of rotations. Called before ``start``.

        ``ConfigError`` for parameters that the policy cannot meet. Default: ignored.
        """
        return

    def start(self, groups: Sequence[Group]) -> Wiring:
        """The circuits to install before the job's first step (no delay is charged). Default: none."""
        return {}

    def asks(self, group: Group) -> bool:
        """Whether ``group`` requests circuits before each phase; otherwise it gets its paths once, at check-in."""
        return group.domain == "scale-out"

    def wanted(self, group: Group, current: Wiring) -> Wiring:
        """The complete circuits of every switch that must change so that ``group`` can communicate.

        ``current`` holds all present circuits. Called when every member of ``group`` has sent its request. Return
        ``{}`` (or the present circuits) if nothing has to change: the group is then acknowledged at once. The engine
        may call this several times for one request, while ports are in use.
        """
        raise ConfigError(f"{type(self).__name__} must define wanted", key="policy")

    def rotation(self, group: Group) -> tuple[Slot, ...]:
        """The slots that the circuits of ``group`` go through cyclically while it communicates.

        ``wanted`` and ``paths`` are then not called for it. Default: none; its circuits stay up until the release.
        """
        return ()

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """The replacement for the failed chip ``dead`` of the job with ``groups``: old rank -> new rank.

        ``free``: the spares that work and are in no job, in the order of the plan. ``dead`` must be among the old
        ranks; other ranks may move as well. The circuits of the new groups are then those of ``start``. Empty: no
        replacement is possible. Default: on rails, whose servers are replaced whole (each GPU keeps its rail), the
        first server of which all that the job needs is free; none elsewhere.
        """
        if self.plan.rack is not None:
            return {}
        gpus = self.plan.gpus_per_server
        members = {rank for group in groups for rank in group.members}
        moving = [rank for rank in self.plan.on_server(dead // gpus) if rank in members]
        for server in dict.fromkeys(rank // gpus for rank in free):
            chosen = {rank: self.plan.on_server(server)[rank % gpus] for rank in moving}
            if set(free).issuperset(chosen.values()):
                return chosen
        return {}

    def paths(self, group: Group, current: Wiring) -> tuple[Hop, ...]:
        """The paths that ``group`` may use: by default every circuit of ``current`` between two of its members."""
        return tuple(circuit_paths(self.plan, group, current))


class StandingPolicy(Policy):
    """Base of policies whose circuits stay up while a job runs: groups get their paths once, at check-in."""

    def asks(self, group: Group) -> bool:
        """Always false: groups send no requests."""
        return False

    def wanted(self, group: Group, current: Wiring) -> Wiring:
        """No changes: the circuits of ``start`` stay up."""
        return {}


def slots_alone(policy: Policy, group: Group, cycle: Cycle | None) -> tuple[Slot, ...]:
    """The slots of ``group`` under a new ``policy``, as the only group of its job."""
    policy.prepare(Job(group.name, (group,), "", cycle=cycle))
    policy.start([group])
    return policy.rotation(group)


def circuit_paths(plan: FabricPlan, group: Group, current: Wiring) -> Iterable[Hop]:
    """Every circuit of ``current`` that joins two members of ``group``, as a path."""
    members = set(group.members)
    for switch in plan.network("rail"):
        ports = {p.number: p for p in switch.ports}
        for circuit in current.get(switch.name, Matching()):
            a, b = ports[circuit.a], ports[circuit.b]
            if a.rank in members and b.rank in members:
                yield Hop(a.rank, a.lane, b.rank, b.lane)
