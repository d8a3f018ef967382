"""Carries out communications: which bytes go over which connection now, and when is one done.

A receiver that has reached an operation says so with a small ``ready`` message on every path it will receive on, when
the sender's turn comes; the sender's data waits for it. So data never meets a rank that has not posted its operation
(as with NCCL), what arrives can always be read at once, and what was not announced is an error. Two cases need no such
message: a circuit that both ends asked for, and the sends of an eager program, whose receiver keeps what comes early.
An operation is done when everything has arrived, everything is written and the peers' kernels have acknowledged all of
it: nothing of it is in flight any more.
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
from workloads.agent.transport.connection import Connection, Outgoing, PeerKey
from workloads.agent.transport.connections import Transport
from workloads.agent.transport.credits import HeldMessage, ReceiverCredits
from workloads.agent.transport.in_flight import FlowKey, InFlight, Waiting
from workloads.agent.transport.loading import Loader
from workloads.agent.transport.message import Header
from workloads.agent.transport.receive_matcher import ReceiveMatcher
from workloads.agent.transport.routes import Routes
from workloads.agent.transport.slot_connections import SlotConnections
from workloads.agent.transport.slot_sender import Moved
from workloads.agent.transport.timers import Timers
from workloads.program import Collective, Communication, Recv, Send

_NOTHING = memoryview(b"")


class CommEngine:
    """All communications of one rank.

    ``done`` is called with each one that is done, ``ask`` with what to tell the controller, ``note`` with events.
    ``buffered`` is called before ``done`` for a send of an eager program that the kernel has taken: whatever waits for
    the send may go on.
    """

    def __init__(
        self,
        config: AgentConfig,
        done: Callable[[InFlight, float], None],
        buffered: Callable[[InFlight, float], None],
        ask: Callable[[RequestCircuits | ReleaseCircuits | Moved], None],
        note: Callable[..., Any],
    ) -> None:
        self._config = config
        self._rank = config.rank
        self._done = done
        self._buffered = buffered
        self._note = note
        self.transport = Transport(config.plan, config.rank, self)
        self.circuit_clients: CircuitRequests[InFlight] = CircuitRequests(config.rank, ask, note)
        self.rotations = SlotConnections(config.rank, ask, note)
        self._loader = Loader(config, self.circuit_clients, self.rotations.turns)
        self._routes = Routes(config)
        self._sending: dict[FlowKey, InFlight] = {}
        self._matcher = ReceiveMatcher(config, self._routes, self.rotations)
        self._credits = ReceiverCredits()
        self._unopened: dict[PeerKey, list[Outgoing]] = {}
        """Messages for paths that the peer has yet to open."""
        self._timers = Timers()
        self._blank = _NOTHING

    @property
    def _now(self) -> float:
        return self._timers.now

    @_now.setter
    def _now(self, now: float) -> None:
        self._timers.now = now

    @property
    def paths(self) -> dict[str, tuple[Hop, ...]]:
        """The paths that each group was told."""
        return self._routes.paths

    def recycle(self, in_flight: InFlight) -> None:
        """Nobody needs the numbers of a collective that is over any more."""
        self._loader.recycle(in_flight)

    # -- starting ----------------------------------------------------------------------------------

    def open_early(self, group: str | None = None) -> None:
        """Open the paths by which eager sends come (of one group, or of all), where that is for this rank to do."""
        program = self._config.program
        for op in program.communications(self._rank) if program.eager else ():
            if isinstance(op, Recv) and op.peer > self._rank and group in (None, op.group):
                place = self._routes.place(op.group, op.peer, 0, incoming=True)
                if place is not None:
                    self._open((program.groups[op.group].domain, place[0], op.peer, place[1]))

    def start(self, step: int, op: Communication, phase: int, now: float) -> None:
        """Carry out ``op``; its circuits stand, or its gate asks for them."""
        self._now = now
        in_flight = self._loader.load(step, op, phase, now)
        key = in_flight.key
        if not isinstance(op, Recv):
            self._sending[key] = in_flight
        if not isinstance(op, Send):
            self._matcher.open[key] = in_flight
        if in_flight.circuit_client is not None:
            self.circuit_clients.say(in_flight, in_flight.circuit_client.begin(), now)
        self._carry_on(in_flight, in_flight.exchange.begin())
        if isinstance(op, Recv):
            self._take_unexpected(in_flight)
        if op.group in self.rotations.groups:
            for connection in list(self.transport):
                connection.resume(now)

    def _take_unexpected(self, in_flight: InFlight) -> None:
        """Data that was here before its receive."""
        early = self._matcher.early.take(in_flight.key)
        if early is None:
            return
        (part,) = in_flight.exchange.incoming.values()
        in_flight.first_byte = early.began
        if early.values is not None:
            in_flight.staged[part.transfer] = early.values
        if early.ended is not None:
            in_flight.last_byte = early.ended
            self._note_transfer(in_flight, part, early.began, early.ended)
            self._carry_on(in_flight, in_flight.exchange.arrived(part.transfer))

    def _announce(self, in_flight: InFlight, part: MessagePart, not_before: float = 0.0) -> None:
        """Tell the path of ``part`` that everything up to its round may come."""
        key = self._routes.key(in_flight, part, incoming=True)
        header = Header("ready", in_flight.flow, part.round, round(not_before * 1e6))
        self._send(in_flight, key, Outgoing(header.pack(), _NOTHING))

    # -- sending -----------------------------------------------------------------------------------

    def _carry_on(self, in_flight: InFlight, progress: Progress) -> None:
        for action, part in progress.steps:
            if action == "send":
                self._offer(in_flight, part)
            elif action == "apply":
                in_flight.apply(part)
            elif action == "keep":
                in_flight.keep(part)
            else:
                self._announce(in_flight, part)
        if in_flight.slot_sender is not None:
            in_flight.slot_sender.report()
        self._check_moved(in_flight)

    def _offer(self, in_flight: InFlight, part: MessagePart) -> None:
        """Send ``part``, now or when its circuit stands or the receiver has said that it is ready."""
        if in_flight.buffer is None:
            content = self._blank_bytes(part.bytes)
        else:
            content = memoryview(in_flight.buffer[part.start : part.end].tobytes())
        if in_flight.slot_sender is not None and not part.scale_up:
            self.rotations.offer(Waiting(in_flight, part, content))
            self._post_in_turn(in_flight.group.name)
            return
        key = self._routes.key(in_flight, part, incoming=False)
        if in_flight.circuit_client is not None and in_flight.on_circuit(part):
            if in_flight.circuit_client.stands(part.transfer):
                self._post(in_flight, key, part, content)
            else:
                in_flight.shut[part.transfer] = part, content
        elif self._may_send(in_flight, key, part):
            self._post(in_flight, key, part, content)
        else:
            self._credits.hold(key, HeldMessage(in_flight, part, content))
            self._open(key)  # the receiver cannot say so over a path that it is for this rank to open

    def _may_send(self, in_flight: InFlight, key: PeerKey, part: MessagePart) -> bool:
        """Whether the receiver takes ``part`` now."""
        if self._config.program.eager and isinstance(in_flight.op, Send):
            return True
        return self._credits.has(key, in_flight.key, part)

    def circuit_stands(self, group: str, index: int, now: float) -> None:
        """The controller has acknowledged a circuit that a gate asked for."""
        self._now = now
        in_flight, transfers = self.circuit_clients.acknowledged(group, index, now)
        in_flight.last_progress = now
        self._check_moved(in_flight)
        for part in in_flight.exchange.incoming.values():
            if part.transfer in transfers:
                self._open(self._routes.key(in_flight, part, incoming=True))
                break
        for transfer in transfers:
            if transfer in in_flight.shut:
                part, content = in_flight.shut.pop(transfer)
                self._post(in_flight, self._routes.key(in_flight, part, incoming=False), part, content)

    def at(self, moment: float, what: Callable[[float], None], now: float) -> None:
        """Call ``what`` with the time at ``moment`` (at once if that is past)."""
        if moment > now:
            self._timers.at(moment, lambda: what(self._now))
        else:
            what(now)

    def slot_stands(self, group: str, index: int, slot_window: SlotWindow, paths: tuple[Hop, ...], now: float) -> None:
        """The controller says that a slot of a rotation has come."""
        self._now = now
        for in_flight in self._under_way():
            if in_flight.group.name == group:
                in_flight.last_progress = now
        for key in self.rotations.stands(group, index, slot_window, paths, now):
            connection = self._open(key)
            if connection is not None:
                if connection.last_progress < now:
                    self.transport.call_again(connection, now)
                self.rotations.allow_until(connection)
        self._post_in_turn(group)

    def released(self, group: str) -> None:
        """The rank lets go of the circuits of ``group``: whatever has them next is not bound to its slots."""
        if group in self.rotations.groups:
            self.rotations.end(group)
            for connection in self.transport:
                connection.allow_until(None)

    def _post_in_turn(self, group: str) -> None:
        for key, (in_flight, part, content), fresh, since in self.rotations.free(group):
            self._post(in_flight, key, part, content, fresh=fresh, since=since)

    def _open(self, key: PeerKey) -> Connection | None:
        """The connection of ``key``; None where the peer has yet to open it."""
        domain, lane, peer, peer_lane = key
        return self.transport.connection(domain, Hop(self._rank, lane, peer, peer_lane), self._now)

    def _blank_bytes(self, count: int) -> memoryview:
        """``count`` bytes of no meaning, from one buffer."""
        if len(self._blank) < count:
            self._blank = memoryview(bytes(count))
        return self._blank[:count]

    def _post(
        self,
        in_flight: InFlight,
        key: PeerKey,
        part: MessagePart,
        content: memoryview,
        *,
        fresh: bool = False,
        since: float | None = None,
    ) -> None:
        if in_flight.first_byte is None:
            in_flight.first_byte = self._now
        header = Header("data", in_flight.flow, part.transfer, part.bytes).pack()
        in_flight.sent_bytes += len(header) + part.bytes
        in_flight.payload_bytes += part.bytes
        fresh = fresh or (key not in in_flight.opened and since is None)
        in_flight.opened.add(key)
        self._send(in_flight, key, Outgoing(header, content, token=(in_flight, part), fresh=fresh, since=since))

    def _send(self, in_flight: InFlight, key: PeerKey, message: Outgoing) -> None:
        in_flight.lanes.add(key[1])
        connection = self._open(key)
        if connection is None:
            self._unopened.setdefault(key, []).append(message)
            return
        in_flight.connections[key] = connection
        connection.send(message)

    def accepted(self, connection: Connection, now: float) -> None:
        """A peer opened a path: what waited for it goes."""
        self.rotations.allow_until(connection)
        for message in self._unopened.pop(connection.key, []):
            connection.send(message)

    # -- what connections report (Inbox) -------------------------------------------------------------

    def awaits(self, connection: Connection, header: Header) -> bool:
        """Whether a message may be taken in now."""
        return self._matcher.awaits(connection, header)

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
            self._announce(in_flight, following, self._now + connection.arrival_s(part.bytes))
        if in_flight.buffer is None:
            return None
        values = in_flight.staged[part.transfer] = np.empty(part.end - part.start, dtype=np.float32)
        return values.data.cast("B") if len(values) else None

    def arrived(self, connection: Connection, header: Header) -> None:
        """A message is complete."""
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
            self._matcher.early.ended(key, self._now)
            return
        in_flight.last_progress = self._now
        part = in_flight.exchange.incoming[header.transfer]
        self._note_transfer(in_flight, part, self._matcher.began[connection.key], self._now)
        progress = in_flight.exchange.arrived(header.transfer)
        self._over(in_flight, part)
        self._carry_on(in_flight, progress)

    def _take_ready(self, connection: Connection, key: FlowKey, last_round: int) -> None:
        """The receiver takes everything up to ``last_round`` by this path."""
        for in_flight, part, content in self._credits.take(connection.key, key, last_round):
            in_flight.last_progress = self._now
            self._post(in_flight, connection.key, part, content)

    def _note_transfer(self, in_flight: InFlight, part: MessagePart, began: float, ended: float) -> None:
        self._note(
            "transfer",
            began,
            ended,
            step=in_flight.step,
            op=in_flight.op.id,
            transfer=part.transfer,
            round=part.round,
            chunk=part.chunk,
            peer=part.peer,
            bytes=part.bytes,
            reduce=part.reduce,
        )

    def written(self, connection: Connection, token: object) -> None:
        """A message is in the kernel's hands."""
        assert isinstance(token, tuple)
        in_flight, part = token
        in_flight.connections[connection.key] = connection
        in_flight.unsent -= 1
        in_flight.last_progress = self._now
        mark = connection.sent_bytes
        if part.transfer in in_flight.exchange.awaits_sent:
            self._timers.watch(connection, mark, False, lambda: self._left(in_flight, part))
        if in_flight.on_circuit(part):
            self._timers.watch(connection, mark, True, lambda: self._over(in_flight, part))
        elif in_flight.slot_sender is not None and not part.scale_up:
            self._timers.watch(connection, mark, True, in_flight.slot_sender.over)
        self._check_moved(in_flight)

    def _left(self, in_flight: InFlight, part: MessagePart) -> None:
        """All bytes of ``part`` have left: the port is free for the next receiver."""
        self._carry_on(in_flight, in_flight.exchange.sent(part.transfer))

    def _over(self, in_flight: InFlight, part: MessagePart) -> None:
        """Nothing of ``part`` is in flight: its circuit may go."""
        if in_flight.circuit_client is not None and in_flight.on_circuit(part):
            self.circuit_clients.say(in_flight, in_flight.circuit_client.over(part.transfer), self._now)
            self._check_moved(in_flight)

    # -- ending ------------------------------------------------------------------------------------

    def _check_moved(self, in_flight: InFlight) -> None:
        if in_flight.moved and not in_flight.draining:
            in_flight.draining = True
            if self._config.program.eager and isinstance(in_flight.op, Send):
                self._timers.soon(lambda: self._go_on(in_flight))
            else:
                self._timers.soon(lambda: self._drain(in_flight))

    def tick(self, now: float) -> None:
        """Send what was queued or held back for the token bucket, and finish what is acknowledged."""
        self._now = now
        for connection in list(self.transport):
            if connection.has_something_to_send(now):
                connection.flush(now)
        self._timers.run_due()

    def _go_on(self, in_flight: InFlight) -> None:
        """The kernel has all of a send; it is done when its own bytes are acknowledged, whatever was sent since."""
        marks = [(in_flight.connections[key], in_flight.connections[key].sent_bytes) for key in in_flight.opened]
        self._buffered(in_flight, self._now)
        for connection, mark in marks:
            self._timers.watch(connection, mark, True, lambda: self._end(in_flight))

    def _drain(self, in_flight: InFlight) -> None:
        """End when all that was posted by now, on every path of its own, is acknowledged."""
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
        """All of it has arrived and is acknowledged."""
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
        """When ``tick`` has something to do (infinity if nothing is planned)."""
        times = [held for c in self.transport if (held := c.held_until()) is not None]
        return min([*times, self._timers.next_time])

    def handle(self, readable: list[Connection], writable: list[Connection], now: float) -> None:
        """Move what ``select`` says can move."""
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
        """``PeerLost`` if a peer has not moved a byte for too long, ``ControlError`` if a circuit was not given."""
        limit = self._config.peer_timeout_s
        self.circuit_clients.check(now, limit)
        for in_flight in self._under_way():
            latest = max((c.last_progress for c in in_flight.connections.values()), default=0.0)
            if now - max(latest, in_flight.last_progress) > limit:
                raise PeerLost(
                    f"rank {self._rank} moved nothing for {limit:.3g} s in {in_flight.op.name} (step {in_flight.step}, "
                    f"group {in_flight.group.name}) with {self._missing(in_flight)}"
                )

    @staticmethod
    def _missing(in_flight: InFlight) -> str:
        peers = sorted(
            {part.peer for part in in_flight.exchange.awaited} | {c.peer for c in in_flight.connections.values()}
        )
        return "rank " + ", ".join(map(str, peers)) if peers else "its peers"
