"""Outgoing messages of one rank: each goes to the connection of its path, or waits until the peer has opened it."""

from __future__ import annotations

from railyard.protocol import Hop
from workloads.agent.config import AgentConfig
from workloads.agent.exchange import MessagePart
from workloads.agent.transport.connection import Connection, Outgoing, PeerKey
from workloads.agent.transport.connections import Transport
from workloads.agent.transport.in_flight import InFlight
from workloads.agent.transport.message import Header
from workloads.agent.transport.routes import Routes
from workloads.agent.transport.slot_connections import SlotConnections
from workloads.agent.transport.timers import Timers
from workloads.program import Recv

_NO_PAYLOAD = memoryview(b"")


class Outbox:
    """Sends data and ``ready`` messages of one rank over ``transport``; ``timers`` tell the time."""

    def __init__(
        self,
        config: AgentConfig,
        transport: Transport,
        routes: Routes,
        slot_connections: SlotConnections,
        timers: Timers,
    ) -> None:
        self._program = config.program
        self._rank = config.rank
        self._transport = transport
        self._routes = routes
        self._slot_connections = slot_connections
        self._timers = timers
        self._unopened: dict[PeerKey, list[Outgoing]] = {}
        """Messages for paths that the peer has yet to open."""
        self._blank = _NO_PAYLOAD

    def open(self, key: PeerKey) -> Connection | None:
        """The connection of ``key``, opened if this rank has to do that; None if the peer has yet to open it."""
        domain, lane, peer, peer_lane = key
        return self._transport.connection(domain, Hop(self._rank, lane, peer, peer_lane), self._timers.now)

    def open_eager_paths(self, group: str | None) -> None:
        """Open the paths of eager receives of one group (None: of all groups) that this rank has to open."""
        program = self._program
        for op in program.communications(self._rank) if program.eager else ():
            if isinstance(op, Recv) and op.peer > self._rank and group in (None, op.group):
                place = self._routes.place(op.group, op.peer, 0, incoming=True)
                if place is not None:
                    self.open((program.groups[op.group].domain, place[0], op.peer, place[1]))

    def accepted(self, connection: Connection) -> None:
        """Take in a path that a peer has opened, and send the messages that waited for it."""
        self._slot_connections.allow_until(connection)
        for message in self._unopened.pop(connection.key, []):
            connection.send(message)

    def announce(self, in_flight: InFlight, part: MessagePart, not_before: float = 0.0) -> None:
        """Send a ``ready`` message: the path of ``part`` may bring everything up to its round.

        ``not_before``: the monotonic time (seconds) from which on that holds.
        """
        key = self._routes.key(in_flight, part, incoming=True)
        header = Header("ready", in_flight.flow, part.round, round(not_before * 1e6))
        self._send(in_flight, key, Outgoing(header.pack(), _NO_PAYLOAD))

    def post(
        self,
        in_flight: InFlight,
        key: PeerKey,
        part: MessagePart,
        content: memoryview,
        *,
        fresh: bool = False,
        since: float | None = None,
    ) -> None:
        """Send ``content`` as the payload of ``part`` over connection ``key``.

        ``fresh`` and ``since``: see ``Outgoing``.
        """
        if in_flight.first_byte is None:
            in_flight.first_byte = self._timers.now
        header = Header("data", in_flight.flow, part.transfer, part.bytes).pack()
        in_flight.sent_bytes += len(header) + part.bytes
        in_flight.payload_bytes += part.bytes
        fresh = fresh or (key not in in_flight.opened and since is None)
        in_flight.opened.add(key)
        self._send(in_flight, key, Outgoing(header, content, token=(in_flight, part), fresh=fresh, since=since))

    def _send(self, in_flight: InFlight, key: PeerKey, message: Outgoing) -> None:
        in_flight.lanes.add(key[1])
        connection = self.open(key)
        if connection is None:
            self._unopened.setdefault(key, []).append(message)
            return
        in_flight.connections[key] = connection
        connection.send(message)

    def blank_bytes(self, count: int) -> memoryview:
        """``count`` zero bytes, from one buffer that all messages share."""
        if len(self._blank) < count:
            self._blank = memoryview(bytes(count))
        return self._blank[:count]
