"""The operations of the job channel and of REST: each turns a message into calls of the engine and a reply.

Operations (newline-delimited JSON with ``op`` and, if an answer is wanted, ``id``):

======== ============================== =====================================================================
op       fields                         answered
======== ============================== =====================================================================
register job, policy, mode, groups,     when the starting circuits are up. ``detection``: {heartbeat_s, misses,
         reconfiguration_delay_s,       exit, port} says which events count as the failure of a chip
         link_recovery_s, detection
checkin  rank, group                    when all members have checked in: domain, asks, paths, rotates
request  rank, group, index             when the circuits are up: paths. In a rotation there is an answer for each
                                        slot, with slot_window (number, began, until or null, guard_s)
release  rank, group, index             at once
moved    rank, group, index, slot, idle only if refused: the rank has sent its data for this slot of a rotation
                                        (and, if ``idle``, has none for any other)
alive    job, rank                      never (a heartbeat)
watch    job, seen                      when there were more than ``seen`` changes of membership: number, state
                                        (replaced, stranded), dead, replacements ([old, new], since ``seen``),
                                        members (group -> ranks), reason
restart  job                            at once: number, state, members. A new incarnation begins; earlier
                                        connections of its ranks are not served any more
failed   rank, cause                    at once: ``rank`` has failed, whether or not it is in a job
finish   job                            at once
circuits                                at once: every switch
jobs                                    at once: every job
rewire   switch, circuits, update,      when the switch is tuned
         delay_s
cells    switch, cells, blocked,        when the switch is tuned: its circuits are those that result from the
         delay_s                        states of its cells
fault    switch, port, state            at once: the port has ``failed`` or is ``restored``
======== ============================== =====================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from controllers.engine.actions import Action
from controllers.engine.engine import Engine
from controllers.northbound import messages
from controllers.northbound.answers import PendingReply, Requester, describe_jobs, describe_switches, fragment
from controllers.northbound.cells import set_cells
from controllers.northbound.messages import Message
from controllers.northbound.pending_replies import PendingReplies
from controllers.northbound.sessions import Sessions
from controllers.openflow.datapaths import Datapaths
from controllers.policies.catalog import POLICIES, load_policy
from railyard.errors import ConfigError, ControlError
from topos.plan import FabricPlan

Operation = Callable[[Message, PendingReply, float], Iterable[Action]]


class Operations:
    """The operations by name; each returns the actions of the engine, and ``pending_replies`` has the replies.

    ``arm_heartbeat_alarm`` is called after a heartbeat that may have started the watch of a rank.
    """

    def __init__(
        self, plan: FabricPlan, engine: Engine, datapaths: Datapaths, arm_heartbeat_alarm: Callable[[], None]
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._datapaths = datapaths
        self._arm_heartbeat_alarm = arm_heartbeat_alarm
        self.sessions = Sessions()
        self.pending_replies = PendingReplies(engine.changes_since)
        self._operations: dict[str, Operation] = {
            "register": self._register,
            "checkin": self._check_in,
            "request": self._request,
            "release": self._release,
            "moved": self._moved,
            "alive": self._alive,
            "watch": self._watch,
            "restart": self._restart,
            "failed": self._failed,
            "finish": self._finish,
            "circuits": self._circuits,
            "jobs": self._jobs,
            "rewire": self._rewire,
            "cells": partial(set_cells, engine),
            "fault": self._fault,
        }

    def operation(self, message: Message) -> Operation:
        """The operation that ``message`` names; ``ConfigError`` if there is no such operation."""
        found = self._operations.get(str(message.get("op")))
        if found is None:
            raise ConfigError(f"must be one of {', '.join(self._operations)}, not {message.get('op')!r}", key="op")
        return found

    def take_heartbeat(self, message: Message, requester: Requester, now: float) -> bool:
        """Take a heartbeat of a rank that is already watched, without the lock; False if it is none of those."""
        rank = message.get("rank")
        return type(rank) is int and self.sessions.has(requester, rank) and self._engine.liveness.heard(rank, now)

    def closed(self, requester: Requester, now: float) -> list[Action]:
        """Forget a connection that has ended; the actions that follow for ranks of its sessions."""
        self.pending_replies.forget(requester)
        return [action for rank in self.sessions.close(requester) for action in self._engine.gone(rank, now)]

    # ---- jobs -------------------------------------------------------------------------------------------------

    def _register(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        name = messages.text(message, "policy")
        if name not in POLICIES and not reply_to[0].trusted:
            raise ConfigError(
                f"{name} names code to load, which only the user of the controller may; use one of "
                f"{', '.join(POLICIES)}",
                key="policy",
            )
        job = messages.job(message)
        missing = self._datapaths.missing()
        if missing:
            raise ControlError(f"{missing[0]} has not joined the controller, so no job can start")
        actions = self._engine.register(job, load_policy(name, self._plan), now)
        self.pending_replies.registrations[job.name] = reply_to
        return actions

    def _watch(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        name, seen = messages.text(message, "job"), messages.whole({"seen": 0, **message}, "seen")
        self._engine.registry.job(name)
        self.pending_replies.watch(name, seen, reply_to)
        return ()

    def _restart(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        name = messages.text(message, "job")
        actions = self._engine.restart(name, now)
        membership = self._engine.registry.job(name)
        self.sessions.end_incarnation(membership.ever)
        text = fragment(ok=True, number=membership.number, state=membership.state, members=membership.members)
        self.pending_replies.reply(reply_to, text)
        return actions

    def _finish(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        name = messages.text(message, "job")
        membership = self._engine.registry.job(name)
        actions = self._engine.finish(name, now)
        self.sessions.forget(membership.ever)
        self.pending_replies.forget_job(name, membership.readiness, f"job {name} was finished")
        self.pending_replies.ok(reply_to)
        return actions

    def _jobs(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        self.pending_replies.reply(reply_to, fragment(ok=True, jobs=describe_jobs(self._engine)))
        return ()

    # ---- agents -----------------------------------------------------------------------------------------------

    def _check_in(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        rank, group = messages.whole(message, "rank"), messages.text(message, "group")
        self.sessions.check_current(reply_to[0], rank)
        actions = self._engine.check_in(rank, group, now)
        self.sessions.add(reply_to[0], rank)
        self.pending_replies.check_ins[rank, group] = reply_to
        return actions

    def _request(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        rank, group = messages.whole(message, "rank"), messages.text(message, "group")
        index = messages.whole(message, "index")
        self.sessions.check_current(reply_to[0], rank)
        actions = self._engine.request(rank, group, index, now)
        self.sessions.add(reply_to[0], rank)
        self.pending_replies.requests[rank, group, index] = reply_to
        return actions

    def _release(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        rank, group = messages.whole(message, "rank"), messages.text(message, "group")
        index = messages.whole(message, "index")
        actions: Iterable[Action] = ()
        if not self.sessions.is_stale(reply_to[0]):
            actions = self._engine.release(rank, group, index, now)
            self.pending_replies.requests.pop((rank, group, index), None)
        self.pending_replies.ok(reply_to)
        return actions

    def _moved(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        rank, group = messages.whole(message, "rank"), messages.text(message, "group")
        index, slot = messages.whole(message, "index"), messages.whole(message, "slot")
        idle = messages.flag(message, "idle")
        self.sessions.check_current(reply_to[0], rank)
        return () if self.sessions.is_stale(reply_to[0]) else self._engine.moved(rank, group, index, slot, idle, now)

    def _alive(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        job, rank = messages.text(message, "job"), messages.whole(message, "rank")
        self.sessions.check_current(reply_to[0], rank)
        self._engine.alive(job, rank, now)
        self.sessions.add(reply_to[0], rank)
        self._arm_heartbeat_alarm()
        return ()

    # ---- people and scripts -----------------------------------------------------------------------------------

    def _failed(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        rank = messages.whole(message, "rank")
        cause = messages.text({"cause": "reported on the job channel", **message}, "cause")
        actions = self._engine.chip_failed(rank, cause, now)
        self.pending_replies.ok(reply_to)
        return actions

    def _circuits(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        text = fragment(ok=True, switches=describe_switches(self._plan, self._datapaths, self._engine))
        self.pending_replies.reply(reply_to, text)
        return ()

    def _rewire(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        return self._engine.rewire(
            messages.text(message, "switch"),
            messages.circuits(message),
            messages.update_mode(message),
            now,
            delay_s=messages.seconds(message, "delay_s", None),
            ticket=reply_to,
        )

    def _fault(self, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
        switch, port, state = messages.text(message, "switch"), messages.whole(message, "port"), message.get("state")
        if state not in ("failed", "restored"):
            raise ConfigError(f"must be failed or restored, not {state!r}", key="state")
        change = self._engine.port_failed if state == "failed" else self._engine.port_restored
        actions = change(switch, port, now)
        self.pending_replies.ok(reply_to)
        return actions
