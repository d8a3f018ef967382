"""The live controller: messages and switch events go into the engine, its actions come out as bytes and answers.

Free of any framework. One lock guards the engine; answers and the timeline are written outside of it. The dark time
of a reconfiguration runs from the reply to its bundle to the reply to its lighting: the lighting is sent earlier than
the end of the delay by the round trip that the last ones took.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from controllers import flows, messages
from controllers.actions import (
    Ack,
    Action,
    CheckedIn,
    Darken,
    Note,
    Refuse,
    Registered,
    RegisterRefused,
    Rewired,
    RewireRefused,
)
from controllers.answers import Speaker, Waiter, describe_jobs, describe_switches, failure, fragment
from controllers.catalog import POLICIES, load_policy
from controllers.clock import Alarm
from controllers.engine import Engine
from controllers.losses import SHORTEST_DARK_S, Losses, PortCount, lead_s
from controllers.messages import Message
from controllers.switchboard import Send, Switchboard, Transaction
from measure.timeline import Event
from railyard.errors import ConfigError, ControlError, RailyardError
from topos.plan import FabricPlan

ANSWER_S = 10.0
"""How long a switch may take to answer before whoever waits is told that it does not."""
SETTLE_S = 0.004
"""From light to acknowledgement. Open vSwitch answers a barrier when its tables are changed; its caches of what to do
with a packet follow within two milliseconds (measured), and until then what is sent goes where it went before. Where
changes follow each other closely they follow later by ``Line.turns_to_caches_s``."""


class Conductor:
    """``record`` takes each event of the timeline, ``on_ready`` is called once all switches of ``plan`` have joined."""

    def __init__(
        self,
        plan: FabricPlan,
        record: Callable[[Event], None],
        on_ready: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan = plan
        self.engine = Engine(plan)
        self.board = Switchboard(plan)
        self._record = record
        self._on_ready: Callable[[], None] | None = on_ready
        self._clock = clock
        self._lock = threading.Lock()
        self._alarm = Alarm()
        self._dark_since: dict[int, tuple[str, float | None]] = {}
        self._delays: dict[int, float] = {}
        self._losses = Losses()
        self._check_ins: dict[tuple[int, str], Waiter] = {}
        self._requests: dict[tuple[int, str, int], Waiter] = {}
        self._registrations: dict[str, Waiter] = {}
        self._speaker_of: dict[int, Speaker] = {}
        self._operations: dict[str, Callable[[Message, Waiter, float], Iterable[Action]]] = {
            "register": self._register,
            "checkin": self._check_in,
            "request": self._request,
            "release": self._release,
            "finish": self._finish,
            "circuits": self._circuits,
            "jobs": self._jobs,
            "rewire": self._rewire,
            "fault": self._fault,
        }
        self._answers: list[tuple[Waiter, str]] = []
        self._notes: list[Note] = []

    def start(self) -> None:
        """Start the alarm clock (once the process is where it will stay)."""
        self._alarm.start()

    # ---- north ------------------------------------------------------------------------------------------------

    def handle(self, message: object, speaker: Speaker) -> None:
        """Carry out one request; it is answered now or when what it asks for has happened."""
        request_id = message.get("id") if isinstance(message, dict) else None
        waiter = (speaker, request_id)
        try:
            if not isinstance(message, dict):
                raise ConfigError(f"a request must be a JSON object, not {message!r}")
            operation = self._operations.get(str(message.get("op")))
            if operation is None:
                raise ConfigError(f"must be one of {', '.join(self._operations)}, not {message.get('op')!r}", key="op")
            self._do(lambda now: operation(message, waiter, now))
        except RailyardError as error:
            speaker.answer(request_id, failure(str(error), type(error).__name__))

    def closed(self, speaker: Speaker) -> None:
        """A connection has ended; whoever waits for a rank behind it is told."""

        def leave(now: float) -> Iterable[Action]:
            tables: tuple[dict[Any, Waiter], ...] = (self._check_ins, self._requests, self._registrations)
            for table in tables:
                for key in [k for k, (who, _) in table.items() if who is speaker]:
                    del table[key]
            gone = [rank for rank, who in self._speaker_of.items() if who is speaker]
            for rank in gone:
                del self._speaker_of[rank]
            return [action for rank in gone for action in self.engine.gone(rank, now)]

        self._do(leave)

    def _register(self, message: Message, waiter: Waiter, now: float) -> Iterable[Action]:
        name = messages.text(message, "policy")
        if name not in POLICIES and not waiter[0].trusted:
            raise ConfigError(f"{name} names code to load, which only the user of the controller may", key="policy")
        job = messages.job(message)
        missing = self.board.missing()
        if missing:
            raise ControlError(f"{missing[0]} has not joined the controller, so no job can start")
        actions = self.engine.register(job, load_policy(name, self.plan), now)
        self._registrations[job.name] = waiter
        return actions

    def _check_in(self, message: Message, waiter: Waiter, now: float) -> Iterable[Action]:
        rank, group = messages.whole(message, "rank"), messages.text(message, "group")
        actions = self.engine.check_in(rank, group, now)
        self._check_ins[rank, group] = waiter
        self._speaker_of[rank] = waiter[0]
        return actions

    def _request(self, message: Message, waiter: Waiter, now: float) -> Iterable[Action]:
        rank, group = messages.whole(message, "rank"), messages.text(message, "group")
        index = messages.whole(message, "index")
        actions = self.engine.request(rank, group, index, now)
        self._requests[rank, group, index] = waiter
        self._speaker_of[rank] = waiter[0]
        return actions

    def _release(self, message: Message, waiter: Waiter, now: float) -> Iterable[Action]:
        rank, group = messages.whole(message, "rank"), messages.text(message, "group")
        actions = self.engine.release(rank, group, messages.whole(message, "index"), now)
        self._answers.append((waiter, '"ok":true'))
        return actions

    def _finish(self, message: Message, waiter: Waiter, now: float) -> Iterable[Action]:
        name = messages.text(message, "job")
        job = self.engine.jobs.get(name)
        actions = self.engine.finish(name, now)
        for group in job.groups if job is not None else ():
            for rank in group.members:
                self._speaker_of.pop(rank, None)
                self._tell(self._check_ins.pop((rank, group.name), None), failure(f"job {name} was finished"))
        self._answers.append((waiter, '"ok":true'))
        return actions

    def _circuits(self, message: Message, waiter: Waiter, now: float) -> Iterable[Action]:
        self._answers.append(
            (waiter, fragment(ok=True, switches=describe_switches(self.plan, self.board, self.engine)))
        )
        return ()

    def _jobs(self, message: Message, waiter: Waiter, now: float) -> Iterable[Action]:
        self._answers.append((waiter, fragment(ok=True, jobs=describe_jobs(self.engine))))
        return ()

    def _rewire(self, message: Message, waiter: Waiter, now: float) -> Iterable[Action]:
        return self.engine.rewire(
            messages.text(message, "switch"),
            messages.circuits(message),
            messages.update_mode(message),
            now,
            delay_s=messages.seconds(message, "delay_s", None),
            ticket=waiter,
        )

    def _fault(self, message: Message, waiter: Waiter, now: float) -> Iterable[Action]:
        switch, port, state = messages.text(message, "switch"), messages.whole(message, "port"), message.get("state")
        if state not in ("failed", "restored"):
            raise ConfigError(f"must be failed or restored, not {state!r}", key="state")
        change = self.engine.port_failed if state == "failed" else self.engine.port_restored
        actions = change(switch, port, now)
        self._answers.append((waiter, '"ok":true'))
        return actions

    # ---- south ------------------------------------------------------------------------------------------------

    def joined(self, dpid: int, send: Send) -> None:
        """A switch has connected: it is given what it must hold."""

        def join(now: float) -> Iterable[Action]:
            plan = self.board.plan_of(dpid)
            if plan is None:
                print(f"controller: a switch with dpid {dpid:#x} is not in the plan and is left alone", file=sys.stderr)
                return ()
            actions = self._lose(plan.name, "connected again", now)
            self.board.connect(plan, send)
            self._fill(plan.name, now)
            return actions

        self._do(join)

    def left(self, dpid: int, send: Send) -> None:
        """The connection behind ``send`` has ended; whoever waits for that switch is told."""

        def leave(now: float) -> Iterable[Action]:
            plan = self.board.plan_of(dpid)
            line = self.board.lines.get(plan.name) if plan is not None else None
            if plan is None or line is None or line.send != send:
                return ()
            self.board.disconnect(plan.name)
            lost = self._lose(plan.name, "lost its connection to the controller", now)
            return [Note("left", now, fields={"rail": plan.name}, source="switch"), *lost]

        self._do(leave)

    def answered(self, dpid: int, xid: int) -> None:
        """A barrier reply: what was sent under ``xid`` is done."""

        def go_on(now: float) -> Iterable[Action]:
            done = self.board.transactions.pop(xid, None)
            if done is None:
                return ()
            if done.step == "fill":
                self.board.lines[done.switch].filled = True
                return ()
            return self._stepped(done, now)

        self._do(go_on)

    def refused(self, dpid: int, xid: int, reason: str) -> None:
        """An error message: what was sent under ``xid`` was not done."""

        def give_up(now: float) -> Iterable[Action]:
            failed = self.board.transactions.pop(xid, None)
            return () if failed is None else self._failed(failed, f"refused it ({reason})", now)

        self._do(give_up)

    def counted(self, dpid: int, xid: int, counts: Sequence[PortCount]) -> None:
        """Counters of ports came."""
        with self._lock:
            self._losses.read(xid, counts)

    def port_changed(self, dpid: int, port: int, up: bool) -> None:
        """A port lost its carrier or has it again: on an OCS it has failed or was repaired."""

        def change(now: float) -> Iterable[Action]:
            plan = self.board.plan_of(dpid)
            if plan is None or plan.kind != "ocs" or port not in self.engine.fabric.switch(plan.name).ports:
                return ()
            act = self.engine.port_restored if up else self.engine.port_failed
            return act(plan.name, port, now)

        self._do(change)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _do(self, decide: Callable[[float], Iterable[Action]]) -> None:
        """Decide and send under the lock; answer and record outside of it."""
        ready: Callable[[], None] | None = None
        with self._lock:
            now = self._clock()
            self._carry_out(decide(now), now)
            answers, self._answers = self._answers, []
            notes, self._notes = self._notes, []
            if self._on_ready is not None and self.board.complete:
                ready, self._on_ready = self._on_ready, None
        for (speaker, request_id), text in answers:
            speaker.answer(request_id, text)
        for note in notes:
            self._record(note.event())
        if ready is not None:
            ready()

    def _carry_out(self, actions: Iterable[Action], now: float) -> None:
        queue = list(actions)
        encoded: tuple[object, str] = (None, "")
        while queue:
            action = queue.pop(0)
            if isinstance(action, Ack):
                if encoded[0] is not action.paths:
                    text = fragment(ok=True, group=action.group, index=action.index, paths=action.paths)
                    encoded = (action.paths, text)
                self._tell(self._requests.pop((action.rank, action.group, action.index), None), encoded[1])
            elif isinstance(action, Darken):
                queue += self._darken(action, now)
            else:
                self._report(action)

    def _report(self, action: Action) -> None:
        """Actions that only tell somebody something."""
        if isinstance(action, Note):
            self._notes.append(action)
        elif isinstance(action, CheckedIn):
            text = fragment(ok=True, domain=action.domain, asks=action.asks, paths=action.paths)
            self._tell(self._check_ins.pop((action.rank, action.group), None), text)
        elif isinstance(action, Refuse):
            waiter = (
                self._check_ins.pop((action.rank, action.group), None)
                if action.index is None
                else self._requests.pop((action.rank, action.group, action.index), None)
            )
            self._tell(waiter, failure(f"group {action.group}: {action.reason}", "ControlError"))
        elif isinstance(action, Registered):
            self._tell(self._registrations.pop(action.job, None), '"ok":true')
        elif isinstance(action, RegisterRefused):
            self._tell(self._registrations.pop(action.job, None), failure(action.reason, "ControlError"))
        elif isinstance(action, Rewired):
            self._tell(action.ticket, '"ok":true')
        elif isinstance(action, RewireRefused):
            self._tell(action.ticket, failure(action.reason, "ControlError"))

    def _tell(self, waiter: object, text: str) -> None:
        if waiter is not None:
            self._answers.append((waiter, text))  # type: ignore[arg-type]

    def _fill(self, name: str, now: float) -> None:
        device = self.engine.fabric.switches.get(name)
        circuits = [c.ports for c in device.lit] if device is not None else []
        plan = self.board.lines[name].plan
        self._ask(name, "fill", lambda xid: flows.fill(plan, circuits, xid), now)

    def _ask(
        self, name: str, step: Any, build: Callable[[int], bytes], now: float, reconfiguration_id: int = 0
    ) -> bool:
        xid = self.board.ask(name, step, build, now, reconfiguration_id)
        if xid:
            self._alarm.at(now + ANSWER_S, lambda: self._do(lambda later: self._overdue(xid, later)))
        return bool(xid)

    def _overdue(self, xid: int, now: float) -> Iterable[Action]:
        late = self.board.transactions.pop(xid, None)
        return () if late is None else self._failed(late, f"did not answer within {ANSWER_S:g} s", now)

    def _darken(self, action: Darken, now: float) -> Iterable[Action]:
        number = action.reconfiguration_id
        self._dark_since[number] = (action.switch, None)
        tuned = action.ports & action.after.ports
        counted = action.delay_s >= SHORTEST_DARK_S

        def build(xid: int) -> bytes:
            if not counted:
                return flows.darken(action, xid)
            self._losses.begin(number, tuned, xid)
            return flows.darken(action, xid) + flows.port_stats_request(xid)

        self._delays[number] = action.delay_s
        if self._ask(action.switch, "darken", build, now, number):
            return ()
        self._losses.end(number)
        del self._delays[number]
        del self._dark_since[number]
        return self.engine.failed(number, f"{action.switch} is not connected to the controller", now)

    def _stepped(self, done: Transaction, now: float) -> Iterable[Action]:
        """The dark bundle or the lighting of a reconfiguration is done."""
        number = done.reconfiguration_id
        line = self.board.lines[done.switch]
        wait_s = line.turns_to_caches_s(now)
        if done.step == "darken":
            delay_s = self._delays.pop(number)
            if delay_s > 0:
                self._dark_since[number] = (done.switch, now)
                end = now + delay_s - line.round_trip_s
                if self._losses.counts(number):
                    self._alarm.at(end - lead_s(len(line.plan.ports)), lambda: self._count(number))
                self._alarm.at(end, lambda: self._do(lambda t: self._light(number, t)))
                return ()
        else:
            line.learn(now - done.sent_at)
        _, since = self._dark_since.pop(number)
        packets, size = self._losses.end(number)
        lost = [_dropped(done.switch, packets, size, number, now)] if packets else []
        actions = self.engine.lit(number, now, since=since)
        acks = [action for action in actions if isinstance(action, Ack)]
        if acks:
            self._alarm.at(now + wait_s + SETTLE_S, lambda: self._do(lambda later: acks))
        return [*lost, *(action for action in actions if not isinstance(action, Ack))]

    def _count(self, number: int) -> None:
        """Read the counters of a switch for the second time."""
        with self._lock:
            name = self._dark_since.get(number, ("", None))[0]
            line = self.board.lines.get(name)
            if line is not None:
                xid = self.board.next_xid()
                self._losses.again(number, xid)
                line.send(flows.port_stats_request(xid))

    def _light(self, number: int, now: float) -> Iterable[Action]:
        if number not in self._dark_since:
            return ()
        name = self._dark_since[number][0]
        if self._ask(name, "light", lambda xid: flows.light(number, xid), now, number):
            return ()
        return self._lose(name, "is not connected to the controller", now)

    def _failed(self, transaction: Transaction, reason: str, now: float) -> Iterable[Action]:
        """A switch did not do what it was asked: tell whoever waits, and put it in a known state."""
        number, name = transaction.reconfiguration_id, transaction.switch
        print(f"controller: {name} {reason}", file=sys.stderr)
        if transaction.step == "fill":
            return ()
        self._dark_since.pop(number, None)
        self._delays.pop(number, None)
        self._losses.end(number)
        actions = self.engine.failed(number, f"{name} {reason}", now)
        if name in self.board.lines:
            self._fill(name, now)
        return actions

    def _lose(self, name: str, reason: str, now: float) -> list[Action]:
        """Give up every reconfiguration under way on a switch."""
        actions: list[Action] = []
        for number in [n for n, (switch, _) in self._dark_since.items() if switch == name]:
            del self._dark_since[number]
            self._delays.pop(number, None)
            self._losses.end(number)
            actions += self.engine.failed(number, f"{name} {reason}", now)
        return actions


def _dropped(rail: str, packets: int, size: int, reconfiguration_id: int, now: float) -> Note:
    fields = {"rail": rail, "packets": packets, "bytes": size, "during": reconfiguration_id}
    return Note("dropped", now, fields=fields, source="switch")
