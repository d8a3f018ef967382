"""Communication engine of one rank: carries out over sockets what its machine (``workloads.rank.machine``) decides.

It tells the machine what the sockets report: the first and the last byte of a message, when the kernel has taken a
message, when it has left the port, and when the peer's kernel has acknowledged it. A receiver credit is a small
``ready`` message. An unannounced message is an error.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from railyard.errors import PeerLost
from railyard.protocol import Hop, SlotWindow
from railyard.timeline import Event
from workloads.agent.config import AgentConfig
from workloads.agent.transport.connection import Connection
from workloads.agent.transport.connections import Transport
from workloads.agent.transport.message import Header
from workloads.agent.transport.outbox import Outbox
from workloads.agent.transport.poller import Poller
from workloads.agent.transport.receive_matcher import ReceiveMatcher
from workloads.agent.transport.slot_connections import SlotConnections
from workloads.agent.transport.tcp_state import receive_time
from workloads.agent.transport.timers import Timers
from workloads.agent.transport.values import Values
from workloads.phases import Phase, phases
from workloads.program import Send
from workloads.rank.actions import Action, Announce, Drain, Message, OpenPath, RunCompute, SendPart
from workloads.rank.executor import ReleaseCircuits, StepEnded
from workloads.rank.in_flight import InFlight
from workloads.rank.machine import RankMachine
from workloads.rank.paths import PeerKey, keys_at
from workloads.rank.schedule_facts import ScheduleFacts


class CommEngine:
    """All communications of one rank.

    ``done`` is called with each one that is done, ``perform`` with actions of the machine that move no bytes, ``note``
    with events of the sockets. ``buffered`` is called before ``done`` for a send of an eager program that the kernel
    has taken: operations that wait for the send may start.
    """

    def __init__(
        self,
        config: AgentConfig,
        done: Callable[[InFlight, float], None],
        buffered: Callable[[InFlight, float], None],
        perform: Callable[[Message | RunCompute | StepEnded | Event], None],
        note: Callable[..., Any],
        facts: ScheduleFacts | None = None,
    ) -> None:
        self._config = config
        self._done = done
        self._buffered = buffered
        self._perform = perform
        self.values = Values(config)
        self.machine = _machine(config, phases(config.program, config.rank), self.values, facts)
        self.transport = Transport(config.plan, config.rank, self)
        self._slot_connections = SlotConnections(note)
        self._matcher = ReceiveMatcher(config, self.machine)
        self._began: dict[PeerKey, float] = {}
        """Time at which the message began that is coming in on a connection."""
        self._timers = Timers()
        self._outbox = Outbox(self.machine, self.transport, self._slot_connections, self._timers)

    # -- actions of the machine --------------------------------------------------------------------

    def execute(self, actions: Iterable[Action], now: float | None = None) -> None:
        """Execute actions of the machine, which may start communications if ``now`` is given."""
        if now is not None:
            self._timers.now = now
        for action in actions:
            if isinstance(action, SendPart):
                self._outbox.post(action)
            elif isinstance(action, Announce):
                self._outbox.announce(action)
            elif isinstance(action, OpenPath):
                self._outbox.open(action.path)
            elif isinstance(action, Drain):
                self._timers.soon(partial(self._watch_end, action.in_flight))
            else:
                if isinstance(action, ReleaseCircuits):
                    self._end_slots(action.group)
                self._perform(action)
        if now is not None and self.machine.rotating:
            for connection in list(self.transport):
                connection.resume(now)  # a message may have waited until its collective began

    def _end_slots(self, group: str) -> None:
        """End the slots of ``group``: later connections are not bound to them."""
        if group in self.machine.rotating:
            self._slot_connections.end(group)
            for connection in self.transport:
                connection.allow_until(None)

    def acknowledged(self, group: str, index: int, paths: tuple[Hop, ...], now: float) -> None:
        """Go on after the controller has acknowledged request ``index`` of ``group``."""
        actions = self.machine.acknowledged(group, index, paths, now)
        self._timers.now = now
        self.open_eager_paths(group)
        self.execute(actions, now)

    def at(self, moment: float, what: Callable[[float], None], now: float) -> None:
        """Call ``what`` with the time at ``moment`` (at once if that is past)."""
        if moment > now:
            self._timers.at(moment, lambda: what(self._timers.now))
        else:
            what(now)

    def slot_began(self, group: str, index: int, slot_window: SlotWindow, paths: tuple[Hop, ...], now: float) -> None:
        """Begin a slot of ``group``, as announced by the controller: its circuits are up."""
        self._timers.now = now
        actions = self.machine.slot_began(group, index, slot_window, paths, now)
        keys = keys_at(self._config.rank, paths)
        self._slot_connections.begin_slot(group, slot_window, keys, now)
        for key in keys:
            until = slot_window.until  # a call may be repeated only while its circuit is up
            connection = self._outbox.open(key) if until is None else self.transport.connection(key, now)
            if connection is not None:
                if connection.last_progress < now and self.transport.call_again(connection):
                    connection.last_progress = now
                self._slot_connections.allow_until(connection)
        self.execute(actions, now)

    def open_eager_paths(self, group: str | None = None) -> None:
        """Open the paths of eager receives of one group (None: of all groups) that this rank has to open."""
        self._outbox.open_eager_paths(group)

    def accepted(self, connection: Connection) -> None:
        """Take in a path that a peer has opened, and send the messages that waited for it."""
        self._outbox.accepted(connection)

    # -- what connections report (Inbox) -------------------------------------------------------------

    def may_receive(self, connection: Connection, header: Header) -> bool:
        """Whether a message may be received now."""
        return self._matcher.may_receive(connection, header)

    def expect(self, connection: Connection, header: Header) -> memoryview | None:
        """Where the payload goes; ``VerifyError`` if this rank does not await it from there."""
        if header.kind == "ready":
            return None
        now = self._began[connection.key] = self._timers.now
        found = self._matcher.find(connection, header)
        if found is None:
            return self._matcher.keep_unexpected(connection, header, now)
        in_flight, part = found
        due = now + connection.arrival_s(part.bytes)
        self.execute(self.machine.began(in_flight, part, connection.key, now, due))
        if in_flight.buffer is None:
            return None
        values = in_flight.staged[part.transfer] = np.empty(part.end - part.start, dtype=np.float32)
        return values.data.cast("B") if len(values) else None

    def arrived(self, connection: Connection, header: Header) -> None:
        """Process a message that has arrived completely."""
        now = self._timers.now
        if header.kind == "data":
            key, began = self._matcher.key(connection, header), self._began[connection.key]
            self.execute(self.machine.arrived(key, header.transfer, began, now, receive_time(connection.control)))
            return
        wait = header.length / 1e6 - now
        if wait > 0:
            self._timers.later(wait, lambda: self._take_ready(connection, header))
        else:
            self._take_ready(connection, header)

    def _take_ready(self, connection: Connection, header: Header) -> None:
        key, last_round, now = self._matcher.key(connection, header), header.transfer, self._timers.now
        since = header.length / 1e6 if header.length else None
        self.execute(self.machine.credit(key, connection.key, last_round, now, since))

    def written(self, connection: Connection, token: object) -> None:
        """Process an outgoing message that the kernel has taken."""
        assert isinstance(token, tuple)
        in_flight, part = token
        mark, machine, timers = connection.sent_bytes, self.machine, self._timers
        if part.transfer in in_flight.exchange.awaits_sent:
            timers.watch(connection, mark, False, lambda: self.execute(machine.left(in_flight, part)))
        if in_flight.in_slots(part) or in_flight.on_circuit(part):
            timers.watch(connection, mark, True, lambda: self.execute(machine.delivered(in_flight, part, timers.now)))
        self.execute(machine.taken(in_flight, timers.now))

    # -- ending ------------------------------------------------------------------------------------

    def _watch_end(self, in_flight: InFlight) -> None:
        """End a communication when all bytes posted by now, on every path of it, are acknowledged.

        After the send of an eager program the rank goes on at once, and only the bytes of the send itself count.
        """
        eager = self._config.program.eager and isinstance(in_flight.op, Send)
        found = (self.transport.find(path) for path in in_flight.opened)
        marks = [(c, c.sent_bytes if eager else c.posted_bytes) for c in found if c is not None]
        left = len(marks)

        def one() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._end(in_flight)

        if eager:
            self._buffered(in_flight, self._timers.now)
        for connection, mark in marks:
            self._timers.watch(connection, mark, True, one)
        if not marks:
            self._end(in_flight)

    def _end(self, in_flight: InFlight) -> None:
        """End an operation: everything has arrived and is acknowledged."""
        self.machine.close(in_flight)
        in_flight.wrong = self.values.wrong_elements(in_flight)
        self._done(in_flight, self._timers.now)

    # -- the loop's view -----------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Send data that was queued or held back for the token bucket, and finish what is acknowledged."""
        timers, sending = self._timers, self.transport.activity.sending
        timers.now = now
        if sending:
            self._flush(now)
        if timers.next_time <= now:
            timers.run_due()
            self._flush(now)

    def _flush(self, now: float) -> None:
        for connection in list(self.transport.activity.sending):
            if connection.sends_at <= now:
                connection.flush(now)

    def next_deadline(self) -> float:
        """Time at which ``tick`` has something to do (infinity if nothing is planned)."""
        sending = self.transport.activity.sending
        return min(self._timers.next_time, *(c.sends_at for c in sending)) if sending else self._timers.next_time

    @property
    def waits(self) -> bool:
        """Whether the rank waits for bytes or for an acknowledgement, so that ``check_progress`` has a meaning."""
        return self.machine.waits

    def watch_changed(self, poller: Poller) -> None:
        """Let ``poller`` wait for what each connection waits for now."""
        changed = self.transport.activity.changed
        while changed:
            connection, _ = changed.popitem()
            poller.watch(connection, connection.events)

    def handle(self, connection: Connection, events: int, now: float) -> None:
        """Read from and write to a connection of which a poller reports ``events``."""
        self._timers.now = now
        if connection.fileno() < 0:
            return  # closed since
        if not connection.connected:
            connection.check_connected()
        if events & select.EPOLLOUT:
            connection.flush(now)
        if events & select.EPOLLERR and connection.notices():
            self._timers.acknowledged(connection)
            events &= ~select.EPOLLERR
        if events & ~select.EPOLLOUT:
            connection.receive(now)

    def check_progress(self, now: float) -> None:
        """Raise ``PeerLost`` if no byte moved for too long, ``ControlError`` if an acknowledgement is overdue."""
        limit = self._config.peer_timeout_s
        self.machine.check_waits(now, self._config.ack_timeout_s, limit)
        for in_flight in self.machine.under_way:
            found = (self.transport.find(path) for path in in_flight.paths)
            connections = [c for c in found if c is not None]
            latest = max((c.last_progress for c in connections), default=0.0)
            silent_s = now - max(latest, in_flight.last_progress)
            for connection in connections if silent_s > limit / 2 else ():
                connection.listen_closely()
            if silent_s > limit:
                raise PeerLost(
                    f"rank {self._config.rank} moved nothing for {limit:.3g} s in {in_flight.op.name} (step "
                    f"{in_flight.step}, group {in_flight.group.name}) with {in_flight.peers_at_work}"
                )


def _machine(config: AgentConfig, found: tuple[Phase, ...], values: Values, facts: ScheduleFacts | None) -> RankMachine:
    return RankMachine(
        config.program,
        config.rank,
        config.scale,
        found,
        config.steps,
        ports_per_gpu=config.plan.ports_per_gpu,
        forwarding=config.mode in ("native", "electrical"),
        first_step=config.incarnation.first_step if config.incarnation is not None else 0,
        provisioned=config.mode == "provisioned",
        values=values.contribution if config.real_payload else None,
        facts=facts,
    )
