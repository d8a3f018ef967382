"""Outgoing messages of one rank: each goes to the connection of its path, or waits until the peer has opened it."""

from __future__ import annotations

from workloads.agent.transport.connection import Connection
from workloads.agent.transport.connections import TCP_REPEATS_SYN_S, Transport
from workloads.agent.transport.message import Header, Outgoing
from workloads.agent.transport.slot_connections import SlotConnections
from workloads.agent.transport.timers import Timers
from workloads.program import Recv
from workloads.rank.actions import Announce, SendPart
from workloads.rank.in_flight import InFlight
from workloads.rank.machine import RankMachine
from workloads.rank.paths import PeerKey

_NO_PAYLOAD = memoryview(b"")


class Outbox:
    """Sends data and ``ready`` messages of the rank of ``machine`` over ``transport``; ``timers`` tell the time."""

    def __init__(
        self, machine: RankMachine, transport: Transport, slot_connections: SlotConnections, timers: Timers
    ) -> None:
        self._machine = machine
        self._transport = transport
        self._slot_connections = slot_connections
        self._timers = timers
        self._unopened: dict[PeerKey, list[Outgoing]] = {}
        """Messages for paths that the peer has yet to open."""
        self._blank = _NO_PAYLOAD

    def open(self, path: PeerKey) -> Connection | None:
        """The connection of ``path``, opened if this rank has to do that; None if the peer has yet to open it.

        Where the answer does not come in time the call is repeated: TCP would lose a second, and a step with it.
        """
        known = self._transport.find(path)
        connection = self._transport.connection(path, self._timers.now)
        if connection is not None and known is None and not connection.connected:
            self._await_answer(connection, self._transport.answer_s(path))
        return connection

    def _await_answer(self, connection: Connection, seconds: float) -> None:
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

    def accepted(self, connection: Connection) -> None:
        """Take in a path that a peer has opened, and send the messages that waited for it."""
        self._slot_connections.allow_until(connection)
        for message in self._unopened.pop(connection.key, []):
            connection.send(message)

    def announce(self, action: Announce) -> None:
        """Send a receiver credit as a ``ready`` message."""
        header = Header("ready", action.in_flight.flow, action.last_round, round(action.not_before * 1e6))
        self._send(action.in_flight, action.path, Outgoing(header.pack(), _NO_PAYLOAD))

    def post(self, action: SendPart) -> None:
        """Send a part as a ``data`` message."""
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
