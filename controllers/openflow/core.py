"""The controller core: passes messages and switch events to the engine, and executes the actions that it returns.

It does not depend on an OpenFlow framework. One lock guards the engine; answers and the timeline are written outside of
it. ``northbound.operations`` takes requests, ``tuning`` and ``forwarding`` execute actions on switches, ``recovery``
brings switches back that were away or did not execute a message, and ``HeartbeatAlarm`` checks heartbeats.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from controllers.circuits.losses import PortCount
from controllers.engine.actions import Action, Darken, Note, Reroute, SlotEnds
from controllers.engine.engine import Engine
from controllers.northbound.messages import AnyRequest, header_of, read_request
from controllers.northbound.operations import OnRecord, Operations
from controllers.northbound.pending_replies import Requester, failure
from controllers.openflow.clock import Alarm
from controllers.openflow.datapaths import OPEN_VSWITCH, CacheTimes, Datapaths, Decide, Send, Step
from controllers.openflow.recovery import RECONNECT_S, Recovery
from controllers.openflow.tuning import Forwarding, Tuning
from railyard.errors import RailyardError
from railyard.timeline import Event
from topos.plan import FabricPlan

LATE_S = 0.02
"""A check that is later than this was delayed with the whole controller, so heartbeats may wait to be read: the check
is postponed once, by the same time."""


class HeartbeatAlarm:
    """Checks heartbeats exactly when the next agent could be silent, and at no other time.

    ``later(moment, decide)`` sets a timer; all is called under the core's lock.
    """

    def __init__(self, engine: Engine, later: Callable[[float, Callable[[float], Iterable[Action]]], None]) -> None:
        self._engine = engine
        self._later = later
        self._at: float | None = None
        self._postponed = False

    def arm(self, now: float = -math.inf) -> None:
        """Set the timer earlier if a newly watched rank requires it; ``now``: all has been checked at that time."""
        moment = self._engine.liveness.next_check(now)
        if moment is not None and (self._at is None or moment < self._at):
            self._set(moment)

    def _set(self, moment: float) -> None:
        self._at = moment
        self._later(moment, self._check)

    def _check(self, now: float) -> Iterable[Action]:
        if self._at is None or now < self._at:
            return ()  # a timer that an earlier one has replaced
        is_late = now - self._at > LATE_S
        if is_late and not self._postponed:
            self._postponed = True
            self._set(now + LATE_S)
            return ()
        self._postponed = False
        self._at = None
        actions = self._engine.check_heartbeats(now)
        self.arm(now)
        return actions


class ControllerCore:
    """The live controller of the fabric ``plan``.

    ``record`` is called with each event of the timeline, ``on_ready`` once all switches have joined. ``clock`` returns
    monotonic seconds, and ``alarm`` calls functions at given times of that clock. ``on_darken`` is called before each
    reconfiguration, ``on_record`` when events begin to go to another point, ``reconnect`` with the name of a switch
    that is to connect again and a function that says whether it still has to. ``caches`` is how fast packets follow a
    change of the switches. ``takes_over``: an earlier controller has ended, and the optical switches keep the circuits
    that they have.
    """

    def __init__(
        self,
        plan: FabricPlan,
        record: Callable[[Event], None],
        on_ready: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        alarm: Alarm | None = None,
        caches: CacheTimes = OPEN_VSWITCH,
        *,
        takes_over: bool = False,
    ) -> None:
        self.plan = plan
        self.engine = Engine(plan)
        self.datapaths = Datapaths(plan, caches)
        self._record = record
        self._on_ready: Callable[[], None] | None = on_ready
        self._clock = clock
        self._lock = threading.Lock()
        self._alarm = alarm or Alarm()
        self._tuning = Tuning(self)
        self._forwarding = Forwarding(self)
        self._away: list[tuple[str, Callable[[], bool]]] = []
        self._recovery = Recovery(self, self._tuning, self._forwarding, self._ask_back, takes_over=takes_over)
        self._heartbeat_alarm = HeartbeatAlarm(self.engine, self.later)
        self._operations = Operations(plan, self.engine, self.datapaths, self._heartbeat_alarm.arm)
        self._operations.on_record = lambda point, since, results: self.on_record(point, since, results)
        self._notes: list[Note] = []
        self._recording = threading.Lock()
        self.on_darken: Callable[[Darken], None] = lambda darken: None
        self.on_record: OnRecord = lambda point, since, results: None
        self.reconnect: Callable[[str, Callable[[], bool]], None] = lambda switch, needed: None

    def start(self) -> None:
        self._alarm.start()

    def listening(self) -> None:
        """Have switches connect soon that do not by themselves: after tries that found no controller they wait."""
        self.later(self._clock() + RECONNECT_S, lambda now: self._recovery.call_missing(RECONNECT_S, now))

    # ---- northbound -------------------------------------------------------------------------------------------

    def handle(self, line: bytes, requester: Requester) -> None:
        """Execute the request in a line of JSON; a line that is none is refused."""
        try:
            request = read_request(line)
        except RailyardError as error:
            request_id, op = header_of(line)
            if op != "alive":
                requester.answer(request_id, failure(error))
        else:
            self.execute(request, requester)

    def execute(self, request: AnyRequest, requester: Requester) -> None:
        """Execute a request; the requester gets its answer now or when the operation is complete.

        A heartbeat is never answered, not even when it is wrong: no agent waits for that.
        """
        try:
            if not self._operations.take_heartbeat(request, requester, self._clock()):
                self._run(lambda now: self._perform(request, requester, now))
        except RailyardError as error:
            if request.op != "alive":
                requester.answer(request.id, failure(error))

    def _perform(self, request: AnyRequest, requester: Requester, now: float) -> Iterable[Action]:
        return self._operations.execute(request, requester, now)

    def closed(self, requester: Requester) -> None:
        self._run(lambda now: self._operations.closed(requester, now))

    # ---- southbound -------------------------------------------------------------------------------------------

    def joined(self, dpid: int, send: Send) -> None:
        """Handle a new connection of a switch: it is filled with its flows."""

        def join(now: float) -> Iterable[Action]:
            plan = self.datapaths.plan_of(dpid)
            if plan is None:
                print(f"controller: a switch with dpid {dpid:#x} is not in the plan and is ignored", file=sys.stderr)
            else:
                self._recovery.joined(plan, send, now)
            return ()

        self._run(join)

    def left(self, dpid: int, send: Send) -> None:
        """Handle the end of the connection behind ``send``; what waits for the switch goes on when it is back."""

        def leave(now: float) -> Iterable[Action]:
            plan = self.datapaths.plan_of(dpid)
            datapath = self.datapaths.connected.get(plan.name) if plan is not None else None
            if plan is None or datapath is None or datapath.send != send:
                return ()
            return self._recovery.left(plan.name, now)

        self._run(leave)

    def answered(self, dpid: int, xid: int) -> None:
        """Handle a barrier reply: the transaction ``xid`` is complete (a repeated reply is ignored)."""

        def go_on(now: float) -> Iterable[Action]:
            done = self.datapaths.transactions.pop(xid, None)
            if done is None:
                return ()
            if done.step == "read":
                self._recovery.read(done, now)
                return ()
            if done.step == "fill":
                return self._recovery.filled(done.switch, now)
            part = self._forwarding.answered if done.step == "route" else self._tuning.step_done
            return part(done, now)

        self._run(go_on)

    def refused(self, dpid: int, xid: int, reason: str) -> None:
        self._run(lambda now: self._not_executed(xid, f"refused a message ({reason})", now, at_once=False))

    def flows_read(self, xid: int, entries: bytes) -> None:
        """Take a part of the flows of a switch; the barrier reply follows the last one."""
        with self._lock:
            self._recovery.flows[xid] = self._recovery.flows.get(xid, b"") + entries

    def counted(self, dpid: int, xid: int, counts: Sequence[PortCount]) -> None:
        with self._lock:
            self._tuning.counted(xid, counts)

    def port_changed(self, dpid: int, port: int, up: bool) -> None:
        """Handle a port that lost its carrier or has it again: on an OCS it has failed or was repaired."""

        def change(now: float) -> Iterable[Action]:
            plan = self.datapaths.plan_of(dpid)
            host_port = next((p for p in plan.ports if p.number == port), None) if plan is not None else None
            if plan is None or host_port is None:
                return ()
            if plan.kind == "ocs":
                act = self.engine.port_restored if up else self.engine.port_failed
                return act(plan.name, port, now)
            return (
                self.engine.carrier_changed(plan.name, port, host_port.rank, up, now) if plan.network == "rail" else ()
            )

        self._run(change)

    # ---- DatapathSender, for Tuning and Forwarding ------------------------------------------------------------

    def send(
        self, name: str, step: Step, build: Callable[[int], bytes], now: float, reconfiguration_id: int = 0
    ) -> bool:
        """Send ``build(xid)`` to switch ``name``; False if it cannot be sent now (``Recovery``)."""
        xid = self.datapaths.send(name, step, build, now, reconfiguration_id)
        if xid:
            wait_s = self._answer_s(name)
            problem = f"did not answer within {wait_s:g} s"
            overdue: Decide = lambda later: self._not_executed(xid, problem, later, at_once=True)  # noqa: E731
            self._alarm.at(now + wait_s, lambda: self._run(overdue), rough=True)
        return bool(xid)

    def _answer_s(self, name: str) -> float:
        """How long a reply of a switch is waited for."""
        return self._recovery.answer_s(name)

    def later(self, moment: float, decide: Decide) -> None:
        """Call ``decide`` at time ``moment``, under the lock, and execute the actions that it returns."""
        self._alarm.at(moment, lambda: self._run(decide))

    # ---- inside -----------------------------------------------------------------------------------------------

    def _run(self, decide: Decide) -> None:
        """Decide and send under the lock; answer requests and record events outside of it."""
        ready: Callable[[], None] | None = None
        pending_replies = self._operations.pending_replies
        with self._lock:
            now = self._clock()
            self._execute(decide(now), now)
            answers, pending_replies.answers = pending_replies.answers, []
            job_ends = any(note.kind == "finished" for note in self._notes)
            away, self._away = self._away, []
            if self._on_ready is not None and self.datapaths.complete:
                ready, self._on_ready = self._on_ready, None
        if job_ends:  # the requester reads the events of the job when it has the answer
            self._record_notes()
        for (requester, request_id), answer in answers:
            requester.answer(request_id, answer)
        for name, needed in away:
            self.reconnect(name, needed)
        if self._notes:
            self._record_notes()
        if ready is not None:
            ready()

    def _record_notes(self) -> None:
        """Record the events so far, of all threads and in their order, outside of the core's lock."""
        with self._recording:
            with self._lock:
                notes, self._notes = self._notes, []
            for note in notes:
                self._record(note.event())

    def _execute(self, actions: Iterable[Action], now: float) -> None:
        queue = list(actions)
        while queue:
            action = queue.pop(0)
            if isinstance(action, Darken):
                self.on_darken(action)
                queue += self._begin(action, now)
            elif isinstance(action, Reroute):
                queue += self._forwarding.begin(action, now)
            elif isinstance(action, SlotEnds):
                self._schedule_slot_end(action)
            elif isinstance(action, Note):
                self._notes.append(action)
            else:
                self._operations.pending_replies.report(action)

    def _begin(self, action: Darken, now: float) -> Iterable[Action]:
        return self._tuning.begin(action, now)

    def _schedule_slot_end(self, ends: SlotEnds) -> None:
        """End a slot early enough that its ports go dark when its time is over."""
        connected = [self.datapaths.connected[name] for name in ends.switches if name in self.datapaths.connected]
        early_s = self.datapaths.caches.early_s
        if early_s is None:
            lead = max((datapath.trip_s("darken") for datapath in connected), default=0.0)
            self.later(ends.at - lead, lambda now: self.engine.end_slot(ends, now))
        else:
            self.later(ends.at - early_s, lambda now: at_time(self.engine.end_slot(ends, max(now, ends.at)), ends.at))

    def _not_executed(self, xid: int, problem: str, now: float, *, at_once: bool) -> Iterable[Action]:
        failed = self.datapaths.transactions.pop(xid, None)
        if failed is not None:
            self._recovery.not_executed(failed, problem, now, at_once=at_once)
        return ()

    def _ask_back(self, name: str) -> None:
        datapath = self.datapaths.connected.get(name)
        self._away.append((name, lambda: self.datapaths.connected.get(name) is datapath))


def at_time(actions: Iterable[Action], moment: float) -> list[Action]:
    """``actions`` whose ports go dark at ``moment``."""
    return [replace(action, not_before=moment) if isinstance(action, Darken) else action for action in actions]
