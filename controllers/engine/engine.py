"""The engine: the state machine under every policy, without clock and without I/O.

The live controller and the predictor (``measure.model.prediction``) drive the same engine: time comes in as ``now``,
what should happen goes out as actions. Its parts: who is in which job (``registry``), what the switches hold
(``fabric``, ``routing``), who waits for circuits (``queue``), who still lives (``liveness``), and who stands in for
whom (``failover``). Source of the rules: Opus, arXiv 2602.12521; of failures: LUMION, arXiv 2505.23105.
"""

from __future__ import annotations

from typing import Any

from controllers.circuits.circuits import Matching
from controllers.circuits.ocs import UpdateMode
from controllers.circuits.rotation import Cycle, RunningRotation, circuits_in_slot
from controllers.engine.actions import Action, CheckedIn, Note, Refuse, SlotEnds
from controllers.engine.cluster_state import cluster_state_beside
from controllers.engine.failover import Failover
from controllers.engine.jobs import Job
from controllers.engine.liveness import Liveness
from controllers.engine.optical_state import OpticalState, Reconfiguration
from controllers.engine.readiness import Readiness, Round
from controllers.engine.registry import JobRegistry
from controllers.engine.request_queue import RequestQueue
from controllers.engine.requests import GroupRequest, RewireRequest, StartRequest
from controllers.engine.routing import Due, Routing
from controllers.policies.policy import Policy
from railyard.errors import ControlError
from topos.plan import FabricPlan
from workloads.program import Group


class Engine:
    """The circuits of every OCS of ``plan`` and the routes of an electrical torus, for any number of jobs.

    Each method takes ``now`` (seconds, any clock that does not go back) and returns what must be done, in order. A
    caller's own mistake raises ``ControlError``, ``ConfigError`` or ``CircuitError``, and then nothing has changed.
    """

    def __init__(self, plan: FabricPlan) -> None:
        self.plan = plan
        self.fabric = OpticalState(plan)
        self.liveness = Liveness()
        self._unplugged: set[int] = set()
        self.registry = JobRegistry(plan, lambda rank: rank not in self._unplugged and self.fabric.sound(rank))
        self.routing = Routing(plan, self.registry.without_routes, self.fabric.next_id)
        self._queue = RequestQueue(self.fabric, self.routing)
        self._failover = Failover(self.fabric, self.routing, self.registry, self._queue, self.liveness)

    # ---- jobs -------------------------------------------------------------------------------------------------

    @property
    def jobs(self) -> dict[str, Job]:
        """The registered jobs by name, with their groups as they are now."""
        return {name: membership.job for name, membership in self.registry.jobs.items()}

    def register(self, job: Job, policy: Policy, now: float) -> list[Action]:
        """Take ``job`` in and set up its starting circuits (no delay); ``Registered`` follows when they stand.

        On the switches they are on they replace all circuits but those between GPUs of other jobs.
        """
        self.registry.check_new(job)
        policy.prepare(job.cycle)
        policy.see(cluster_state_beside(job.name, self.fabric, self.registry))
        pending = StartRequest(
            asked=now,
            delay_s=0.0,
            reroutes=True,
            job=job,
            wiring=policy.start(job.groups),
            kept=lambda: self.fabric.ports_of_ranks(self.registry.ranks(but=job.name)),
            forget=lambda: self.registry.jobs.pop(job.name, None),
        )
        beside = self.fabric.target()
        beside |= pending.wanted(beside)
        self.fabric.changes(beside)
        for slots in map(policy.rotation, job.groups):
            self.fabric.warm(circuits_in_slot(slots, slot, beside) for slot in slots)
        self.registry.add(job, policy)
        return self._queue.ask(pending, now)

    def finish(self, job: str, now: float) -> list[Action]:
        """Forget ``job`` and its groups; its circuits stay. Whoever still waits is refused, and nobody is watched."""
        membership = self.registry.job(job)
        actions = [
            action
            for readiness in membership.readiness.values()
            for slot_window in list(readiness.rounds.values())
            for action in self._queue.refuse_round(readiness, slot_window, f"job {job} was finished")
        ]
        actions += self._queue.refuse_start(job, f"job {job} was finished before its circuits stood", now)
        self._failover.withdraw(job)
        self.liveness.forget(membership.ever)
        self.registry.jobs.pop(job, None)
        return actions + self._queue.advance(now)

    def restart(self, job: str, now: float) -> list[Action]:
        """A new life of ``job``: all groups check in afresh, and nobody is watched before it says that it lives."""
        membership = self.registry.job(job)
        actions = self._failover.end_incarnation(membership, f"job {job} has restarted")
        membership.restart()
        self.liveness.forget(membership.ever)
        self.registry.gone.difference_update(membership.ranks)
        return actions + self._queue.advance(now)

    def check_in(self, rank: int, group: str, now: float) -> list[Action]:
        """``rank`` is here; when all members are, each is told whether the group asks, and its paths if it does not."""
        membership, readiness = self.registry.group(group)
        membership.check_alive()
        complete = readiness.check_in(rank)
        self.registry.gone.discard(rank)
        if not complete:
            return self._refuse_check_in(readiness)
        value, policy = readiness.group, membership.policy
        asks = policy.asks(value)
        final = policy.paths(value, self.fabric.light()) if not asks and value.domain == "scale-out" else ()
        paths = tuple(final)
        rotates = asks and bool(policy.rotation(value))
        return [CheckedIn(r, group, value.domain, asks, paths, rotates) for r in value.members]

    def news(self, job: str, seen: int) -> dict[str, Any] | None:
        """What is known of the members of ``job`` beyond change ``seen``; None if nothing, or not for sure yet."""
        return self.registry.job(job).news(seen)

    # ---- requests ---------------------------------------------------------------------------------------------

    def request(self, rank: int, group: str, index: int, now: float) -> list[Action]:
        """``rank`` asks for the circuits of ``group`` for the ``index``-th time (from 0)."""
        membership, readiness = self.registry.group(group)
        membership.check_alive()
        slot_window = readiness.ask(rank, index, now)
        self.registry.gone.discard(rank)
        if slot_window is None:
            return self._refuse_left(readiness, readiness.rounds[index])
        job, policy = membership.job, membership.policy
        pending = GroupRequest(
            asked=now,
            delay_s=job.dark_s,
            job=job,
            policy=policy,
            readiness=readiness,
            slot_window=slot_window,
            rotating=rotation_of(policy, readiness.group, job.cycle),
        )
        return self._queue.ask(pending, now)

    def release(self, rank: int, group: str, index: int, now: float) -> list[Action]:
        """``rank`` has nothing in flight any more for request ``index``."""
        membership, readiness = self.registry.group(group)
        if membership.incarnation_over:
            return []
        if readiness.release(rank, index) is None:
            return self._go_round(readiness, index, now)
        return self._queue.release(group, index, now)

    def moved(self, rank: int, group: str, index: int, slot: int, idle: bool, now: float) -> list[Action]:
        """``rank`` has sent what it has for slot number ``slot`` of a rotation, and all of it is acknowledged by its
        peer's kernel. ``idle``: nor has it anything for other slots; somebody who then gets something says so again.
        """
        membership, readiness = self.registry.group(group)
        rotating = self._queue.turning(group, index)
        if membership.incarnation_over or rotating is None:
            return []
        if rank not in readiness.group.members:
            raise ControlError(f"rank {rank} is not a member of group {group}")
        if rotating.number != slot or rotating.slot_window is None:
            return []
        rotating.report(rank, idle)
        return self._go_round(readiness, index, now)

    def end_slot(self, ends: SlotEnds, now: float) -> list[Action]:
        """The time of a slot is over."""
        rotating = self._queue.turning(ends.group, ends.index)
        if rotating is None or rotating.slot_window != ends.slot_window:
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
    ) -> list[Action]:
        """Rewire ``switch`` by hand; ``Rewired(ticket)`` follows when it is tuned.

        Waits for ports that are tuning; refuses at once (``RewireRefused``) where a group has traffic on a port.
        ``delay_s`` defaults to that of the job registered last, 0 without one.
        """
        device = self.fabric.switch(switch)
        after = device.resolve(matching, update_mode)
        self.fabric.changes({switch: after})
        delay = self._default_delay_s() if delay_s is None else delay_s
        pending = RewireRequest(
            asked=now, delay_s=delay, ticket=ticket, switch=device, matching=matching, mode=update_mode
        )
        return self._queue.ask(pending, now)

    # ---- life and death ---------------------------------------------------------------------------------------

    def alive(self, job: str, rank: int, now: float) -> None:
        """An agent says that it lives. From the first time in a life on it is watched, if the job wants that."""
        membership = self.registry.job(job)
        detection = membership.job.detection
        if detection is None or not detection.heartbeat_s or rank in self.registry.dead:
            return
        if rank in membership.ranks and not self.liveness.heard(rank, now):
            self.liveness.watch(rank, detection.heartbeat_s * detection.misses, now)

    def look(self, now: float) -> list[Action]:
        """Whoever has been silent for too long has failed. ``liveness.next_check`` says when to look next."""
        actions: list[Action] = []
        for rank, heard in self.liveness.silent(now):
            causes = [_missed(m.job) for m in self.registry.jobs_of(rank)]
            actions += self.chip_failed(rank, causes[0] if causes else "its agent is silent", now, heard)
            self.liveness.forget([rank])
        return actions

    def chip_failed(self, rank: int, cause: str, now: float, heard: float | None = None) -> list[Action]:
        """``rank`` is dead: noted once, and whoever can stand in for it does. ``heard``: its last sign of life."""
        return self._failover.chip_failed(rank, cause, now, heard)

    def gone(self, rank: int, now: float) -> list[Action]:
        """``rank`` has left (its process ended): whoever waits for it is refused instead of waiting for ever.

        Where the job says so it has failed (``Membership.end_of_agent``). Not once the life of the job is over: then
        all its agents end.
        """
        self.registry.gone.add(rank)
        actions: list[Action] = []
        for membership in self.registry.jobs_of(rank):
            for readiness in membership.readiness.values():
                if rank in readiness.group.members:
                    for slot_window in list(readiness.rounds.values()):
                        actions += self._refuse_left(readiness, slot_window)
                    actions += self._refuse_check_in(readiness)
            cause = membership.end_of_agent(unheard=self.liveness.last(rank) is None)
            if cause and not membership.incarnation_over:
                actions += self.chip_failed(rank, cause, now)
        return actions

    def port_failed(self, switch: str, port: int, now: float) -> list[Action]:
        """A port broke: its circuit is taken off, without delay, and requests that need it are refused.

        Where the job says so its chip has failed with it, and its circuits go in the change that follows from that.
        """
        device = self.fabric.switch(switch)
        if device.state(port) == "failed":
            return []
        device.fail(port)
        note = Note("port", now, fields={"rail": switch, "port": port, "state": "failed"})
        chip = self._port_of(self.fabric.rank_at(switch, port), f"port {port} of {switch} is down", now)
        dropped = [*self._drop_broken(switch, now), *self._queue.port_failed(switch, port, now)]
        return [note, *chip, *dropped, *self._queue.advance(now)]

    def port_restored(self, switch: str, port: int, now: float) -> list[Action]:
        """A port was repaired: the circuit it lost comes back, after the delay, if both ends are free and sound."""
        device = self.fabric.switch(switch)
        if device.state(port) != "failed":
            return []
        device.restore(port)
        actions: list[Action] = [Note("port", now, fields={"rail": switch, "port": port, "state": "restored"})]
        change = device.returning()
        if change is not None:
            actions.append(self.fabric.begin(switch, change, None, self._default_delay_s(), now, now))
        return actions + self._queue.advance(now)

    def plugged(self, switch: str, port: int, rank: int, up: bool, now: float) -> list[Action]:
        """The port of a chip on an electrical switch lost its carrier, or has it again."""
        if up:
            self._unplugged.discard(rank)
            return []
        self._unplugged.add(rank)
        return self._port_of(rank, f"port {port} of {switch} is down", now)

    # ---- what the switches report -----------------------------------------------------------------------------

    def lit(
        self, reconfiguration_id: int, now: float, *, since: float | None = None, until: float | None = None
    ) -> list[Action]:
        """The delay of this reconfiguration is over and its circuits pass light.

        ``since``: when its ports really went dark, if that is known better than when it was ordered. ``until``: when
        the delay is over, if the switch has said before that it holds the circuits (``Darken.quiet``).
        """
        done = self.fabric.finish(reconfiguration_id)
        if until is not None and isinstance(done.owner, GroupRequest) and done.owner.rotating is not None:
            done.owner.rotating.lit_at = max(done.owner.rotating.lit_at, until)
        end = now if until is None else until
        actions: list[Action] = [_reconfigured(done, done.began if since is None else since, end)]
        actions += self._drop_broken(done.darken.switch, now)
        return actions + self._queue.ended(done.owner, now)

    def routes_due(self, reconfiguration_id: int) -> Due:
        """The delay of this re-routing is over: what must be sent to whom. ``rerouted`` follows when it is there."""
        return self.routing.due(reconfiguration_id, frozenset(self.registry.dead))

    def rerouted(self, reconfiguration_id: int, now: float) -> list[Action]:
        """Every switch holds the routes of this re-routing."""
        return self._queue.ended(self.routing.end(reconfiguration_id), now)

    def failed(self, reconfiguration_id: int, reason: str, now: float) -> list[Action]:
        """The switch did not do it (it refused, or has gone): whoever waits for it is told ``reason``."""
        if self.routing.has(reconfiguration_id):
            return self._queue.failed(self.routing.end(reconfiguration_id), reason, now)
        return self._queue.failed(self.fabric.abort(reconfiguration_id).owner, reason, now)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _port_of(self, rank: int | None, cause: str, now: float) -> list[Action]:
        """A port of ``rank`` is down: it has failed if a job of it says so."""
        if rank is None or not any(membership.watches_ports for membership in self.registry.jobs_of(rank)):
            return []
        return self.chip_failed(rank, cause, now)

    def _go_round(self, readiness: Readiness, index: int, now: float) -> list[Action]:
        """On to the next slot of a rotation, if this one is over for all who are still there."""
        group = readiness.group
        rotating = self._queue.turning(group.name, index)
        if rotating is None or rotating.slot_window is None:
            return []
        present = frozenset(group.members) - readiness.rounds[index].released
        return self._queue.end_slot(group.name, index, now) if rotating.over(present) else []

    def _refuse_left(self, readiness: Readiness, slot_window: Round) -> list[Action]:
        left = readiness.missing(slot_window) & self.registry.gone
        reason = f"rank {min(left, default=0)} of the group has left"
        return self._queue.refuse_round(readiness, slot_window, reason, lost=True) if left else []

    def _refuse_check_in(self, readiness: Readiness) -> list[Action]:
        left = (set(readiness.group.members) - readiness.checked_in) & self.registry.gone
        if not left:
            return []
        here = sorted(readiness.checked_in)
        readiness.checked_in.clear()
        reason = f"rank {min(left)} of the group has left"
        return [Refuse(rank, readiness.group.name, None, reason, lost=True) for rank in here]

    def _drop_broken(self, switch: str, now: float) -> list[Action]:
        change = self.fabric.switches[switch].dropped()
        return [] if change is None else [self.fabric.begin(switch, change, None, 0.0, now, now)]

    def _default_delay_s(self) -> float:
        return next((membership.job.dark_s for membership in reversed(self.registry.jobs.values())), 0.0)


def rotation_of(policy: Policy, group: Group, cycle: Cycle | None) -> RunningRotation | None:
    """The rotation of ``group`` from its first slot; None where its circuits stand until it is done."""
    slots = policy.rotation(group)
    return RunningRotation(slots, cycle.guard_s if cycle is not None else 0.0) if slots else None


def _missed(job: Job) -> str:
    detection = job.detection
    assert detection is not None
    return f"its agent missed {detection.misses} heartbeats of {detection.heartbeat_s:g} s"


def _reconfigured(done: Reconfiguration, since: float, now: float) -> Note:
    darken = done.darken
    circuits = [list(c.ports) for c in darken.after if darken.ports.issuperset(c.ports)]
    fields = {
        "rail": darken.switch,
        "reconfiguration": darken.reconfiguration_id,
        "ports": sorted(darken.ports),
        "circuits": circuits,
        "asked": done.asked,
        "delay_s": darken.delay_s,
        "group": done.owner.label() if done.owner is not None else "",
    }
    return Note("reconfigure", since, now, fields)
