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

from controllers.circuits.rotation import SlotWindow
from railyard.errors import PeerLost
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
from workloads.agent.transport.paths import Path
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
        self.gates: CircuitRequests[InFlight] = CircuitRequests(config.rank, ask, note)
        self.rotations = SlotConnections(config.rank, ask, note)
        self._loader = Loader(config, self.gates, self.rotations.turns)
        self._routes = Routes(config)
        self._sending: dict[FlowKey, InFlight] = {}
        self._reception = ReceiveMatcher(config, self._routes, self.rotations)
        self._welcomes = ReceiverCredits()
        self._unopened: dict[PeerKey, list[Outgoing]] = {}
        """Messages for paths that the peer has yet to open."""
        self._agenda = Timers()
        self._blank = _NOTHING

    @property
    def _now(self) -> float:
        return self._agenda.now

    @_now.setter
    def _now(self, now: float) -> None:
        self._agenda.now = now

    @property
    def paths(self) -> dict[str, tuple[Path, ...]]:
        """The paths that each group was told."""
        return self._routes.paths

    def recycle(self, carriage: InFlight) -> None:
        """Nobody needs the numbers of a collective that is over any more."""
        self._loader.recycle(carriage)

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
        carriage = self._loader.load(step, op, phase, now)
        key = carriage.key
        if not isinstance(op, Recv):
            self._sending[key] = carriage
        if not isinstance(op, Send):
            self._reception.open[key] = carriage
        if carriage.gate is not None:
            self.gates.say(carriage, carriage.gate.begin(), now)
        self._carry_on(carriage, carriage.exchange.begin())
        if isinstance(op, Recv):
            self._take_early(carriage)
        if op.group in self.rotations.groups:
            for connection in list(self.transport):
                connection.resume(now)

    def _take_early(self, carriage: InFlight) -> None:
        """Data that was here before its receive."""
        early = self._reception.early.take(carriage.key)
        if early is None:
            return
        (part,) = carriage.exchange.incoming.values()
        carriage.first_byte = early.began
        if early.values is not None:
            carriage.staged[part.transfer] = early.values
        if early.ended is not None:
            carriage.last_byte = early.ended
            self._note_transfer(carriage, part, early.began, early.ended)
            self._carry_on(carriage, carriage.exchange.arrived(part.transfer))

    def _announce(self, carriage: InFlight, part: MessagePart, not_before: float = 0.0) -> None:
        """Tell the path of ``part`` that everything up to its round may come."""
        key = self._routes.key(carriage, part, incoming=True)
        header = Header("ready", carriage.flow, part.round, round(not_before * 1e6))
        self._send(carriage, key, Outgoing(header.pack(), _NOTHING))

    # -- sending -----------------------------------------------------------------------------------

    def _carry_on(self, carriage: InFlight, progress: Progress) -> None:
        for action, part in progress.steps:
            if action == "send":
                self._offer(carriage, part)
            elif action == "apply":
                carriage.apply(part)
            elif action == "keep":
                carriage.keep(part)
            else:
                self._announce(carriage, part)
        if carriage.turnstile is not None:
            carriage.turnstile.report()
        self._check_moved(carriage)

    def _offer(self, carriage: InFlight, part: MessagePart) -> None:
        """Send ``part``, now or when its circuit stands or the receiver has said that it is ready."""
        if carriage.buffer is None:
            content = self._blank_bytes(part.bytes)
        else:
            content = memoryview(carriage.buffer[part.start : part.end].tobytes())
        if carriage.turnstile is not None and not part.scale_up:
            self.rotations.offer(Waiting(carriage, part, content))
            self._post_in_turn(carriage.group.name)
            return
        key = self._routes.key(carriage, part, incoming=False)
        if carriage.gate is not None and carriage.on_circuit(part):
            if carriage.gate.stands(part.transfer):
                self._post(carriage, key, part, content)
            else:
                carriage.shut[part.transfer] = part, content
        elif self._may_send(carriage, key, part):
            self._post(carriage, key, part, content)
        else:
            self._welcomes.hold(key, HeldMessage(carriage, part, content))
            self._open(key)  # the receiver cannot say so over a path that it is for this rank to open

    def _may_send(self, carriage: InFlight, key: PeerKey, part: MessagePart) -> bool:
        """Whether the receiver takes ``part`` now."""
        if self._config.program.eager and isinstance(carriage.op, Send):
            return True
        return self._welcomes.has(key, carriage.key, part)

    def circuit_stands(self, group: str, index: int, now: float) -> None:
        """The controller has acknowledged a circuit that a gate asked for."""
        self._now = now
        carriage, transfers = self.gates.acknowledged(group, index, now)
        carriage.last_progress = now
        self._check_moved(carriage)
        for part in carriage.exchange.incoming.values():
            if part.transfer in transfers:
                self._open(self._routes.key(carriage, part, incoming=True))
                break
        for transfer in transfers:
            if transfer in carriage.shut:
                part, content = carriage.shut.pop(transfer)
                self._post(carriage, self._routes.key(carriage, part, incoming=False), part, content)

    def at(self, moment: float, what: Callable[[float], None], now: float) -> None:
        """Call ``what`` with the time at ``moment`` (at once if that is past)."""
        if moment > now:
            self._agenda.at(moment, lambda: what(self._now))
        else:
            what(now)

    def slot_stands(self, group: str, index: int, turn: SlotWindow, paths: tuple[Path, ...], now: float) -> None:
        """The controller says that a slot of a rotation has come."""
        self._now = now
        for carriage in self._under_way():
            if carriage.group.name == group:
                carriage.last_progress = now
        for key in self.rotations.stands(group, index, turn, paths, now):
            connection = self._open(key)
            if connection is not None:
                if connection.last_progress < now:
                    self.transport.call_again(connection, now)
                self.rotations.shine(connection)
        self._post_in_turn(group)

    def released(self, group: str) -> None:
        """The rank lets go of the circuits of ``group``: whatever has them next is not bound to its slots."""
        if group in self.rotations.groups:
            self.rotations.end(group)
            for connection in self.transport:
                connection.shine(None)

    def _post_in_turn(self, group: str) -> None:
        for key, (carriage, part, content), fresh, since in self.rotations.free(group):
            self._post(carriage, key, part, content, fresh=fresh, since=since)

    def _open(self, key: PeerKey) -> Connection | None:
        """The connection of ``key``; None where the peer has yet to open it."""
        domain, lane, peer, peer_lane = key
        return self.transport.connection(domain, (self._rank, lane, peer, peer_lane), self._now)

    def _blank_bytes(self, count: int) -> memoryview:
        """``count`` bytes of no meaning, from one buffer."""
        if len(self._blank) < count:
            self._blank = memoryview(bytes(count))
        return self._blank[:count]

    def _post(
        self,
        carriage: InFlight,
        key: PeerKey,
        part: MessagePart,
        content: memoryview,
        *,
        fresh: bool = False,
        since: float | None = None,
    ) -> None:
        if carriage.first_byte is None:
            carriage.first_byte = self._now
        header = Header("data", carriage.flow, part.transfer, part.bytes).pack()
        carriage.sent_bytes += len(header) + part.bytes
        carriage.payload_bytes += part.bytes
        fresh = fresh or (key not in carriage.opened and since is None)
        carriage.opened.add(key)
        self._send(carriage, key, Outgoing(header, content, token=(carriage, part), fresh=fresh, since=since))

    def _send(self, carriage: InFlight, key: PeerKey, message: Outgoing) -> None:
        carriage.lanes.add(key[1])
        connection = self._open(key)
        if connection is None:
            self._unopened.setdefault(key, []).append(message)
            return
        carriage.connections[key] = connection
        connection.send(message)

    def accepted(self, connection: Connection, now: float) -> None:
        """A peer opened a path: what waited for it goes."""
        self.rotations.shine(connection)
        for message in self._unopened.pop(connection.key, []):
            connection.send(message)

    # -- what connections report (Inbox) -------------------------------------------------------------

    def awaits(self, connection: Connection, header: Header) -> bool:
        """Whether a message may be taken in now."""
        return self._reception.awaits(connection, header)

    def expect(self, connection: Connection, header: Header) -> memoryview | None:
        """Where the payload goes; ``VerifyError`` if this rank does not await it from there."""
        if header.kind == "ready":
            return None
        self._reception.began[connection.key] = self._now
        found = self._reception.find(connection, header)
        if found is None:
            return self._reception.keep_early(connection, header, self._now)
        carriage, part = found
        carriage.connections[connection.key] = connection
        if carriage.first_byte is None:
            carriage.first_byte = self._now
        for _, following in carriage.exchange.began(part.transfer).steps:
            self._announce(carriage, following, self._now + connection.arrival_s(part.bytes))
        if carriage.buffer is None:
            return None
        values = carriage.staged[part.transfer] = np.empty(part.end - part.start, dtype=np.float32)
        return values.data.cast("B") if len(values) else None

    def arrived(self, connection: Connection, header: Header) -> None:
        """A message is complete."""
        key = self._reception.key(connection, header)
        if header.kind == "ready":
            wait = header.length / 1e6 - self._now
            if wait > 0:
                self._agenda.later(wait, lambda: self._take_ready(connection, key, header.transfer))
            else:
                self._take_ready(connection, key, header.transfer)
            return
        carriage = self._reception.open.get(key)
        if carriage is None:
            self._reception.early.ended(key, self._now)
            return
        carriage.last_progress = self._now
        part = carriage.exchange.incoming[header.transfer]
        self._note_transfer(carriage, part, self._reception.began[connection.key], self._now)
        progress = carriage.exchange.arrived(header.transfer)
        self._over(carriage, part)
        self._carry_on(carriage, progress)

    def _take_ready(self, connection: Connection, key: FlowKey, last_round: int) -> None:
        """The receiver takes everything up to ``last_round`` by this path."""
        for carriage, part, content in self._welcomes.take(connection.key, key, last_round):
            carriage.last_progress = self._now
            self._post(carriage, connection.key, part, content)

    def _note_transfer(self, carriage: InFlight, part: MessagePart, began: float, ended: float) -> None:
        self._note(
            "transfer",
            began,
            ended,
            step=carriage.step,
            op=carriage.op.id,
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
        carriage, part = token
        carriage.connections[connection.key] = connection
        carriage.unsent -= 1
        carriage.last_progress = self._now
        mark = connection.sent_bytes
        if part.transfer in carriage.exchange.awaits_sent:
            self._agenda.watch(connection, mark, False, lambda: self._left(carriage, part))
        if carriage.on_circuit(part):
            self._agenda.watch(connection, mark, True, lambda: self._over(carriage, part))
        elif carriage.turnstile is not None and not part.scale_up:
            self._agenda.watch(connection, mark, True, carriage.turnstile.over)
        self._check_moved(carriage)

    def _left(self, carriage: InFlight, part: MessagePart) -> None:
        """All bytes of ``part`` have left: the port is free for the next receiver."""
        self._carry_on(carriage, carriage.exchange.sent(part.transfer))

    def _over(self, carriage: InFlight, part: MessagePart) -> None:
        """Nothing of ``part`` is in flight: its circuit may go."""
        if carriage.gate is not None and carriage.on_circuit(part):
            self.gates.say(carriage, carriage.gate.over(part.transfer), self._now)
            self._check_moved(carriage)

    # -- ending ------------------------------------------------------------------------------------

    def _check_moved(self, carriage: InFlight) -> None:
        if carriage.moved and not carriage.draining:
            carriage.draining = True
            if self._config.program.eager and isinstance(carriage.op, Send):
                self._agenda.soon(lambda: self._go_on(carriage))
            else:
                self._agenda.soon(lambda: self._drain(carriage))

    def tick(self, now: float) -> None:
        """Send what was queued or held back for the token bucket, and finish what is acknowledged."""
        self._now = now
        for connection in list(self.transport):
            if connection.has_something_to_send(now):
                connection.flush(now)
        self._agenda.run_due()

    def _go_on(self, carriage: InFlight) -> None:
        """The kernel has all of a send; it is done when its own bytes are acknowledged, whatever was sent since."""
        marks = [(carriage.connections[key], carriage.connections[key].sent_bytes) for key in carriage.opened]
        self._buffered(carriage, self._now)
        for connection, mark in marks:
            self._agenda.watch(connection, mark, True, lambda: self._end(carriage))

    def _drain(self, carriage: InFlight) -> None:
        """End when all that was posted by now, on every path of its own, is acknowledged."""
        marks = [(carriage.connections[key], carriage.connections[key].posted_bytes) for key in carriage.opened]
        left = len(marks)

        def one() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._end(carriage)

        for connection, mark in marks:
            self._agenda.watch(connection, mark, True, one)
        if not marks:
            self._end(carriage)

    def _end(self, carriage: InFlight) -> None:
        """All of it has arrived and is acknowledged."""
        self._forget(carriage)
        carriage.wrong = self._loader.wrong_elements(carriage)
        self._done(carriage, self._now)

    def _forget(self, carriage: InFlight) -> None:
        for table in (self._sending, self._reception.open):
            if table.get(carriage.key) is carriage:
                del table[carriage.key]
        if isinstance(carriage.op, Collective | Send):
            self._welcomes.forget(carriage.key)

    def _under_way(self) -> list[InFlight]:
        return [*self._sending.values(), *self._reception.open.values()]

    # -- the loop's view -----------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When ``tick`` has something to do (infinity if nothing is planned)."""
        times = [held for c in self.transport if (held := c.held_until()) is not None]
        return min([*times, self._agenda.next_time])

    def handle(self, readable: list[Connection], writable: list[Connection], now: float) -> None:
        """Move what ``select`` says can move."""
        self._now = now
        for connection in writable:
            if not connection.connected:
                connection.check_connected()
            connection.flush(now)
        for connection in {*readable, *writable}:
            if connection.connected and connection.notices():
                self._agenda.acknowledged(connection)
        for connection in readable:
            if connection.connected:
                connection.receive(now)

    def check_progress(self, now: float) -> None:
        """``PeerLost`` if a peer has not moved a byte for too long, ``ControlError`` if a circuit was not given."""
        limit = self._config.peer_timeout_s
        self.gates.check(now, limit)
        for carriage in self._under_way():
            latest = max((c.last_progress for c in carriage.connections.values()), default=0.0)
            if now - max(latest, carriage.last_progress) > limit:
                raise PeerLost(
                    f"rank {self._rank} moved nothing for {limit:.3g} s in {carriage.op.name} (step {carriage.step}, "
                    f"group {carriage.group.name}) with {self._missing(carriage)}"
                )

    @staticmethod
    def _missing(carriage: InFlight) -> str:
        peers = sorted(
            {part.peer for part in carriage.exchange.awaited} | {c.peer for c in carriage.connections.values()}
        )
        return "rank " + ", ".join(map(str, peers)) if peers else "its peers"
