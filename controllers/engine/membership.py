"""The members of one job, which change when a chip fails. Pure.

A job is ``running``, or ``replacing`` a member (from the decision until the circuits or routes of the replacement are
up), or ``stranded`` (no replacement is possible). Changes are numbered from 1. A failure ends the *incarnation* of the
job: requests of its agents are refused until ``restart``.

The k-th requests of all members of a group form a round; ``index`` counts rounds from 0 over the whole run. A round is
*held* from its ack until the last member has released it: until then none of its circuits may change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from controllers.engine.actions import Action
from controllers.engine.jobs import Job
from controllers.policies.policy import Policy
from railyard.errors import ControlError
from workloads.program import Group

FIRST_INDEX = 0


@dataclass
class Round:
    """The requests of all members with one index: ranks that requested and released, and whether it was granted."""

    index: int
    asked_first: float
    asked_last: float
    asked: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)
    acked: bool = False


class Readiness:
    """The readiness barrier of one group. An invalid call raises ``ControlError`` and changes nothing."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.checked_in: set[int] = set()
        self.rounds: dict[int, Round] = {}
        self._members = frozenset(group.members)
        self._next = dict.fromkeys(group.members, FIRST_INDEX)
        self._before: dict[int, tuple[int, Collection[int]]] = {}
        """What members had of an earlier controller: the last index acknowledged, and those not released."""

    def check_in(self, rank: int) -> bool:
        """Check ``rank`` in; True once all members are in."""
        self._check_member(rank)
        if rank in self.checked_in:
            raise ControlError(f"rank {rank} has already checked in to group {self.group.name}")
        self.checked_in.add(rank)
        return self.checked_in == self._members

    def request(self, rank: int, index: int, now: float) -> Round | None:
        """Take the request of ``rank`` for round ``index``; the round once it is complete, else None."""
        self._check_member(rank)
        expected = self._next[rank]
        if index != expected:
            raise ControlError(
                f"rank {rank} sent request {index} of group {self.group.name}; its next request must be {expected}"
            )
        self._next[rank] = expected + 1
        current = self.rounds.setdefault(index, Round(index, now, now))
        current.asked.add(rank)
        current.asked_first, current.asked_last = min(current.asked_first, now), max(current.asked_last, now)
        return current if current.asked == self._members else None

    def release(self, rank: int, index: int) -> Round | None:
        """Take the release of round ``index`` by ``rank``; the round (then forgotten) after the last one, else None."""
        self._check_member(rank)
        current = self.rounds.get(index)
        if current is None or not current.acked or rank in current.released:
            raise ControlError(
                f"rank {rank} released index {index} of group {self.group.name}, for which it holds no ack"
            )
        current.released.add(rank)
        if current.released != self._members:
            return None
        return self.rounds.pop(index)

    def resume(self, rank: int, acknowledged: int, held: Collection[int]) -> None:
        """Take what ``rank`` has of an earlier controller: the last index acknowledged (-1: none), those it holds."""
        self._next[rank] = acknowledged + 1
        self._before[rank] = acknowledged, held

    def granted_before(self, now: float) -> list[Round]:
        """The rounds that an earlier controller granted and not all members have released, as they say.

        A member whose acknowledgement was lost with that controller will request such a round again.
        """
        found = {index for _, held in self._before.values() for index in held}
        found.add(max(acknowledged for acknowledged, _ in self._before.values()))
        for index in sorted(found - {FIRST_INDEX - 1}):
            asked = {rank for rank, (acknowledged, _) in self._before.items() if index <= acknowledged}
            released = {rank for rank in asked if index not in self._before[rank][1]}
            if released != self._members:
                self.rounds[index] = Round(index, now, now, asked, released, acked=True)
        return list(self.rounds.values())

    def absent(self, present: set[int], gone: set[int]) -> frozenset[int]:
        """The members that are ``gone`` and not ``present``; quick where nobody is gone."""
        return (self._members & gone) - present

    def _check_member(self, rank: int) -> None:
        if rank not in self._members:
            raise ControlError(
                f"rank {rank} is not a member of group {self.group.name}; its members are "
                f"{', '.join(map(str, self.group.members))}"
            )


JobState = Literal["running", "replacing", "stranded"]


class Membership:
    """The current groups of ``job``, their readiness barriers in this incarnation, and the history of changes."""

    def __init__(self, job: Job, policy: Policy) -> None:
        self.job = job
        self.policy = policy
        self.state: JobState = "running"
        self.dead: list[int] = []
        """The members that have failed so far, in order."""
        self.waiting: list[int] = []
        """The failed members whose replacement has not begun."""
        self.incarnation_over = False
        self.reason = ""
        """The reason why the job is stranded; empty if it is not."""
        self.ever = set(self.ranks)
        """All present and former members."""
        self.absent: set[int] = set()
        """Of a job that has outlived its controller: the ranks that have not said what they hold (``resume``)."""
        self.held_back: list[tuple[Callable[[int, str, int, float], list[Action]], int, str, int]] = []
        """What the others have asked for and released meanwhile: the call, with rank, group and index."""
        self._arrived = True
        self._history = [job.groups]
        self.readiness = {group.name: Readiness(group) for group in job.groups}

    @property
    def ranks(self) -> tuple[int, ...]:
        return _ranks(self.job.groups)

    def resume(self, rank: int, acknowledged: Mapping[str, int], held: Iterable[tuple[str, int]]) -> None:
        """Take what ``rank`` holds of the controller before; ``ControlError`` if the job does not wait for it."""
        if rank not in self.absent:
            raise ControlError(f"job {self.job.name} does not wait for what rank {rank} holds of an earlier controller")
        self.absent.remove(rank)
        held = list(held)
        for name, readiness in self.readiness.items():
            if rank in readiness.group.members:
                own = [index for group, index in held if group == name]
                readiness.resume(rank, acknowledged.get(name, FIRST_INDEX - 1), own)

    @property
    def number(self) -> int:
        return len(self._history) - 1

    @property
    def watches_ports(self) -> bool:
        """Whether a port that is down counts as the failure of its chip."""
        return self.job.detection is not None and self.job.detection.port

    def end_of_agent(self, unheard: bool) -> str:
        """The cause of failure if the end of a member's connection counts as one; empty if it does not.

        With heartbeats alone it counts as long as no heartbeat has come (``unheard``): the rank is not watched before
        its first one, so its silence would never be noticed.
        """
        detection = self.job.detection
        if detection is None:
            return ""
        if detection.exit:
            return "its agent's connection ended"
        return "its agent's connection ended before its first heartbeat" if detection.heartbeat_s and unheard else ""

    def fail(self, rank: int) -> None:
        self.dead.append(rank)
        self.waiting.append(rank)
        self.incarnation_over = True

    def take(self, groups: tuple[Group, ...]) -> None:
        """Begin the change to ``groups``, which gets the next number; no rank has checked in to them yet."""
        self.state = "replacing"
        self._arrived = False
        self._history.append(groups)
        self._become(groups)

    def arrive(self) -> None:
        self._arrived = True

    @property
    def placed(self) -> tuple[int, ...]:
        """The members that circuits and routes lead to: the old ones until ``arrive``, the new ones from then on."""
        return _ranks(self.job.groups if self._arrived else self._history[-2])

    def settle(self) -> None:
        self.state = "running"
        self.arrive()

    def strand(self, reason: str) -> None:
        """Mark the job as stranded for ``reason``; a change under way is undone, otherwise a new number is used."""
        if self.state == "replacing":
            self._history[-1] = self._history[-2]
        else:
            self._history.append(self.job.groups)
        self._become(self._history[-1])
        self.arrive()
        self.state, self.reason = "stranded", reason
        self.waiting.clear()

    def restart(self) -> None:
        """Begin a new incarnation, in which all members check in again; ``ControlError`` if the job is stranded.

        While a member is being replaced the new incarnation is over at once, and the job must restart again.
        """
        if self.state == "stranded":
            raise ControlError(f"job {self.job.name} cannot restart: {self.reason}")
        self.incarnation_over = self.state == "replacing"
        self._become(self.job.groups)

    def check_alive(self) -> None:
        """Raise ``ControlError`` if this incarnation is over or the job is stranded."""
        if self.state == "stranded":
            raise ControlError(f"job {self.job.name} is stranded: {self.reason}")
        if self.incarnation_over:
            raise ControlError(f"rank {self.dead[-1]} of job {self.job.name} has failed; the job must restart")

    def changes_since(self, seen: int) -> dict[str, Any] | None:
        """The changes after number ``seen`` as plain data; None if there are none or one is still under way.

        Keys: number, state (replaced, stranded), dead, replacements ([old, new]), members (group -> ranks), reason.
        """
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
        """(old rank, new rank) of every position whose member differs from that after change ``seen``."""
        pairs = {
            old: new
            for before, now in zip(self._history[seen], self._history[-1], strict=True)
            for old, new in zip(before.members, now.members, strict=True)
            if old != new
        }
        return list(pairs.items())

    @property
    def members(self) -> dict[str, tuple[int, ...]]:
        return {group.name: group.members for group in self.job.groups}

    def _become(self, groups: tuple[Group, ...]) -> None:
        self.job = replace(self.job, groups=groups)
        self.ever.update(self.ranks)
        self.readiness = {group.name: Readiness(group) for group in groups}


def with_members(groups: Iterable[Group], replacements: Mapping[int, int]) -> tuple[Group, ...]:
    """``groups`` with each old member of ``replacements`` replaced by its new one in the same position."""
    return tuple(
        replace(group, members=tuple(replacements.get(rank, rank) for rank in group.members)) for group in groups
    )


def _ranks(groups: Iterable[Group]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(rank for group in groups for rank in group.members))
