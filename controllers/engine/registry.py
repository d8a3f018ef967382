"""Registry of jobs and chips: the members of each job, chips that left or failed, and free spares. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from controllers.engine.jobs import Job
from controllers.engine.membership import Membership, Readiness
from controllers.engine.optical_state import OpticalState
from controllers.policies.policy import ClusterState, Policy
from railyard.errors import ConfigError, ControlError
from topos.plan import FabricPlan


class JobRegistry:
    """The registered jobs and the condition of all chips.

    ``jobs`` are in order of registration; ``dead`` are the failed chips, ``gone`` the ranks whose agent has ended.
    ``sound(rank)`` returns whether all ports of a chip work.
    """

    def __init__(self, plan: FabricPlan, sound: Callable[[int], bool]) -> None:
        self.plan = plan
        self.jobs: dict[str, Membership] = {}
        self.dead: set[int] = set()
        self.gone: set[int] = set()
        self._sound = sound

    def add(self, job: Job, policy: Policy) -> Membership:
        membership = Membership(job, policy)
        self.jobs[job.name] = membership
        self.gone.difference_update(membership.ranks)
        return membership

    def job(self, name: str) -> Membership:
        try:
            return self.jobs[name]
        except KeyError:
            known = ", ".join(self.jobs) or "none"
            raise ControlError(f"job {name} is not registered; registered are: {known}") from None

    def group(self, name: str) -> tuple[Membership, Readiness]:
        """The job and the readiness barrier of group ``name``; ``ControlError`` if no job has the group."""
        for membership in self.jobs.values():
            readiness = membership.readiness.get(name)
            if readiness is not None:
                return membership, readiness
        raise ControlError(f"no job has registered a group {name}")

    def jobs_of(self, rank: int) -> list[Membership]:
        return [membership for membership in self.jobs.values() if rank in membership.ranks]

    def ranks(self) -> frozenset[int]:
        return frozenset(rank for membership in self.jobs.values() for rank in membership.ranks)

    def ranks_wired(self, but: str) -> frozenset[int]:
        """The ranks whose circuits belong to a job other than ``but``.

        A member that is being replaced is among them, as is its replacement: its circuits stay until the change is
        done, and for good if that fails.
        """
        others = [membership for name, membership in self.jobs.items() if name != but]
        return frozenset(rank for membership in others for rank in (*membership.ranks, *membership.placed))

    def check_rank(self, rank: int) -> None:
        if not 0 <= rank < self.plan.ranks:
            raise ControlError(f"there is no rank {rank}; the fabric's ranks are 0 to {self.plan.ranks - 1}")

    def check_new(self, job: Job) -> None:
        """Raise ``ControlError`` or ``ConfigError`` for a job that cannot be registered."""
        if job.name in self.jobs:
            raise ControlError(f"job {job.name} is already registered; finish it first or choose another name")
        known = {name for membership in self.jobs.values() for name in membership.readiness}
        for group in job.groups:
            if group.name in known:
                raise ControlError(f"group {group.name} is already registered; give every group its own name")
            known.add(group.name)
            if not group.members or len(set(group.members)) != len(group.members):
                raise ConfigError(f"group {group.name} must have at least one member, and each member only once")
            if group.stage < 0:
                raise ConfigError(f"group {group.name} has stage {group.stage}; stages count from 0")
            if group.lanes is not None and (len(group.members) != 2 or min(group.lanes) < 0):
                raise ConfigError(f"group {group.name} has lanes, which only a pair has: its two ports, such as [1, 0]")
            outside = [r for r in group.members if not 0 <= r < self.plan.ranks]
            if outside:
                raise ConfigError(
                    f"group {group.name} has rank {outside[0]}; the fabric's ranks are 0 to {self.plan.ranks - 1}"
                )
            dead = sorted(self.dead.intersection(group.members))
            if dead:
                raise ConfigError(f"group {group.name} has rank {dead[0]}, which has failed; use a chip that works")

    def free(self) -> tuple[int, ...]:
        """The spares that have not failed, whose ports work, and that are in no job."""
        used = self.ranks()
        return tuple(r for r in self.plan.spares if r not in self.dead and r not in used and self._sound(r))

    def why_no_spare(self) -> str:
        """Explanation of why none of the spares can replace a failed chip, for an error."""
        if not self.plan.spares:
            return "the fabric has no spare"
        return "of the spares " + ", ".join(f"{rank} {self._use_of(rank)}" for rank in self.plan.spares)

    def _use_of(self, rank: int) -> str:
        jobs = self.jobs_of(rank)
        if rank in self.dead:
            return "has failed"
        if jobs:
            return f"is in job {jobs[0].job.name}"
        return "does not suit the policy" if self._sound(rank) else "has a broken port"

    def without_routes(self) -> frozenset[int]:
        """The chips that no route may lead to or through: failed ones, and the further racks without a job."""
        rack = self.plan.rack
        if rack is None or rack.racks == 1:
            return frozenset(self.dead)
        chips = prod(rack.torus)
        used = {rank // chips for membership in self.jobs.values() for rank in membership.placed}
        return frozenset(self.dead.union(r for r in range(chips, chips * rack.racks) if r // chips not in used))


def cluster_state_for(job: str, optical: OpticalState, registry: JobRegistry) -> ClusterState:
    """The cluster state (``Policy.see``) for the policy of ``job``, which is registered or about to be.

    ``circuits`` are those of other registered jobs; circuits that a finished job left are not among them.
    """
    others = [membership for name, membership in registry.jobs.items() if name != job]
    mine = registry.jobs[job].ever if job in registry.jobs else set()
    ranks = frozenset(rank for membership in others for rank in membership.ever) - mine
    circuits = frozenset(
        (name, circuit)
        for name, circuit in optical.circuits_and_reverts()
        if all(optical.rank_at(name, port) in ranks for port in circuit.ports)
    )
    return ClusterState(tuple(m.policy for m in others), ranks, circuits, frozenset(registry.dead))
