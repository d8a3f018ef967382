"""The live controller: messages and switch events go into the engine, its actions come out as bytes and answers.

Free of any framework. One lock guards the engine; answers and the timeline are written outside of it. Its parts:
``northbound`` takes requests, ``tuning`` and ``forwarding`` carry out what switches must do, ``watch`` listens for
silence.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from controllers.circuits.losses import PortCount
from controllers.engine.actions import Action, Darken, Note, Reroute, SlotEnds
from controllers.engine.engine import Engine
from controllers.northbound.answers import Requester, failure
from controllers.northbound.messages import Message
from controllers.northbound.operations import Operations
from controllers.openflow import flows
from controllers.openflow.clock import Alarm, AlarmClock
from controllers.openflow.datapath_sender import Decide
from controllers.openflow.datapaths import Datapaths, Send, Step, Transaction
from controllers.openflow.forwarding import Forwarding
from controllers.openflow.heartbeat_alarm import HeartbeatAlarm
from controllers.openflow.tuning import Tuning
from railyard.errors import ConfigError, RailyardError
from railyard.timeline import Event
from topos.plan import FabricPlan

ANSWER_S = 10.0
"""How long a switch may take to answer before whoever waits is told that it does not."""


class ControllerCore:
    """``record`` takes each event of the timeline, ``on_ready`` is called once all switches of ``plan`` have joined.

    ``clock`` tells the time in seconds, ``alarm`` calls functions at given times of that clock.
    """

    def __init__(
        self,
        plan: FabricPlan,
        record: Callable[[Event], None],
        on_ready: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        alarm: AlarmClock | None = None,
    ) -> None:
        self.plan = plan
        self.engine = Engine(plan)
        self.datapaths = Datapaths(plan)
        self._record = record
        self._on_ready: Callable[[], None] | None = on_ready
        self._clock = clock
        self._lock = threading.Lock()
        self._alarm = alarm or Alarm()
        self._tuning = Tuning(self)
        self._forwarding = Forwarding(self)
        self._watch = HeartbeatAlarm(self.engine, self.later)
        self._north = Operations(plan, self.engine, self.datapaths, self._watch.arm)
        self._notes: list[Note] = []
        self.on_darken: Callable[[Darken], None] = lambda darken: None

    def start(self) -> None:
        """Start the alarm clock (once the process is where it will stay)."""
        self._alarm.start()

    # ---- north ------------------------------------------------------------------------------------------------

    def handle(self, message: object, requester: Requester) -> None:
        """Carry out one request; it is answered now or when what it asks for has happened."""
        if isinstance(message, dict) and message.get("op") == "alive":
            self._heartbeat(message, requester)
            return
        request_id = message.get("id") if isinstance(message, dict) else None
        try:
            if not isinstance(message, dict):
                raise ConfigError(f"a request must be a JSON object, not {message!r}")
            operation, request = self._north.operation(message), message
            self._do(lambda now: operation(request, (requester, request_id), now))
        except RailyardError as error:
            requester.answer(request_id, failure(str(error), type(error).__name__))

    def _heartbeat(self, message: Message, requester: Requester) -> None:
        """A heartbeat is never answered, not even when it is wrong: nobody waits for that."""
        if self._north.take_heartbeat(message, requester, self._clock()):
            return
        operation = self._north.operation(message)
        try:
            self._do(lambda now: operation(message, (requester, None), now))
        except RailyardError:
            return

    def closed(self, requester: Requester) -> None:
        """A connection has ended; whoever waits for a rank behind it is told."""
        self._do(lambda now: self._north.closed(requester, now))

    # ---- south ------------------------------------------------------------------------------------------------

    def joined(self, dpid: int, send: Send) -> None:
        """A switch has connected: it is given what it must hold."""

        def join(now: float) -> Iterable[Action]:
            plan = self.datapaths.plan_of(dpid)
            if plan is None:
                print(f"controller: a switch with dpid {dpid:#x} is not in the plan and is left alone", file=sys.stderr)
                return ()
            actions = self._lose(plan.name, f"{plan.name} connected again", now)
            self.datapaths.connect(plan, send)
            self._fill(plan.name, now)
            return actions

        self._do(join)

    def left(self, dpid: int, send: Send) -> None:
        """The connection behind ``send`` has ended; whoever waits for that switch is told."""

        def leave(now: float) -> Iterable[Action]:
            plan = self.datapaths.plan_of(dpid)
            datapath = self.datapaths.connected.get(plan.name) if plan is not None else None
            if plan is None or datapath is None or datapath.send != send:
                return ()
            self.datapaths.disconnect(plan.name)
            lost = self._lose(plan.name, f"{plan.name} lost its connection to the controller", now)
            return [Note("left", now, fields={"rail": plan.name}, source="switch"), *lost]

        self._do(leave)

    def answered(self, dpid: int, xid: int) -> None:
        """A barrier reply: what was sent under ``xid`` is done."""

        def go_on(now: float) -> Iterable[Action]:
            done = self.datapaths.transactions.pop(xid, None)
            if done is None:
                return ()
            if done.step == "fill":
                self.datapaths.connected[done.switch].filled = True
                return ()
            part = self._forwarding.answered if done.step == "route" else self._tuning.stepped
            return part(done, now)

        self._do(go_on)

    def refused(self, dpid: int, xid: int, reason: str) -> None:
        """An error message: what was sent under ``xid`` was not done."""

        def give_up(now: float) -> Iterable[Action]:
            failed = self.datapaths.transactions.pop(xid, None)
            return () if failed is None else self._failed(failed, f"refused it ({reason})", now)

        self._do(give_up)

    def counted(self, dpid: int, xid: int, counts: Sequence[PortCount]) -> None:
        """Counters of ports came."""
        with self._lock:
            self._tuning.counted(xid, counts)

    def port_changed(self, dpid: int, port: int, up: bool) -> None:
        """A port lost its carrier or has it again: on an OCS it has failed or was repaired."""

        def change(now: float) -> Iterable[Action]:
            plan = self.datapaths.plan_of(dpid)
            plugged = next((p for p in plan.ports if p.number == port), None) if plan is not None else None
            if plan is None or plugged is None:
                return ()
            if plan.kind == "ocs":
                act = self.engine.port_restored if up else self.engine.port_failed
                return act(plan.name, port, now)
            return self.engine.carrier_changed(plan.name, port, plugged.rank, up, now) if plan.network == "rail" else ()

        self._do(change)

    # ---- what carrying out needs (southbound.Southbound) --------------------------------------------------------

    def ask(
        self, name: str, step: Step, build: Callable[[int], bytes], now: float, reconfiguration_id: int = 0
    ) -> bool:
        """Send ``build(xid)`` to a switch; False if it is not connected. No answer in time counts as a refusal."""
        xid = self.datapaths.ask(name, step, build, now, reconfiguration_id)
        if xid:
            self.later(now + ANSWER_S, lambda later: self._overdue(xid, later))
        return bool(xid)

    def later(self, moment: float, decide: Decide) -> None:
        """Decide at ``moment``, under the lock, and carry out what comes of it."""
        self._alarm.at(moment, lambda: self._do(decide))

    # ---- inside -----------------------------------------------------------------------------------------------

    def _do(self, decide: Decide) -> None:
        """Decide and send under the lock; answer and record outside of it."""
        ready: Callable[[], None] | None = None
        pending_replies = self._north.pending_replies
        with self._lock:
            now = self._clock()
            self._carry_out(decide(now), now)
            answers, pending_replies.answers = pending_replies.answers, []
            notes, self._notes = self._notes, []
            if self._on_ready is not None and self.datapaths.complete:
                ready, self._on_ready = self._on_ready, None
        for (requester, request_id), text in answers:
            requester.answer(request_id, text)
        for note in notes:
            self._record(note.event())
        if ready is not None:
            ready()

    def _carry_out(self, actions: Iterable[Action], now: float) -> None:
        queue = list(actions)
        while queue:
            action = queue.pop(0)
            if isinstance(action, Darken):
                self.on_darken(action)
                queue += self._tuning.begin(action, now)
            elif isinstance(action, Reroute):
                queue += self._forwarding.begin(action, now)
            elif isinstance(action, SlotEnds):
                self._end_turn(action)
            elif isinstance(action, Note):
                self._notes.append(action)
            else:
                self._north.pending_replies.report(action)

    def _end_turn(self, ends: SlotEnds) -> None:
        """Order the dark so that it comes when the slot ends."""
        lead = max(
            (self.datapaths.connected[name].dark_trip_s for name in ends.switches if name in self.datapaths.connected),
            default=0.0,
        )
        self.later(ends.at - lead, lambda now: self.engine.end_slot(ends, now))

    def _fill(self, name: str, now: float) -> None:
        device = self.engine.optical.switches.get(name)
        circuits = [c.ports for c in device.up] if device is not None else []
        plan, routes = self.datapaths.connected[name].plan, self.engine.routing.held.get(name)
        self.ask(name, "fill", lambda xid: flows.fill(plan, circuits, xid, routes), now)

    def _overdue(self, xid: int, now: float) -> Iterable[Action]:
        late = self.datapaths.transactions.pop(xid, None)
        return () if late is None else self._failed(late, f"did not answer within {ANSWER_S:g} s", now)

    def _failed(self, transaction: Transaction, what: str, now: float) -> Iterable[Action]:
        """A switch did not do what it was asked: tell whoever waits, and put it in a known state."""
        name = transaction.switch
        print(f"controller: {name} {what}", file=sys.stderr)
        if transaction.step == "fill":
            return ()
        part = self._forwarding if transaction.step == "route" else self._tuning
        actions = part.refused(transaction, f"{name} {what}", now)
        if name in self.datapaths.connected:
            self._fill(name, now)
        return actions

    def _lose(self, name: str, reason: str, now: float) -> list[Action]:
        """Give up everything that is under way on a switch."""
        return [*self._tuning.lost(name, reason, now), *self._forwarding.lost(name, reason, now)]
