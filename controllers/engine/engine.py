"""The engine: the state machine under every policy, without clock and without I/O.

The live controller and the predictor (``measure.model.prediction``) drive the same engine: time comes in as ``now``,
and actions go out. The engine consists of the job registry, the state of the switches (``optical_state``,
``routing``), the queue of pending requests (``request_queue``), the heartbeats (``liveness``) and the replacement of
failed chips (``failover``). Sources: Opus, arXiv 2602.12521, for requests; LUMION, arXiv 2505.23105, for failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controllers.circuits.circuits import Matching
from controllers.circuits.ocs import UpdateMode
from controllers.circuits.rotation import Cycle, RunningRotation, circuits_in_slot
from controllers.engine.actions import (
    Action,
    CheckedIn,
    Note,
    Refuse,
    Registered,
    RegisterRefused,
    SlotEnds,
)
from controllers.engine.failover import FailureHandler
from controllers.engine.jobs import Job
from controllers.engine.membership import Membership, Readiness, Round
from controllers.engine.optical_state import OpticalState, Reconfiguration
from controllers.engine.registry import JobRegistry, cluster_state_for
from controllers.engine.request_queue import RequestQueue
from controllers.engine.requests import GroupRequest, RewireRequest, StartRequest
from controllers.engine.routing import RouteUpdate, Routing
from controllers.policies.policy import Policy
from railyard.errors import ControlError
from railyard.liveness import Liveness
from topos.plan import FabricPlan
from workloads.program import Group


class Engine:
    """The circuits of every OCS of ``plan`` and the routes of an electrical torus, for any number of jobs.

    Each method takes ``now`` (seconds of a monotonic clock) and returns the actions to execute, in order. An invalid
    call raises ``ControlError``, ``ConfigError`` or ``CircuitError`` and changes nothing.
    """

    def __init__(self, plan: FabricPlan) -> None:
        self.plan = plan
        self.optical = OpticalState(plan)
        self.liveness = Liveness()
        self._unplugged: set[int] = set()
        self.registry = JobRegistry(plan, lambda rank: rank not in self._unplugged and self.optical.sound(rank))
        self.routing = Routing(plan, self.registry.without_routes, self.optical.next_id)
        self._queue = RequestQueue(self.optical, self.routing)
        self._failover = FailureHandler(self.optical, self.routing, self.registry, self._queue, self.liveness)

    # ---- jobs -------------------------------------------------------------------------------------------------

    @property
    def jobs(self) -> dict[str, Job]:
        return {name: membership.job for name, membership in self.registry.jobs.items()}

    def register(self, job: Job, policy: Policy, now: float, *, resumes: bool = False) -> list[Action]:
        """Register ``job`` and set up its starting circuits without delay; ``Registered`` follows when they are up.

        On every switch concerned the starting circuits replace all circuits except those between GPUs of other jobs,
        to which a GPU belongs until its replacement is complete. A job that ``resumes``, since it has outlived its
        controller, keeps the circuits that are up instead, and those that were dark become dark again for the whole
        delay; its requests are served when all its ranks have said what they hold (``resume``).
        """
        self.registry.check_new(job)
        policy.prepare(job)
        policy.see(cluster_state_for(job.name, self.optical, self.registry))

        def given_up(reason: str, later: float) -> list[Action]:
            self.registry.jobs.pop(job.name, None)
            return [RegisterRefused(job.name, reason)]

        start = policy.start(job.groups)
        pending = StartRequest(
            what=f"start of {job.name}",
            asked=now,
            delay_s=0.0,
            reroutes=True,
            job=job.name,
            wiring={} if resumes else start,
            kept=lambda: self.optical.ports_of_ranks(self.registry.ranks_wired(but=job.name)),
            done=lambda later: [Registered(job.name)],
            given_up=given_up,
        )
        beside = self.optical.target()
        beside |= pending.wanted(beside)
        self.optical.changes(beside)
        for slots in map(policy.rotation, job.groups):
            self.optical.warm(circuits_in_slot(slots, slot, beside) for slot in slots)
        membership = self.registry.add(job, policy)
        actions = self._queue.add(pending, now)
        if resumes:
            membership.absent.update(membership.ranks)
            for name in self.optical.switches:
                actions += self._begin_return(name, job.dark_s, now)
        return actions

    def finish(self, job: str, now: float) -> list[Action]:
        """Forget ``job`` and its groups; pending requests are refused, heartbeats ignored, and its circuits stay."""
        membership = self.registry.job(job)
        actions = [
            action
            for readiness in membership.readiness.values()
            for each in list(readiness.rounds.values())
            for action in self._queue.refuse_round(readiness, each, f"job {job} was finished")
        ]
        actions += self._queue.refuse_start(job, f"job {job} was finished before its circuits were up", now)
        self._failover.withdraw(job)
        self.liveness.forget(membership.ever)
        self.registry.jobs.pop(job, None)
        return [*actions, Note("finished", now, fields={"job": job}), *self._queue.advance(now)]

    def restart(self, job: str, now: float) -> list[Action]:
        """Begin a new incarnation of ``job``: all groups check in again, and ranks are watched from their heartbeat."""
        membership = self.registry.job(job)
        actions = self._failover.end_incarnation(membership, f"job {job} has restarted")
        membership.restart()
        self.liveness.forget(membership.ever)
        self.registry.gone.difference_update(membership.ranks)
        return actions + self._queue.advance(now)

    def resume(
        self, job: str, rank: int, acknowledged: Mapping[str, int], held: Iterable[tuple[str, int]], now: float
    ) -> list[Action]:
        """Take what ``rank`` has of an earlier controller, by group: the last request acknowledged, those it holds.

        When all ranks of the job have said so, no port under a grant can be rewired any more, and what they have asked
        for meanwhile is served.
        """
        membership = self.registry.job(job)
        membership.resume(rank, acknowledged, held)
        if membership.absent:
            return []
        actions: list[Action] = []
        for readiness in membership.readiness.values():
            for granted in readiness.granted_before(now):
                self._queue.take_up(_group_request(membership, readiness, granted, now))
        for act, member, group, index in membership.held_back:
            try:
                actions += act(member, group, index, now)
            except ControlError as error:
                actions.append(Refuse(member, group, index, str(error)))
        return actions

    def check_in(self, rank: int, group: str, now: float) -> list[Action]:
        """Check ``rank`` in; once all members are in, each gets ``CheckedIn`` (final paths if it need not request)."""
        membership, readiness = self.registry.group(group)
        membership.check_alive()
        complete = readiness.check_in(rank)
        self.registry.gone.discard(rank)
        if not complete:
            return self._refuse_check_in_if_gone(readiness)
        complete_group, policy = readiness.group, membership.policy
        domain, asks = complete_group.domain, policy.asks(complete_group)
        is_final = not asks and domain == "scale-out"
        paths = tuple(policy.paths(complete_group, self.optical.circuits_up())) if is_final else ()
        rotates = asks and bool(policy.rotation(complete_group))
        return [CheckedIn(member, group, domain, asks, paths, rotates) for member in complete_group.members]

    def changes_since(self, job: str, seen: int) -> dict[str, Any] | None:
        """The changes of membership of ``job`` after number ``seen`` (``Membership.changes_since``), or None."""
        return self.registry.job(job).changes_since(seen)

    # ---- requests ---------------------------------------------------------------------------------------------

    def request(self, rank: int, group: str, index: int, now: float) -> list[Action]:
        """Take the ``index``-th request (from 0) of ``rank`` for the circuits of ``group``."""
        membership, readiness = self.registry.group(group)
        membership.check_alive()
        if membership.absent:
            membership.held_back.append((self.request, rank, group, index))
            return []
        complete_round = readiness.request(rank, index, now)
        self.registry.gone.discard(rank)
        if readiness.rounds[index].acked:
            return self._queue.acknowledge_again(rank, group, index)
        if complete_round is None:
            return self._refuse_if_gone(readiness, readiness.rounds[index])
        return self._queue.add(_group_request(membership, readiness, complete_round, now), now)

    def release(self, rank: int, group: str, index: int, now: float) -> list[Action]:
        """Record that ``rank`` has nothing in flight any more for request ``index``."""
        membership, readiness = self.registry.group(group)
        if membership.incarnation_over:
            return []
        if membership.absent:
            membership.held_back.append((self.release, rank, group, index))
            return []
        if readiness.release(rank, index) is None:
            return self._end_slot_if_over(readiness, index, now)
        return self._queue.release(group, index, now)

    def moved(self, rank: int, group: str, index: int, slot: int, idle: bool, now: float) -> list[Action]:
        """Record that ``rank`` has sent all its data for slot number ``slot``, and that the peer's kernel has it.

        ``idle``: the rank has no data for other slots either. A rank that gets new data afterwards reports again.
        """
        membership, readiness = self.registry.group(group)
        rotation = self._queue.rotation(group, index)
        if membership.incarnation_over or rotation is None:
            return []
        if rank not in readiness.group.members:
            raise ControlError(f"rank {rank} is not a member of group {group}")
        if rotation.number != slot or rotation.slot_window is None:
            return []
        rotation.report(rank, idle)
        return self._end_slot_if_over(readiness, index, now)

    def end_slot(self, ends: SlotEnds, now: float) -> list[Action]:
        """End a slot whose time is over, unless the rotation has moved on already."""
        rotation = self._queue.rotation(ends.group, ends.index)
        if rotation is None or rotation.slot_window != ends.slot_window:
            return []
        return self._queue.end_slot(ends.group, ends.index, now)

    def rewire(
        self,
        switch: str,
        matching: Matching,
        update_mode: UpdateMode,
        now: float,
        *,
        delay_s: float | None = None,
        ticket: object = None,
        manual: dict[str, Any] | None = None,
    ) -> list[Action]:
        """Rewire ``switch`` by hand; ``Rewired(ticket)`` follows when its ports are tuned.

        The rewiring waits for ports that are tuning, and is refused at once (``RewireRefused``) if a group has traffic
        on a port that would go dark. ``delay_s`` defaults to the dark time of the job registered last, 0 without jobs.
        ``manual`` are the fields of the event ``manual`` that is noted when ports begin to go dark for it; a later
        refusal is then noted too.
        """
        device = self.optical.switch(switch)
        after = device.resolve(matching, update_mode)
        self.optical.changes({switch: after})
        delay = self._default_delay_s() if delay_s is None else delay_s
        pending = RewireRequest(
            what=f"rewiring of {switch}",
            asked=now,
            delay_s=delay,
            switch=device,
            matching=matching,
            mode=update_mode,
            ticket=ticket,
            manual=manual,
        )
        return self._queue.add(pending, now)

    # ---- failures ---------------------------------------------------------------------------------------------

    def alive(self, job: str, rank: int, now: float, answers: int | None = None) -> None:
        """Take a heartbeat of ``rank``, whose loop has answered so often (None: it does not say).

        Its first one in an incarnation starts the watch, if the job wants one.
        """
        membership = self.registry.job(job)
        detection = membership.job.detection
        if detection is None or not detection.heartbeat_s or rank in self.registry.dead:
            return
        if rank in membership.ranks and not self.liveness.heard(rank, now, answers):
            self.liveness.watch(rank, detection.heartbeat_s, detection.misses, now, answers)

    def check_heartbeats(self, now: float) -> list[Action]:
        """Fail every rank that is silent or hangs; ``liveness.next_check`` is the time of the next check."""
        actions: list[Action] = []
        for silence in self.liveness.silent(now):
            actions += self.chip_failed(silence.rank, silence.cause(now), now, silence.since)
            self.liveness.forget([silence.rank])
        return actions

    def chip_failed(self, rank: int, cause: str, now: float, heard: float | None = None) -> list[Action]:
        return self._failover.chip_failed(rank, cause, now, heard)

    def gone(self, rank: int, now: float) -> list[Action]:
        """Record that the agent of ``rank`` has ended, and refuse the requests of ranks that wait for it.

        If the job detects failures by it, the rank has failed (``Membership.end_of_agent``), unless the incarnation of
        the job is over: then all its agents end.
        """
        self.registry.gone.add(rank)
        actions: list[Action] = []
        for membership in self.registry.jobs_of(rank):
            for readiness in membership.readiness.values():
                if rank in readiness.group.members:
                    for each in list(readiness.rounds.values()):
                        actions += self._refuse_if_gone(readiness, each)
                    actions += self._refuse_check_in_if_gone(readiness)
            cause = membership.end_of_agent(unheard=self.liveness.last(rank) is None)
            if cause and not membership.incarnation_over:
                actions += self.chip_failed(rank, cause, now)
        return actions

    def port_failed(self, switch: str, port: int, now: float, how: str | None = None) -> list[Action]:
        """Fail a port: its circuit is removed without delay, and requests that need the port are refused.

        If the job detects failures by ports, the chip has failed too, and its replacement removes its other circuits.
        ``how`` is what messages say of the port, by default "has failed". No actions if the port has failed already.
        """
        if self.optical.switch(switch).state(port) == "failed":
            return []
        self.optical.fail(switch, port, how)
        note = Note("port", now, fields={"rail": switch, "port": port, "state": "failed"})
        cause = f"port {port} of {switch} {how or 'is down'}"
        chip = self._port_down(self.optical.rank_at(switch, port), cause, now)
        dropped = [*self._drop_broken(switch, now), *self._queue.port_failed(switch, port, now)]
        return [note, *chip, *dropped, *self._queue.advance(now)]

    def port_restored(self, switch: str, port: int, now: float) -> list[Action]:
        """Restore a repaired port; its lost circuit returns after the delay if both ends are free and working.

        No actions if the port has not failed.
        """
        device = self.optical.switch(switch)
        if device.state(port) != "failed":
            return []
        device.restore(port)
        note = Note("port", now, fields={"rail": switch, "port": port, "state": "restored"})
        return [note, *self.bring_back(switch, now)]

    def carrier_changed(self, switch: str, port: int, rank: int, up: bool, now: float) -> list[Action]:
        """Record that a chip's port on an electrical switch lost its carrier, or (``up``) has it again."""
        if up:
            self._unplugged.discard(rank)
            return []
        self._unplugged.add(rank)
        return self._port_down(rank, f"port {port} of {switch} is down", now)

    # ---- what the switches report -----------------------------------------------------------------------------

    def reconfigured(
        self, reconfiguration_id: int, now: float, *, since: float | None = None, until: float | None = None
    ) -> list[Action]:
        """Finish a reconfiguration: its delay is over and its circuits are up.

        ``since``: when the ports really went dark, if measured (default: when the reconfiguration was ordered).
        ``until``: when the delay ends, if the switch confirmed the circuits before that (``Darken.quiet``).
        """
        done = self.optical.finish(reconfiguration_id)
        if until is not None and isinstance(done.owner, GroupRequest) and done.owner.rotation is not None:
            done.owner.rotation.up_at = max(done.owner.rotation.up_at, until)
        end = now if until is None else until
        actions: list[Action] = [_reconfiguration_note(done, done.began if since is None else since, end)]
        actions += self._drop_broken(done.darken.switch, now)
        return actions + self._queue.ended(done.owner, now)

    def routes_due(self, reconfiguration_id: int) -> RouteUpdate:
        """The tables to send at the end of a re-routing's delay; call ``rerouted`` when the switches hold them."""
        return self.routing.due(reconfiguration_id, frozenset(self.registry.dead))

    def rerouted(self, reconfiguration_id: int, now: float) -> list[Action]:
        return self._queue.ended(self.routing.end(reconfiguration_id), now)

    def failed(self, reconfiguration_id: int, reason: str, now: float) -> list[Action]:
        """Abort a reconfiguration or re-routing that a switch did not execute; its request is refused.

        What circuits its ports had come back when the switch has its flows again (``bring_back``).
        """
        if self.routing.has(reconfiguration_id):
            return self._queue.failed(self.routing.end(reconfiguration_id), reason, now)
        return self._queue.failed(self.optical.abort(reconfiguration_id).owner, reason, now)

    def bring_back(self, switch: str, now: float) -> list[Action]:
        """Bring back the circuits that ``switch`` has lost: it has its flows again, or one of its ports is repaired."""
        begun = self._begin_return(switch, self._default_delay_s(), now) if switch in self.optical.switches else []
        return begun + self._queue.advance(now)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _begin_return(self, switch: str, dark_s: float, now: float) -> list[Action]:
        """Begin the reconfiguration that brings back the circuits that an optical switch has lost, if it can be."""
        change = self.optical.switches[switch].return_of_lost()
        return [] if change is None else [self.optical.begin(switch, change, None, dark_s, now, now)]

    def _port_down(self, rank: int | None, cause: str, now: float) -> list[Action]:
        """Fail ``rank``, one of whose ports is down, if one of its jobs detects failures by ports."""
        if rank is None or not any(membership.watches_ports for membership in self.registry.jobs_of(rank)):
            return []
        return self.chip_failed(rank, cause, now)

    def _end_slot_if_over(self, readiness: Readiness, index: int, now: float) -> list[Action]:
        """Begin the next slot of a rotation if this one is over for all members that have not released the round."""
        group = readiness.group
        rotation = self._queue.rotation(group.name, index)
        if rotation is None or rotation.slot_window is None:
            return []
        present = frozenset(group.members) - readiness.rounds[index].released
        return self._queue.end_slot(group.name, index, now) if rotation.over(present) else []

    def _refuse_if_gone(self, readiness: Readiness, waiting: Round) -> list[Action]:
        """Refuse a round that waits for a member whose agent has ended."""
        left = readiness.absent(waiting.asked, self.registry.gone)
        reason = f"rank {min(left, default=0)} of the group has left"
        return self._queue.refuse_round(readiness, waiting, reason, lost=True) if left else []

    def _refuse_check_in_if_gone(self, readiness: Readiness) -> list[Action]:
        left = readiness.absent(readiness.checked_in, self.registry.gone)
        if not left:
            return []
        present = sorted(readiness.checked_in)
        readiness.checked_in.clear()
        reason = f"rank {min(left)} of the group has left"
        return [Refuse(rank, readiness.group.name, None, reason, lost=True) for rank in present]

    def _drop_broken(self, switch: str, now: float) -> list[Action]:
        change = self.optical.switches[switch].removal_of_broken()
        return [] if change is None else [self.optical.begin(switch, change, None, 0.0, now, now)]

    def _default_delay_s(self) -> float:
        return next((membership.job.dark_s for membership in reversed(self.registry.jobs.values())), 0.0)


def _group_request(membership: Membership, readiness: Readiness, complete: Round, now: float) -> GroupRequest:
    job, policy = membership.job, membership.policy
    return GroupRequest(
        what=readiness.group.name,
        asked=now,
        delay_s=job.dark_s,
        policy=policy,
        readiness=readiness,
        round=complete,
        watched=job.detection is not None,
        rotation=rotation_of(policy, readiness.group, job.cycle),
    )


def rotation_of(policy: Policy, group: Group, cycle: Cycle | None) -> RunningRotation | None:
    """The rotation of ``group``, at its first slot; None if its circuits stay up until the release."""
    slots = policy.rotation(group)
    return RunningRotation(slots, cycle.guard_s if cycle is not None else 0.0) if slots else None


def _reconfiguration_note(done: Reconfiguration, since: float, now: float) -> Note:
    darken = done.darken
    circuits = [list(c.ports) for c in darken.after if darken.ports.issuperset(c.ports)]
    fields = {
        "rail": darken.switch,
        "reconfiguration": darken.reconfiguration_id,
        "ports": sorted(darken.ports),
        "circuits": circuits,
        "asked": done.asked,
        "delay_s": darken.delay_s,
        "group": done.owner.what if done.owner is not None else "",
    }
    return Note("reconfigure", since, now, fields)
