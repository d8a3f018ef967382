"""All jobs and all chips: who is in which group, who has left, who is dead, and which spares are free. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from controllers.engine.jobs import Job
from controllers.engine.membership import Membership
from controllers.engine.readiness import Readiness
from controllers.policies.policy import Policy
from railyard.errors import ConfigError, ControlError
from topos.plan import FabricPlan


class JobRegistry:
    """``jobs`` in order of registration; ``dead`` are the chips that failed, ``gone`` the ranks that left.

    ``sound(rank)`` says whether all ports of a chip work.
    """

    def __init__(self, plan: FabricPlan, sound: Callable[[int], bool]) -> None:
        self.plan = plan
        self.jobs: dict[str, Membership] = {}
        self.dead: set[int] = set()
        self.gone: set[int] = set()
        self._sound = sound

    def add(self, job: Job, policy: Policy) -> Membership:
        """Take a job in that was found right by ``check_new``."""
        membership = Membership(job, policy)
        self.jobs[job.name] = membership
        self.gone.difference_update(membership.ranks)
        return membership

    def job(self, name: str) -> Membership:
        """The job ``name``; ``ControlError`` if it is not registered."""
        try:
            return self.jobs[name]
        except KeyError:
            known = ", ".join(self.jobs) or "none"
            raise ControlError(f"job {name} is not registered; registered are: {known}") from None

    def group(self, name: str) -> tuple[Membership, Readiness]:
        """The job and the barrier of a group; ``ControlError`` if no job has it."""
        for membership in self.jobs.values():
            readiness = membership.readiness.get(name)
            if readiness is not None:
                return membership, readiness
        raise ControlError(f"no job has registered a group {name}")

    def jobs_of(self, rank: int) -> list[Membership]:
        """The jobs that ``rank`` is in now."""
        return [membership for membership in self.jobs.values() if rank in membership.ranks]

    def ranks(self, but: str = "") -> frozenset[int]:
        """All ranks that are in a job, apart from those of job ``but``."""
        return frozenset(rank for name, m in self.jobs.items() if name != but for rank in m.ranks)

    def check_rank(self, rank: int) -> None:
        """``ControlError`` for a rank that the fabric does not have."""
        if not 0 <= rank < self.plan.ranks:
            raise ControlError(f"there is no rank {rank}; the fabric's ranks are 0 to {self.plan.ranks - 1}")

    def check_new(self, job: Job) -> None:
        """``ControlError`` or ``ConfigError`` for a job that cannot be taken in."""
        if job.name in self.jobs:
            raise ControlError(f"job {job.name} is registered already; finish it first or choose another name")
        if job.reconfiguration_delay_s < 0 or job.link_recovery_s < 0:
            raise ConfigError(f"job {job.name} has a delay below 0; 0 or more is right", key="reconfiguration_delay_s")
        known = {name for membership in self.jobs.values() for name in membership.readiness}
        for group in job.groups:
            if group.name in known:
                raise ControlError(f"group {group.name} is registered already; every group needs a name of its own")
            known.add(group.name)
            if not group.members or len(set(group.members)) != len(group.members):
                raise ConfigError(f"group {group.name} must have members, each of them once")
            outside = [r for r in group.members if not 0 <= r < self.plan.ranks]
            if outside:
                raise ConfigError(
                    f"group {group.name} has rank {outside[0]}; the fabric's ranks are 0 to {self.plan.ranks - 1}"
                )
            dead = sorted(self.dead.intersection(group.members))
            if dead:
                raise ConfigError(
                    f"group {group.name} has rank {dead[0]}, which has failed; a chip that lives is right"
                )

    # ---- spares ------------------------------------------------------------------------------------------------

    @property
    def spares(self) -> tuple[int, ...]:
        """The spares of the plan, in its order."""
        return self.plan.rack.spares if self.plan.rack is not None else ()

    def free(self) -> tuple[int, ...]:
        """The spares that live, work and are in no job."""
        used = self.ranks()
        return tuple(r for r in self.spares if r not in self.dead and r not in used and self._sound(r))

    def why_nobody(self) -> str:
        """Which spares there are and why none of them stands in."""
        if not self.spares:
            return "the fabric has no spare"
        return "of the spares " + ", ".join(f"{rank} {self._use_of(rank)}" for rank in self.spares)

    def _use_of(self, rank: int) -> str:
        jobs = self.jobs_of(rank)
        if rank in self.dead:
            return "has failed"
        if jobs:
            return f"is in job {jobs[0].job.name}"
        return "does not suit the policy" if self._sound(rank) else "has a broken port"

    # ---- racks -------------------------------------------------------------------------------------------------

    def without_routes(self) -> frozenset[int]:
        """The chips that no packet may be led to or through: the dead, and further racks that no job is in."""
        rack = self.plan.rack
        if rack is None or rack.racks == 1:
            return frozenset(self.dead)
        chips = prod(rack.torus)
        used = {rank // chips for membership in self.jobs.values() for rank in membership.placed}
        return frozenset(self.dead.union(r for r in range(chips, chips * rack.racks) if r // chips not in used))
