"""FailureHandler: the replacement of failed chips and the changes of circuits and routes for it. No clock, no I/O.

The members of a job keep their positions; the replacement takes the position of the failed chip, and only circuits that
differ change. Chips of a server that die together are replaced by one change. Otherwise the failures of one job are
handled in order, so that no two changes need the same port; those during a change make the next one.
Sources: LUMION (arXiv 2505.23105) and MORPHLUX (arXiv 2508.03674): the spare gets circuits to the neighbours of the
failed chip, no other links change, and the job restarts from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controllers.engine.actions import Action, MembersChanged, Note, Refuse, Reroute
from controllers.engine.membership import Membership, Readiness, with_members
from controllers.engine.optical_state import OpticalState
from controllers.engine.registry import JobRegistry, cluster_state_for
from controllers.engine.request_queue import RequestQueue
from controllers.engine.requests import PendingRequest, SpliceRequest
from controllers.engine.routing import Routing
from controllers.policies.policy import Wiring
from railyard.errors import ControlError, RailyardError
from railyard.liveness import Liveness
from workloads.program import Group


class FailureHandler:
    """Turns failures of chips into changes of membership and the actions for them."""

    def __init__(
        self, optical: OpticalState, routing: Routing, registry: JobRegistry, queue: RequestQueue, liveness: Liveness
    ) -> None:
        self._optical = optical
        self._routing = routing
        self._registry = registry
        self._queue = queue
        self._liveness = liveness
        self._splices: dict[str, SpliceRequest] = {}

    def chip_failed(self, rank: int, cause: str, now: float, heard: float | None = None) -> list[Action]:
        """Fail ``rank``; a second report changes nothing. ``heard``: time of its last heartbeat, if any.

        The chips of its server that have missed all heartbeats but one fail with it: of a dead server one is noticed
        first, and to wait for the others, up to a heartbeat, would make a second change. Raises ``ControlError`` for a
        rank that the fabric does not have.
        """
        self._registry.check_rank(rank)
        if rank in self._registry.dead:
            return []
        plan = self._registry.plan
        silent = self._liveness.overdue(plan.on_server(rank // plan.gpus_per_server), now)
        actions: list[Action] = []
        jobs: dict[str, Membership] = {}
        for chip in dict.fromkeys([rank, *silent]):
            last = heard if chip == rank and heard is not None else self._liveness.last(chip)
            why = cause if chip == rank else f"its server is silent, as rank {rank} is"
            self._registry.dead.add(chip)
            self._liveness.forget([chip])
            mine = {membership.job.name: membership for membership in self._registry.jobs_of(chip)}
            for name in mine or [""]:
                actions.append(Note("failed", now, fields={"job": name, "rank": chip, "cause": why, "heard": last}))
            for membership in mine.values():
                membership.fail(chip)
            jobs |= mine
        for membership in jobs.values():
            actions += self._interrupt(membership, now)
        for membership in self._registry.jobs.values():
            if membership.state == "running" and (reason := self._cut_off(membership)):
                membership.incarnation_over = True
                actions += [*self.end_incarnation(membership, reason), *self._strand(membership, reason, now)]
        if self._routing.stale and not any(isinstance(action, Reroute) and not action.delay_s for action in actions):
            # no change of a job re-routes the packets of other jobs round the dead chip at once
            actions += self._queue.add(
                PendingRequest(what=f"detour round rank {rank}", asked=now, delay_s=0.0, reroutes=True), now
            )
        return actions + self._queue.advance(now)

    def end_incarnation(self, membership: Membership, reason: str) -> list[Action]:
        """Refuse the open check-ins and requests of a job and void its grants."""
        return [action for readiness in membership.readiness.values() for action in self._refuse_all(readiness, reason)]

    def withdraw(self, job: str) -> None:
        pending = self._splices.pop(job, None)
        if pending is not None:
            self._queue.withdraw(pending)

    def _interrupt(self, membership: Membership, now: float) -> list[Action]:
        name, rank = membership.job.name, membership.dead[-1]
        refused = self._queue.refuse_start(name, f"rank {rank} failed before the circuits of job {name} were up", now)
        if refused:
            return refused
        actions = self.end_incarnation(membership, f"rank {rank} has failed")
        return actions if membership.state == "replacing" else actions + self._next(membership, now)

    def _refuse_all(self, readiness: Readiness, reason: str) -> list[Action]:
        actions: list[Action] = []
        for each in list(readiness.rounds.values()):
            actions += self._queue.refuse_round(readiness, each, reason, lost=True)
        if len(readiness.checked_in) < len(readiness.group.members):
            actions += [Refuse(r, readiness.group.name, None, reason, lost=True) for r in sorted(readiness.checked_in)]
            readiness.checked_in.clear()
        return actions

    def _next(self, membership: Membership, now: float) -> list[Action]:
        waiting, membership.waiting = set(membership.waiting), []
        # an earlier change may have moved the whole job away from them
        lost = [rank for rank in membership.ranks if rank in waiting]
        return self._replace(membership, lost, now) if lost else []

    def _replace(self, membership: Membership, lost: Sequence[int], now: float) -> list[Action]:
        if membership.state == "stranded":
            return self._strand(membership, membership.reason, now)
        groups, policy = membership.job.groups, membership.policy
        try:
            policy.see(cluster_state_for(membership.job.name, self._optical, self._registry))
            for rank in lost:
                if not any(rank in group.members for group in groups):
                    continue
                used = {member for group in groups for member in group.members}
                chosen = dict(policy.replace(groups, rank, [r for r in self._registry.free() if r not in used]))
                if not chosen:
                    why = self._registry.why_no_spare()
                    raise ControlError(f"rank {rank} has failed and cannot be replaced: {why}")
                groups = self._check(membership, groups, rank, chosen)
            wiring = policy.start(groups)
        except RailyardError as error:
            return self._strand(membership, str(error), now)
        except Exception as error:  # a user's policy may raise anything
            return self._strand(membership, f"the policy failed with {type(error).__name__}: {error}", now)
        return self._splice(membership, groups, wiring, now)

    def _check(
        self, membership: Membership, groups: Sequence[Group], rank: int, chosen: Mapping[int, int]
    ) -> tuple[Group, ...]:
        """``groups`` after the replacement that the policy chose; ``ControlError`` if it is invalid."""
        job = membership.job.name
        others = {r: m for m in self._registry.jobs.values() if m is not membership for r in m.ranks}
        for new in chosen.values():
            self._registry.check_rank(new)
            if new in self._registry.dead:
                raise ControlError(f"the policy of job {job} chose rank {new} as a replacement, which has failed too")
            if new in others:
                raise ControlError(f"the policy of job {job} chose rank {new}, which is in job {others[new].job.name}")
        groups = with_members(groups, chosen)
        if any(rank in group.members for group in groups):
            raise ControlError(f"the policy of job {job} chose no replacement for rank {rank}")
        for group in groups:
            if len(set(group.members)) != len(group.members):
                raise ControlError(f"the policy of job {job} put a rank into group {group.name} twice")
        return groups

    def _splice(self, membership: Membership, groups: tuple[Group, ...], wiring: Wiring, now: float) -> list[Action]:
        before = set(membership.ranks)
        membership.take(groups)
        pending = SpliceRequest(
            what=f"splice of {membership.job.name}",
            asked=now,
            delay_s=membership.job.dark_s,
            reroutes=True,
            wiring=wiring,
            broken=lambda name: self._optical.switch(name).failed,
            mine=self._optical.ports_of_ranks(before.union(membership.ranks)),
            delayed=membership.arrive,
            done=lambda later: self._settle(membership, pending, later),
            given_up=lambda reason, later: self._strand(membership, reason, later),
        )
        self._splices[membership.job.name] = pending
        return self._queue.add(pending, now)

    def _settle(self, membership: Membership, pending: SpliceRequest, now: float) -> list[Action]:
        """Complete a change whose circuits and routes are up, and begin the next one if a failure waits."""
        reason = self._cut_off(membership)
        if reason:
            return self._strand(membership, reason, now)
        self._splices.pop(membership.job.name, None)
        membership.settle()
        fields = self._change(membership)
        fields["replacements"] = [list(pair) for pair in membership.replacements(membership.number - 1)]
        fields["ports"] = [list(port) for port in sorted(pending.changed)]
        fields["kept"] = sum(
            all((name, port) not in pending.changed for port in circuit.ports)
            for name, matching in self._optical.target().items()
            for circuit in matching
        )
        note = Note("replaced", pending.asked, now, fields)
        actions = [note, *self._next(membership, now)]
        # watchers are told once the newest members are final, not while one of them is replaced again
        return [*actions, MembersChanged(membership.job.name)] if membership.state == "running" else actions

    def _cut_off(self, membership: Membership) -> str:
        """The reason why the living members of a job cannot reach each other any more; empty if they can."""
        living = [rank for rank in membership.ranks if rank not in self._registry.dead]
        rank = self._routing.cut_off(living)
        if rank is None:
            return ""
        first = living[0]
        return f"rank {rank} and rank {first} cannot reach each other: every route leads through failed chips"

    def _strand(self, membership: Membership, reason: str, now: float) -> list[Action]:
        """Mark a job as stranded for ``reason``; its circuits stay as they are."""
        self._splices.pop(membership.job.name, None)
        membership.strand(reason)
        note = Note("stranded", now, fields={**self._change(membership), "reason": reason})
        return [note, MembersChanged(membership.job.name)]

    def _change(self, membership: Membership) -> dict[str, Any]:
        """Fields of a note on a change; ``dead`` are the failed chips that it and earlier changes have handled."""
        dead = [rank for rank in membership.dead if rank not in membership.waiting]
        return {"job": membership.job.name, "number": membership.number, "dead": dead}
