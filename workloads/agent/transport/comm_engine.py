"""Communication engine of one rank: decides which bytes go over which connection now, and when an operation is done.

A receiver that has reached an operation says so with a small ``ready`` message (a receiver credit) on every path that
it will receive on; the sender's data waits for it. So data never meets a rank that has not posted its operation (as
with NCCL), arriving data can always be read at once, and an unannounced message is an error. Two cases need no credit:
a circuit that both ends requested, and the sends of an eager program, whose receiver keeps unexpected messages. An
operation is done when everything has arrived, everything is written and the peers' kernels have acknowledged all of it:
nothing of it is in flight any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from railyard.errors import PeerLost
from railyard.protocol import Hop, SlotWindow
from workloads.agent.circuit_requests import CircuitRequests
from workloads.agent.config import AgentConfig
from workloads.agent.exchange import MessagePart, Progress
from workloads.agent.executor import ReleaseCircuits, RequestCircuits
from workloads.agent.transport.connection import Connection, PeerKey
from workloads.agent.transport.connections import Transport
from workloads.agent.transport.credits import HeldMessage, ReceiverCredits
from workloads.agent.transport.in_flight import FlowKey, InFlight, SlotMessage
from workloads.agent.transport.loading import Loader
from workloads.agent.transport.message import Header
from workloads.agent.transport.outbox import Outbox
from workloads.agent.transport.receive_matcher import ReceiveMatcher
from workloads.agent.transport.routes import Routes
from workloads.agent.transport.slot_connections import SlotConnections
from workloads.agent.transport.slot_sender import Moved
from workloads.agent.transport.timers import Timers
from workloads.program import Collective, Communication, Recv, Send


class CommEngine:
    """All communications of one rank.

    ``done`` is called with each one that is done, ``send_request`` with messages to the controller, ``note`` with
    events. ``buffered`` is called before ``done`` for a send of an eager program that the kernel has taken: operations
    that wait for the send may start.
    """

    def __init__(
        self,
        config: AgentConfig,
        done: Callable[[InFlight, float], None],
        buffered: Callable[[InFlight, float], None],
        send_request: Callable[[RequestCircuits | ReleaseCircuits | Moved], None],
        note: Callable[..., Any],
    ) -> None:
        self._config = config
        self._rank = config.rank
        self._done = done
        self._buffered = buffered
        self._note = note
        self.transport = Transport(config.plan, config.rank, self)
        self.circuit_clients: CircuitRequests[InFlight] = CircuitRequests(config.rank, send_request, note)
        self.slot_connections = SlotConnections(config.rank, send_request, note)
        self._loader = Loader(config, self.circuit_clients, self.slot_connections.scheduler)
        self._routes = Routes(config)
        self._sending: dict[FlowKey, InFlight] = {}
        self._matcher = ReceiveMatcher(config, self._routes, self.slot_connections)
        self._credits = ReceiverCredits()
        self._timers = Timers()
        self._outbox = Outbox(config, self.transport, self._routes, self.slot_connections, self._timers)

    @property
    def _now(self) -> float:
        return self._timers.now

    @_now.setter
    def _now(self, now: float) -> None:
        self._timers.now = now

    @property
    def paths(self) -> dict[str, tuple[Hop, ...]]:
        """The paths that the controller gave to each group."""
        return self._routes.paths

    def recycle(self, in_flight: InFlight) -> None:
        """Prepare the buffer of a collective that is over for the next step."""
        self._loader.recycle(in_flight)

    # -- starting ----------------------------------------------------------------------------------

    def start(self, step: int, op: Communication, phase: int, now: float) -> None:
        """Start ``op``: its circuits are up, or its circuit client requests them."""
        self._now = now
        in_flight = self._loader.load(step, op, phase, now)
        key = in_flight.key
        if not isinstance(op, Recv):
            self._sending[key] = in_flight
        if not isinstance(op, Send):
            self._matcher.open[key] = in_flight
        if in_flight.circuit_client is not None:
            self.circuit_clients.send(in_flight, in_flight.circuit_client.begin(), now)
        self._execute(in_flight, in_flight.exchange.begin())
        if isinstance(op, Recv):
            self._take_unexpected(in_flight)
        if op.group in self.slot_connections.groups:
            for connection in list(self.transport):
                connection.resume(now)

    def _take_unexpected(self, in_flight: InFlight) -> None:
        """Take data that arrived before its receive."""
        unexpected = self._matcher.unexpected.take(in_flight.key)
        if unexpected is None:
            return
        (part,) = in_flight.exchange.incoming.values()
        in_flight.first_byte = unexpected.began
        if unexpected.values is not None:
            in_flight.staged[part.transfer] = unexpected.values
        if unexpected.ended is not None:
            in_flight.last_byte = unexpected.ended
            in_flight.note_transfer(self._note, part, unexpected.began, unexpected.ended)
            self._execute(in_flight, in_flight.exchange.arrived(part.transfer))

    # -- sending -----------------------------------------------------------------------------------

    def _execute(self, in_flight: InFlight, progress: Progress) -> None:
        for action, part in progress.steps:
            if action == "send":
                self._offer(in_flight, part)
            elif action == "apply":
                in_flight.apply(part)
            elif action == "keep":
                in_flight.keep(part)
            else:
                self._outbox.announce(in_flight, part)
        if in_flight.slot_sender is not None:
            in_flight.slot_sender.report()
        self._check_moved(in_flight)

    def _offer(self, in_flight: InFlight, part: MessagePart) -> None:
        """Send ``part`` now, or when its circuit is up, its slot begins or the receiver's credit comes."""
        if in_flight.buffer is None:
            content = self._outbox.blank_bytes(part.bytes)
        else:
            content = memoryview(in_flight.buffer[part.start : part.end].tobytes())
        if in_flight.slot_sender is not None and not part.scale_up:
            self.slot_connections.offer(SlotMessage(in_flight, part, content))
            self._post_in_slot(in_flight.group.name)
            return
        key = self._routes.key(in_flight, part, incoming=False)
        if in_flight.circuit_client is not None and in_flight.on_circuit(part):
            if in_flight.circuit_client.is_up(part.transfer):
                self._outbox.post(in_flight, key, part, content)
            else:
                in_flight.awaiting_circuit[part.transfer] = part, content
        elif self._may_send(in_flight, key, part):
            self._outbox.post(in_flight, key, part, content)
        else:
            self._credits.hold(key, HeldMessage(in_flight, part, content))
            self._outbox.open(key)  # the credit comes over this path, which may be for this rank to open

    def _may_send(self, in_flight: InFlight, key: PeerKey, part: MessagePart) -> bool:
        """Whether the receiver takes ``part`` now."""
        if self._config.program.eager and isinstance(in_flight.op, Send):
            return True
        return self._credits.has(key, in_flight.key, part)

    def circuit_up(self, group: str, index: int, now: float) -> None:
        """Start the transfers of a circuit that the controller has acknowledged."""
        self._now = now
        in_flight, transfers = self.circuit_clients.acknowledged(group, index, now)
        in_flight.last_progress = now
        self._check_moved(in_flight)
        for part in in_flight.exchange.incoming.values():
            if part.transfer in transfers:
                self._outbox.open(self._routes.key(in_flight, part, incoming=True))
                break
        for transfer in transfers:
            if transfer in in_flight.awaiting_circuit:
                part, content = in_flight.awaiting_circuit.pop(transfer)
                self._outbox.post(in_flight, self._routes.key(in_flight, part, incoming=False), part, content)

    def at(self, moment: float, what: Callable[[float], None], now: float) -> None:
        """Call ``what`` with the time at ``moment`` (at once if that is past)."""
        if moment > now:
            self._timers.at(moment, lambda: what(self._now))
        else:
            what(now)

    def slot_began(self, group: str, index: int, slot_window: SlotWindow, paths: tuple[Hop, ...], now: float) -> None:
        """Begin a slot of ``group``, as announced by the controller."""
        self._now = now
        for in_flight in self._under_way():
            if in_flight.group.name == group:
                in_flight.last_progress = now
        for key in self.slot_connections.begin_slot(group, index, slot_window, paths, now):
            connection = self._outbox.open(key)
            if connection is not None:
                if connection.last_progress < now:
                    self.transport.call_again(connection, now)
                self.slot_connections.allow_until(connection)
        self._post_in_slot(group)

    def released(self, group: str) -> None:
        """End the slots of ``group``: the rank releases its circuits, and later connections are not bound to them."""
        if group in self.slot_connections.groups:
            self.slot_connections.end(group)
            for connection in self.transport:
                connection.allow_until(None)

    def _post_in_slot(self, group: str) -> None:
        for key, (in_flight, part, content), fresh, since in self.slot_connections.free(group):
            self._outbox.post(in_flight, key, part, content, fresh=fresh, since=since)

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
        self._matcher.began[connection.key] = self._now
        found = self._matcher.find(connection, header)
        if found is None:
            return self._matcher.keep_unexpected(connection, header, self._now)
        in_flight, part = found
        in_flight.connections[connection.key] = connection
        if in_flight.first_byte is None:
            in_flight.first_byte = self._now
        for _, following in in_flight.exchange.began(part.transfer).steps:
            self._outbox.announce(in_flight, following, self._now + connection.arrival_s(part.bytes))
        if in_flight.buffer is None:
            return None
        values = in_flight.staged[part.transfer] = np.empty(part.end - part.start, dtype=np.float32)
        return values.data.cast("B") if len(values) else None

    def arrived(self, connection: Connection, header: Header) -> None:
        """Process a message that has arrived completely."""
        key = self._matcher.key(connection, header)
        if header.kind == "ready":
            wait = header.length / 1e6 - self._now
            if wait > 0:
                self._timers.later(wait, lambda: self._take_ready(connection, key, header.transfer))
            else:
                self._take_ready(connection, key, header.transfer)
            return
        in_flight = self._matcher.open.get(key)
        if in_flight is None:
            self._matcher.unexpected.ended(key, self._now)
            return
        in_flight.last_progress = self._now
        part = in_flight.exchange.incoming[header.transfer]
        in_flight.note_transfer(self._note, part, self._matcher.began[connection.key], self._now)
        progress = in_flight.exchange.arrived(header.transfer)
        self._transfer_over(in_flight, part)
        self._execute(in_flight, progress)

    def _take_ready(self, connection: Connection, key: FlowKey, last_round: int) -> None:
        """Send what waited for a credit up to ``last_round`` on this path."""
        for in_flight, part, content in self._credits.take(connection.key, key, last_round):
            in_flight.last_progress = self._now
            self._outbox.post(in_flight, connection.key, part, content)

    def written(self, connection: Connection, token: object) -> None:
        """Process an outgoing message that the kernel has taken."""
        assert isinstance(token, tuple)
        in_flight, part = token
        in_flight.connections[connection.key] = connection
        in_flight.unsent -= 1
        in_flight.last_progress = self._now
        mark = connection.sent_bytes
        if part.transfer in in_flight.exchange.awaits_sent:
            self._timers.watch(connection, mark, False, lambda: self._transfer_left(in_flight, part))
        if in_flight.on_circuit(part):
            self._timers.watch(connection, mark, True, lambda: self._transfer_over(in_flight, part))
        elif in_flight.slot_sender is not None and not part.scale_up:
            self._timers.watch(connection, mark, True, in_flight.slot_sender.acknowledged)
        self._check_moved(in_flight)

    def _transfer_left(self, in_flight: InFlight, part: MessagePart) -> None:
        """Continue after all bytes of ``part`` have left: the port is free for the next receiver."""
        self._execute(in_flight, in_flight.exchange.sent(part.transfer))

    def _transfer_over(self, in_flight: InFlight, part: MessagePart) -> None:
        """Release the circuit of ``part``: nothing of it is in flight."""
        if in_flight.circuit_client is not None and in_flight.on_circuit(part):
            self.circuit_clients.send(in_flight, in_flight.circuit_client.over(part.transfer), self._now)
            self._check_moved(in_flight)

    # -- ending ------------------------------------------------------------------------------------

    def _check_moved(self, in_flight: InFlight) -> None:
        if in_flight.moved and not in_flight.draining:
            in_flight.draining = True
            if self._config.program.eager and isinstance(in_flight.op, Send):
                self._timers.soon(lambda: self._end_buffered(in_flight))
            else:
                self._timers.soon(lambda: self._drain(in_flight))

    def tick(self, now: float) -> None:
        """Send data that was queued or held back for the token bucket, and finish what is acknowledged."""
        self._now = now
        for connection in list(self.transport):
            if connection.has_something_to_send(now):
                connection.flush(now)
        self._timers.run_due()

    def _end_buffered(self, in_flight: InFlight) -> None:
        """Let the rank go on after a buffered send, and end the send when its own bytes are acknowledged."""
        marks = [(in_flight.connections[key], in_flight.connections[key].sent_bytes) for key in in_flight.opened]
        self._buffered(in_flight, self._now)
        for connection, mark in marks:
            self._timers.watch(connection, mark, True, lambda: self._end(in_flight))

    def _drain(self, in_flight: InFlight) -> None:
        """End when all bytes posted by now, on every path of the operation, are acknowledged."""
        marks = [(in_flight.connections[key], in_flight.connections[key].posted_bytes) for key in in_flight.opened]
        left = len(marks)

        def one() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._end(in_flight)

        for connection, mark in marks:
            self._timers.watch(connection, mark, True, one)
        if not marks:
            self._end(in_flight)

    def _end(self, in_flight: InFlight) -> None:
        """End an operation: everything has arrived and is acknowledged."""
        self._forget(in_flight)
        in_flight.wrong = self._loader.wrong_elements(in_flight)
        self._done(in_flight, self._now)

    def _forget(self, in_flight: InFlight) -> None:
        for table in (self._sending, self._matcher.open):
            if table.get(in_flight.key) is in_flight:
                del table[in_flight.key]
        if isinstance(in_flight.op, Collective | Send):
            self._credits.forget(in_flight.key)

    def _under_way(self) -> list[InFlight]:
        return [*self._sending.values(), *self._matcher.open.values()]

    # -- the loop's view -----------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """Time at which ``tick`` has something to do (infinity if nothing is planned)."""
        times = [held for c in self.transport if (held := c.held_until()) is not None]
        return min([*times, self._timers.next_time])

    def handle(self, readable: list[Connection], writable: list[Connection], now: float) -> None:
        """Read from and write to the connections that ``select`` reports."""
        self._now = now
        for connection in writable:
            if not connection.connected:
                connection.check_connected()
            connection.flush(now)
        for connection in {*readable, *writable}:
            if connection.connected and connection.notices():
                self._timers.acknowledged(connection)
        for connection in readable:
            if connection.connected:
                connection.receive(now)

    def check_progress(self, now: float) -> None:
        """Raise ``PeerLost`` if no byte moved for too long, ``ControlError`` if an acknowledgement is overdue."""
        limit = self._config.peer_timeout_s
        self.circuit_clients.check(now, limit)
        for in_flight in self._under_way():
            latest = max((c.last_progress for c in in_flight.connections.values()), default=0.0)
            if now - max(latest, in_flight.last_progress) > limit:
                raise PeerLost(
                    f"rank {self._rank} moved nothing for {limit:.3g} s in {in_flight.op.name} (step {in_flight.step}, "
                    f"group {in_flight.group.name}) with {in_flight.peers_at_work}"
                )
