"""Communication engine of one rank: carries out over sockets what its machine (``workloads.rank.machine``) decides.

It tells the machine what the sockets report: the first and the last byte of a message, when the kernel has taken a
message, when it has left the port, and when the peer's kernel has acknowledged it. A receiver credit is a small
``ready`` message. An unannounced message is an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from select import EPOLLERR
from typing import Any

import numpy as np

from railyard.errors import PeerLost, VerifyError
from railyard.loop import WRITE, Poller, Timers
from railyard.protocol import Hop, SlotWindow
from railyard.timeline import Event
from workloads.agent.config import AgentConfig
from workloads.agent.transport.connection import TCP_REPEATS_SYN_S, PeerConnection, Transport
from workloads.agent.transport.message import Header, Outgoing
from workloads.agent.transport.pacing import UpWindow
from workloads.agent.transport.payload import Values
from workloads.agent.transport.sockets import receive_time
from workloads.phases import phases
from workloads.program import Recv, Send
from workloads.rank.actions import Action, Announce, Drain, Message, OpenPath, RoundPause, RunCompute, SendPart
from workloads.rank.exchange import ELEMENT_BYTES, MessagePart, elements_of
from workloads.rank.executor import ReleaseCircuits, StepEnded
from workloads.rank.flows import Flow, FlowKey, flow_names
from workloads.rank.in_flight import InFlight, UnexpectedPart
from workloads.rank.machine import RankMachine
from workloads.rank.paths import PeerKey, keys_at
from workloads.rank.roll_call import WORDS, Tell, Word
from workloads.rank.schedule_facts import ScheduleFacts
from workloads.rank.tensors import Layout


class ReceiveMatcher:
    """The receiving communications of the rank of ``machine``. Times are monotonic seconds."""

    def __init__(self, config: AgentConfig, machine: RankMachine) -> None:
        self._config = config
        self._machine = machine
        self._groups = list(config.program.groups)
        self._eager_receives: dict[tuple[Flow, int], Recv] = {}
        """The receives of an eager program by flow (in step 0) and peer; messages of any other program have none."""
        if config.program.eager:
            names = flow_names(config.program, config.rank)
            receives = [op for op in config.program.communications(config.rank) if isinstance(op, Recv)]
            self._eager_receives = {(names[op.id], op.peer): op for op in receives}

    @staticmethod
    def key(connection: PeerConnection, header: Header) -> FlowKey:
        return header.flow, connection.peer if header.flow.point_to_point else -1

    def may_receive(self, connection: PeerConnection, header: Header) -> bool:
        """Whether a message may be received now; in slots, a message of a peer that is ahead has to wait."""
        rotating = self._machine.rotating
        if not rotating or header.kind != "data" or header.flow.point_to_point:
            return True
        return self.key(connection, header) in self._machine.receiving or self._group(header) not in rotating

    def find(self, connection: PeerConnection, header: Header) -> tuple[InFlight, MessagePart] | None:
        """The communication and part of a payload; None if the receive has not begun.

        Raises ``VerifyError`` if the message is misdelivered.
        """
        in_flight = self._machine.receiving.get(self.key(connection, header))
        if in_flight is None:
            return None
        part = in_flight.exchange.incoming.get(header.transfer)
        if part is None:
            raise VerifyError(f"misdelivered: {self._describe(connection, header)}, which it does not expect")
        part = in_flight.sized(part, header.length)
        if part.bytes != header.length or not self._comes_by(in_flight, part, connection):
            raise VerifyError(
                f"misdelivered: {self._describe(connection, header)}, but expects {part.bytes} bytes from rank "
                f"{part.peer} on another path or in another length"
            )
        return in_flight, part

    def word(self, connection: PeerConnection, header: Header) -> Word:
        """The word of a ``told`` message; ``VerifyError`` if it is unknown, or not about a group of both ranks."""
        group = self._config.program.groups.get(self._group(header))
        if header.length >= len(WORDS) or group is None or connection.peer not in group.members:
            raise VerifyError(f"misdelivered: {self._describe(connection, header)}, which tells it nothing")
        return WORDS[header.length]

    def keep_unexpected(self, connection: PeerConnection, header: Header, now: float) -> memoryview | None:
        """Buffer for a payload whose receive has not begun; ``VerifyError`` if the program has no such receive."""
        flow, peer = key = self.key(connection, header)
        op = self._eager_receives.get((flow.at(0), peer)) if flow.step < self._config.steps else None
        if op is None:
            raise VerifyError(f"misdelivered: {self._describe(connection, header)}, which it does not expect")
        elements = elements_of(self._config.scale.emulated_bytes(op.bytes))
        unexpected = self._machine.unexpected
        if header.transfer != 0 or header.length != elements * ELEMENT_BYTES or key in unexpected:
            raise VerifyError(
                f"misdelivered: {self._describe(connection, header)}, but expects {op.bytes} bytes ({op.name})"
            )
        values = np.empty(elements, dtype=np.float32) if self._config.real_payload else None
        unexpected[key] = {header.transfer: UnexpectedPart(now, values)}
        return None if values is None or not elements else values.data.cast("B")

    def _comes_by(self, in_flight: InFlight, part: MessagePart, connection: PeerConnection) -> bool:
        """Whether ``part`` may come by this connection; in slots, by any connection with its sender."""
        if in_flight.in_slots(part):
            return connection.key[0] == "scale-out" and connection.peer == part.peer
        return self._machine.path(in_flight, part, incoming=True) == connection.key

    def _group(self, header: Header) -> str:
        return self._groups[header.flow.group] if header.flow.group < len(self._groups) else "?"

    def _describe(self, connection: PeerConnection, header: Header) -> str:
        flow = header.flow
        return (
            f"rank {self._config.rank} got transfer {header.transfer} ({header.length} bytes) of group "
            f"{self._group(header)}, operation {flow.sequence}, step {flow.step} from rank {connection.peer}"
        )


class SlotConnections:
    """The connections over circuits that come in slots; ``note`` logs events."""

    def __init__(self, note: Callable[..., object]) -> None:
        self._note = note
        self._heard: dict[str, tuple[SlotWindow, float]] = {}
        """The current slot of a group, and the time at which this rank was told."""
        self._used: dict[str, dict[PeerConnection, int]] = {}
        """The connections used in the current slot of a group, each with the bytes it had sent before."""
        self._unused: set[PeerKey] = set()
        """Paths over circuits of slots without an end on which nothing was sent yet."""
        self._windows: dict[PeerKey, tuple[str, UpWindow | None]] = {}
        """(group, up window) of circuits whose connection was not told yet, since the peer has yet to open it."""

    def begin_slot(self, group: str, slot_window: SlotWindow, paths: Iterable[PeerKey], now: float) -> None:
        self._note_slot(group)
        self._heard[group] = slot_window, now
        window = None
        if slot_window.until is None:
            self._unused.update(paths)
        else:
            window = UpWindow(slot_window.began, slot_window.until - slot_window.guard_s)
        self._windows.update(dict.fromkeys(paths, (group, window)))

    def end(self, group: str) -> None:
        """End the slots of ``group``: the rank has released its circuits."""
        self._note_slot(group)
        self._windows.clear()

    def is_first(self, path: PeerKey) -> bool:
        """Whether the next message is the first by ``path`` in a slot without an end.

        It waits for the tokens that the port's bucket accumulated while the circuit was dark. In a slot with an end,
        the bucket makes up for lateness, and the up window limits the amount.
        """
        first = path in self._unused
        self._unused.discard(path)
        return first

    def allow_until(self, connection: PeerConnection) -> None:
        """Tell a connection the up window of its circuit, if it was not told yet."""
        if connection.key in self._windows:
            group, window = self._windows.pop(connection.key)
            connection.allow_until(window)
            self._used.setdefault(group, {})[connection] = connection.sent_bytes

    def _note_slot(self, group: str) -> None:
        heard, used = self._heard.pop(group, None), self._used.pop(group, {})
        if heard is not None:
            slot_window, told = heard
            sent = sum(connection.sent_bytes - before for connection, before in used.items())
            fields = {"group": group, "slot": slot_window.number, "late_s": told - slot_window.began, "bytes": sent}
            allowances = [connection.allowance for connection in used if connection.allowance is not None]
            fields |= {"planned": sum(a.planned for a in allowances), "again": sum(a.again for a in allowances)}
            self._note("sent_in_slot", slot_window.began, max(slot_window.began, told), **fields)


_NO_PAYLOAD = memoryview(b"")


@dataclass(eq=False)
class _Watch:
    """Calls ``then`` when the first ``mark`` bytes of ``connection`` have left, or are ``acknowledged``."""

    connection: PeerConnection
    mark: int
    acknowledged: bool
    then: Callable[[], None]
    over: bool = False


class DeliveryTimers(Timers):
    """Timers that also call when bytes of a connection have left, or are acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self._watches: dict[PeerConnection, list[_Watch]] = defaultdict(list)
        """Watches that wait for an acknowledgement."""

    def watch(self, connection: PeerConnection, mark: int, acknowledged: bool, then: Callable[[], None]) -> None:
        """Call ``then`` when the first ``mark`` bytes of a connection have left, or are ``acknowledged``."""
        watch = _Watch(connection, mark, acknowledged, then)
        if acknowledged:
            self._watches[connection].append(watch)
        self._look(watch)

    def acknowledged(self, connection: PeerConnection) -> None:
        """Check the watches of a connection at once: the kernel has reported an acknowledgement."""
        for watch in list(self._watches[connection]):
            if not watch.over and connection.left_s(watch.mark, acknowledged=True) == 0:
                self._end(watch)

    def _look(self, watch: _Watch) -> None:
        if watch.over:
            return
        left = watch.connection.left_s(watch.mark, acknowledged=watch.acknowledged)
        if left > 0:
            self.later(left, lambda: self._look(watch))
        else:
            self._end(watch)

    def _end(self, watch: _Watch) -> None:
        watch.over = True
        if watch.acknowledged:
            self._watches[watch.connection].remove(watch)
        watch.then()


class Outbox:
    """Sends data and ``ready`` messages of the rank of ``machine`` over ``transport``; ``timers`` tell the time."""

    def __init__(
        self, machine: RankMachine, transport: Transport, slot_connections: SlotConnections, timers: DeliveryTimers
    ) -> None:
        self._machine = machine
        self._transport = transport
        self._slot_connections = slot_connections
        self._timers = timers
        self._unopened: dict[PeerKey, list[Outgoing]] = {}
        """Messages for paths that the peer has yet to open."""
        self._blank = _NO_PAYLOAD

    def open(self, path: PeerKey) -> PeerConnection | None:
        """The connection of ``path``, opened if this rank has to do that; None if the peer has yet to open it.

        Where the answer does not come in time the call is repeated: TCP would lose a second, and a step with it.
        """
        known = self._transport.find(path)
        connection = self._transport.connection(path, self._timers.now)
        if connection is not None and known is None and not connection.connected:
            self._await_answer(connection, self._transport.answer_s(path))
        return connection

    def _await_answer(self, connection: PeerConnection, seconds: float) -> None:
        """Call again if the peer has not answered within ``seconds``, then twice as many, as long as TCP does not."""

        def look() -> None:
            if self._transport.call_again(connection):
                self._await_answer(connection, 2 * seconds)

        if seconds < TCP_REPEATS_SYN_S:
            self._timers.later(seconds, look)

    def open_eager_paths(self, group: str | None) -> None:
        """Open the paths of eager receives of one group (None: of all groups) that this rank has to open."""
        program, rank = self._machine.program, self._machine.rank
        for op in program.communications(rank) if program.eager else ():
            if isinstance(op, Recv) and op.peer > rank and group in (None, op.group):
                place = self._machine.paths.place(program.groups[op.group], rank, op.peer, 0, incoming=True)
                if place is not None:
                    self.open((program.groups[op.group].domain, place[0], op.peer, place[1]))

    def accepted(self, connection: PeerConnection) -> None:
        """Take in a path that a peer has opened, and send the messages that waited for it."""
        self._slot_connections.allow_until(connection)
        for message in self._unopened.pop(connection.key, []):
            connection.send(message)

    def announce(self, action: Announce) -> None:
        header = Header("ready", action.in_flight.flow, action.last_round, round(action.not_before * 1e6))
        self._send(action.in_flight, action.path, Outgoing(header.pack(), _NO_PAYLOAD))

    def tell(self, action: Tell) -> None:
        header = Header("told", action.flow, action.number, WORDS.index(action.word))
        self._queue(action.path, Outgoing(header.pack(), _NO_PAYLOAD))

    def post(self, action: SendPart) -> None:
        in_flight, part, path = action.in_flight, action.part, action.path
        if in_flight.first_byte is None:
            in_flight.first_byte = self._timers.now
        header = Header("data", in_flight.flow, part.transfer, part.bytes).pack()
        in_flight.header_bytes += len(header)
        content = in_flight.contents.pop(part.transfer, None)
        if content is None:
            content = self._blank_bytes(part.bytes)
        since, hold = action.since, True
        if in_flight.slot_sender is not None and not part.scale_up:
            since, hold = max(in_flight.slot_sender.began, in_flight.since), self._slot_connections.is_first(path)
        in_flight.opened.add(path)
        in_turn = not self._machine.program.eager
        message = Outgoing(header, content, (in_flight, part), hold, in_turn, since, notice=action.acknowledged)
        self._send(in_flight, path, message)

    def _send(self, in_flight: InFlight, path: PeerKey, message: Outgoing) -> None:
        in_flight.lanes.add(path[1])
        in_flight.paths.add(path)
        self._queue(path, message)

    def _queue(self, path: PeerKey, message: Outgoing) -> None:
        connection = self.open(path)
        if connection is None:
            self._unopened.setdefault(path, []).append(message)
        else:
            connection.send(message)

    def _blank_bytes(self, count: int) -> memoryview:
        """``count`` zero bytes, from one buffer that all messages share."""
        if len(self._blank) < count:
            self._blank = memoryview(bytes(count))
        return self._blank[:count]


class CommEngine:
    """All communications of one rank.

    ``done`` is called with each one that is done, ``perform`` with actions of the machine that move no bytes, ``note``
    with events of the sockets. ``buffered`` is called before ``done`` for a send of an eager program that the kernel
    has taken: operations that wait for the send may start. ``values`` and ``layout`` come from the script of the rank
    (None: the values are made up). ``enter`` moves the thread into the rank's network.
    """

    def __init__(
        self,
        config: AgentConfig,
        done: Callable[[InFlight, float], None],
        buffered: Callable[[InFlight, float], None],
        perform: Callable[[Message | RunCompute | StepEnded | Event], None],
        note: Callable[..., Any],
        facts: ScheduleFacts | None = None,
        values: Values | None = None,
        layout: Callable[[InFlight], Layout] | None = None,
        enter: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._peer_timeout_s = config.peer_timeout_s
        self._done = done
        self._buffered = buffered
        self._perform = perform
        self.values = values or Values(config)
        self.machine = _machine(config, self.values, layout, facts)
        self.transport = Transport(config.plan, config.rank, self, enter)
        self._slot_connections = SlotConnections(note)
        self._matcher = ReceiveMatcher(config, self.machine)
        self._began: dict[PeerKey, float] = {}
        """Time at which the message began that is coming in on a connection."""
        self._timers = DeliveryTimers()
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
            elif isinstance(action, Tell):
                self._outbox.tell(action)
            elif isinstance(action, OpenPath):
                self._outbox.open(action.path)
            elif isinstance(action, RoundPause):
                due = (self._timers.now if action.since is None else action.since) + action.seconds
                self._timers.at(due, partial(self._end_pause, action, due))
            elif isinstance(action, Drain):
                self._timers.soon(partial(self._watch_end, action.in_flight))
            else:
                if isinstance(action, ReleaseCircuits):
                    self._end_slots(action.group)
                self._perform(action)
        if now is not None and self.machine.rotating:
            for connection in list(self.transport):
                connection.resume(now)  # a message may have waited until its collective began

    def _end_pause(self, pause: RoundPause, due: float) -> None:
        self.execute(self.machine.paused(pause, due))

    def _end_slots(self, group: str) -> None:
        """End the slots of ``group``: later connections are not bound to them."""
        if group in self.machine.rotating:
            self._slot_connections.end(group)
            for connection in self.transport:
                connection.allow_until(None)

    def acknowledged(self, group: str, index: int, paths: tuple[Hop, ...], now: float) -> None:
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

    def accepted(self, connection: PeerConnection) -> None:
        """Take in a path that a peer has opened, and send the messages that waited for it."""
        self._outbox.accepted(connection)

    # -- what connections report (Inbox) -------------------------------------------------------------

    def may_receive(self, connection: PeerConnection, header: Header) -> bool:
        return self._matcher.may_receive(connection, header)

    def expect(self, connection: PeerConnection, header: Header) -> memoryview | None:
        """Where the payload goes; ``VerifyError`` if this rank does not await it from there."""
        if header.kind != "data":
            return None
        now = self._began[connection.key] = self._timers.now
        match = self._matcher.find(connection, header)
        if match is None:
            return self._matcher.keep_unexpected(connection, header, now)
        in_flight, part = match
        due = now + connection.arrival_s(part.bytes)
        self.execute(self.machine.began(in_flight, part, connection.key, now, due))
        if in_flight.buffer is None:
            return None
        values = in_flight.staged[part.transfer] = np.empty(part.end - part.start, dtype=np.float32)
        return values.data.cast("B") if len(values) else None

    def arrived(self, connection: PeerConnection, header: Header) -> None:
        now = self._timers.now
        if header.kind == "data":
            key, began = self._matcher.key(connection, header), self._began[connection.key]
            self.execute(self.machine.arrived(key, header.transfer, began, now, receive_time(connection.control)))
            return
        if header.kind == "told":
            word = self._matcher.word(connection, header)
            self.execute(self.machine.told(header.flow, connection.peer, word, header.transfer, now))
            return
        wait = header.length / 1e6 - now
        if wait > 0:
            self._timers.later(wait, lambda: self._take_ready(connection, header))
        else:
            self._take_ready(connection, header)

    def _take_ready(self, connection: PeerConnection, header: Header) -> None:
        key, last_round, now = self._matcher.key(connection, header), header.transfer, self._timers.now
        since = header.length / 1e6 if header.length else None
        self.execute(self.machine.credit(key, connection.key, last_round, now, since))

    def written(self, connection: PeerConnection, token: object) -> None:
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
        connections = (self.transport.find(path) for path in in_flight.opened)
        marks = [(c, c.sent_bytes if eager else c.posted_bytes) for c in connections if c is not None]
        left = len(marks)

        def acknowledged() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._end(in_flight)

        if eager:
            self._buffered(in_flight, self._timers.now)
        for connection, mark in marks:
            self._timers.watch(connection, mark, True, acknowledged)
        if not marks:
            self._end(in_flight)

    def _end(self, in_flight: InFlight) -> None:
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

    def watch_changed(self, poller: Poller) -> None:
        changed = self.transport.activity.changed
        while changed:
            connection, _ = changed.popitem()
            poller.watch(connection, connection.events)

    def handle(self, connection: PeerConnection, events: int, now: float) -> None:
        """Read from and write to a connection of which a poller reports ``events``."""
        self._timers.now = now
        if connection.fileno() < 0:
            return  # closed since
        if not connection.connected:
            connection.check_connected()
        if events & WRITE:
            connection.flush(now)
        if events & EPOLLERR and connection.notices():
            self._timers.acknowledged(connection)
            events &= ~EPOLLERR
        if events & ~WRITE:
            connection.receive(now)

    def check_progress(self, now: float) -> None:
        """Raise ``PeerLost`` if no byte moved for too long, ``ControlError`` if an acknowledgement is overdue."""
        limit = self._peer_timeout_s
        self.machine.check_waits(now, limit)
        for in_flight in self.machine.under_way:
            opened = (self.transport.find(path) for path in in_flight.paths)
            connections = [c for c in opened if c is not None]
            latest = max((c.last_progress for c in connections), default=0.0)
            silent_s = now - max(latest, in_flight.last_progress)
            for connection in connections if silent_s > limit / 2 else ():
                connection.listen_closely()
            if silent_s > limit:
                raise PeerLost(
                    f"rank {self._config.rank} moved nothing for {limit:.3g} s in {in_flight.op.name} (step "
                    f"{in_flight.step}, group {in_flight.group.name}) with {in_flight.peers_at_work}"
                )


def _machine(
    config: AgentConfig,
    values: Values,
    layout: Callable[[InFlight], Layout] | None,
    facts: ScheduleFacts | None,
) -> RankMachine:
    return RankMachine(
        config.program,
        config.rank,
        config.scale,
        phases(config.program, config.rank),
        config.steps,
        ports_per_gpu=config.plan.ports_per_gpu,
        forwarding=config.mode in ("native", "electrical"),
        first_step=config.incarnation.first_step if config.incarnation is not None else 0,
        provisioned=config.mode == "provisioned",
        profile_steps=config.profile_steps,
        stale_step=config.stale_step,
        values=values.contribution if config.real_payload or layout is not None else None,
        layout=layout,
        facts=facts,
    )
