"""One job and who is in it: its members change when a chip fails. Pure.

A job is ``running``, or ``replacing`` a member (from the decision until the circuits or routes of the one who stands in
are there), or ``stranded`` (nobody can stand in). Changes are numbered from 1. With a failure the *life* of the job is
over: what its agents still ask is refused until ``restart``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from controllers.engine.jobs import Job
from controllers.engine.readiness import Readiness
from controllers.policies.policy import Policy
from railyard.errors import ControlError
from workloads.program import Group

JobState = Literal["running", "replacing", "stranded"]


class Membership:
    """``job`` holds the groups as they are now, ``readiness`` their barriers in this life."""

    def __init__(self, job: Job, policy: Policy) -> None:
        self.job = job
        self.policy = policy
        self.state: JobState = "running"
        self.dead: list[int] = []
        """The members that have failed so far, in order."""
        self.waiting: list[int] = []
        """Those of them whose replacement has not begun."""
        self.incarnation_over = False
        self.reason = ""
        """Why it is stranded."""
        self.ever = set(self.ranks)
        """All who are or were in it."""
        self._arrived = True
        self._history = [job.groups]
        self.readiness = {group.name: Readiness(group) for group in job.groups}

    @property
    def ranks(self) -> tuple[int, ...]:
        """The members of all groups, each once."""
        return _ranks(self.job.groups)

    @property
    def number(self) -> int:
        """How many changes there have been."""
        return len(self._history) - 1

    @property
    def watches_ports(self) -> bool:
        """Whether a port that is down is the failure of a member."""
        return self.job.detection is not None and self.job.detection.port

    def end_of_agent(self, unheard: bool) -> str:
        """Why the end of a member's connection is its failure; empty if it is none.

        Also where only heartbeats count, as long as none has come (``unheard``): its silence would never be noticed.
        """
        detection = self.job.detection
        if detection is None:
            return ""
        if detection.exit:
            return "its agent's connection ended"
        return "its agent's connection ended before its first heartbeat" if detection.heartbeat_s and unheard else ""

    def fail(self, rank: int) -> None:
        """A member has failed: this life is over."""
        self.dead.append(rank)
        self.waiting.append(rank)
        self.incarnation_over = True

    def after(self, replacements: Mapping[int, int]) -> tuple[Group, ...]:
        """The groups with new members in the positions of old ones."""
        return tuple(
            replace(group, members=tuple(replacements.get(rank, rank) for rank in group.members))
            for group in self.job.groups
        )

    def take(self, groups: tuple[Group, ...]) -> None:
        """The change to ``groups`` begins and has a number; nobody has checked in to them yet."""
        self.state = "replacing"
        self._arrived = False
        self._history.append(groups)
        self._become(groups)

    def arrive(self) -> None:
        """The new members may have routes from now on."""
        self._arrived = True

    @property
    def placed(self) -> tuple[int, ...]:
        """The members who may have routes: the old ones until the new ones have arrived."""
        return _ranks(self.job.groups if self._arrived else self._history[-2])

    def settle(self) -> None:
        """The circuits of the members as they are now stand."""
        self.state = "running"
        self.arrive()

    def strand(self, reason: str) -> None:
        """Nobody stands in. A change that was under way is taken back; one that was not gets its number here."""
        if self.state == "replacing":
            self._history[-1] = self._history[-2]
        else:
            self._history.append(self.job.groups)
        self._become(self._history[-1])
        self.arrive()
        self.state, self.reason = "stranded", reason
        self.waiting.clear()

    def restart(self) -> None:
        """A new life: everybody checks in afresh. While a member is being replaced it is over before it has begun.

        Raises ``ControlError`` if the job is stranded.
        """
        if self.state == "stranded":
            raise ControlError(f"job {self.job.name} cannot restart: {self.reason}")
        self.incarnation_over = self.state == "replacing"
        self._become(self.job.groups)

    def check_alive(self) -> None:
        """``ControlError`` if this life is over."""
        if self.state == "stranded":
            raise ControlError(f"job {self.job.name} is stranded: {self.reason}")
        if self.incarnation_over:
            raise ControlError(f"rank {self.dead[-1]} of job {self.job.name} has failed; the job must restart")

    def news(self, seen: int) -> dict[str, Any] | None:
        """What has changed since change ``seen``; None if nothing has, or while it is still changing."""
        if self.state == "replacing" or self.number <= seen:
            return None
        return {
            "number": self.number,
            "state": "stranded" if self.state == "stranded" else "replaced",
            "dead": list(self.dead),
            "replacements": self.replacements(seen),
            "members": self.members,
            "reason": self.reason,
        }

    def replacements(self, seen: int) -> list[tuple[int, int]]:
        """(old rank, new rank) of every position that is another's than after change ``seen``."""
        pairs = {
            old: new
            for before, now in zip(self._history[seen], self._history[-1], strict=True)
            for old, new in zip(before.members, now.members, strict=True)
            if old != new
        }
        return list(pairs.items())

    @property
    def members(self) -> dict[str, tuple[int, ...]]:
        """The members of every group, by its name."""
        return {group.name: group.members for group in self.job.groups}

    def _become(self, groups: tuple[Group, ...]) -> None:
        self.job = replace(self.job, groups=groups)
        self.ever.update(self.ranks)
        self.readiness = {group.name: Readiness(group) for group in groups}


def _ranks(groups: Iterable[Group]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(rank for group in groups for rank in group.members))
