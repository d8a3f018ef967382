"""One non-blocking TCP connection between two ports that carries whole messages in order, both ways.

The ``Inbox`` that owns the connection decides what an incoming message is for and where its payload goes.

``Transport`` has all connections of one agent: a listener on every port and one connection per path, opened on first
use. The lower rank of a path connects. Sockets are bound to the device of their port, so a message can only leave and
enter by the ports of its path.
"""

from __future__ import annotations

import errno
import math
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from railyard.errors import AgentError, PeerLost
from railyard.scale import ETHERNET_HEADER_BYTES, TCP_IP_HEADER_BYTES, goodput_share
from topos.kernel.tuning import rto_min_ms
from topos.plan import FabricPlan, HostPort, Network
from workloads.agent.transport.message import HEADER_BYTES, Header, Outgoing
from workloads.agent.transport.pacing import Bucket, SendAllowance, UpWindow
from workloads.agent.transport.sockets import (
    BUFFER_BYTES,
    NOTICE,
    STAMP_BYTES,
    address_of,
    ask_for_times,
    drop_packets,
    left_port,
    new_socket,
    retransmits,
    revive,
    segments_without_data,
    take_notices,
    take_packets,
    unacknowledged,
    unsent,
)
from workloads.program import Domain
from workloads.rank.paths import NETWORK_OF_DOMAIN, PeerKey

C = TypeVar("C")


class Activity(Generic[C]):
    """The connections of one rank that have messages to send, and those whose awaited ``events`` have changed."""

    def __init__(self) -> None:
        self.sending: dict[C, None] = {}
        self.changed: dict[C, None] = {}


_READ_BATCH_S = 0.2
"""Wake up for this much of a payload at line rate, or for its end; 50 Mb/s: every megabyte (``_MOST_BATCH_BYTES``)."""
_MOST_BATCH_BYTES = BUFFER_BYTES // 2
"""Half of the receive buffer, so that the window of the sender stays open."""
_ROUND_TRIP_S = 0.0005
"""Shortest interval between two looks at whether bytes have left."""
_UNHEARD_S = 0.005
"""Interval between two looks at whether bytes are acknowledged, should the kernel's notice not come."""
_LEAST_BATCH_BYTES = 16 << 10
LEAST_WRITE_BYTES = 4 << 10
"""Smallest write at the end of an up window; fewer bytes wait for the next window."""
_DISCARD = memoryview(bytearray(1 << 20))
_BARE_BYTES = TCP_IP_HEADER_BYTES + ETHERNET_HEADER_BYTES
_TRY_AGAIN = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)


class Inbox(Protocol):
    """Receiver of the messages of a connection."""

    def may_receive(self, connection: PeerConnection, header: Header) -> bool:
        """Whether a message may be received now; if not, ``PeerConnection.resume`` tries again."""

    def expect(self, connection: PeerConnection, header: Header) -> memoryview | None:
        """Where the payload of a message goes (None: discard it); ``VerifyError`` if the message is misdelivered."""

    def arrived(self, connection: PeerConnection, header: Header) -> None:
        """Called when a message has arrived completely."""

    def written(self, connection: PeerConnection, token: object) -> None:
        """Called when the kernel has taken the last byte of an outgoing message."""


class PeerConnection:
    """A connection from a port of this host to the port of a peer, over one path.

    ``left_port`` returns the number of bytes that have left the port, where something depends on that
    (``workloads.agent.transport.pacing``). ``clock`` returns the current time, where ``now`` of a caller on a busy
    machine may be some milliseconds old. ``activity`` is told of messages to send and of events to wait for. ``enter``
    moves the thread into the host's network.
    """

    def __init__(
        self,
        sock: socket.socket,
        key: PeerKey,
        bucket: Bucket,
        inbox: Inbox,
        *,
        connected: bool,
        mtu: int,
        overhead: int = 0,
        left_port: Callable[[], int] | None = None,
        clock: Callable[[], float] | None = None,
        activity: Activity[PeerConnection] | None = None,
        enter: Callable[[], None] = lambda: None,
    ) -> None:
        self.sock = sock
        self.key = key
        self.connected = connected
        self.last_progress = 0.0
        self.sent_bytes = 0
        self._bucket = bucket
        self._inbox = inbox
        self._share = goodput_share(mtu, overhead)
        self._queue: deque[Outgoing] = deque()
        self._may_send_at = 0.0
        self._blocked = False
        """Whether the kernel takes no more bytes at present."""
        self._left_port = left_port
        self._clock = clock
        self._enter = enter
        self._activity = activity or Activity()
        self._activity.changed[self] = None
        ask_for_times(sock)
        self.allowance: SendAllowance | None = None
        """What may be sent in the up window of the circuit under it (None: there is none)."""
        self._head = bytearray(HEADER_BYTES)
        self._have = self._left = 0
        self._header: Header | None = None
        self._parked: Header | None = None
        """Header of a message that may not be received yet; its payload waits in the kernel, and all later data behind
        it."""
        self._into: memoryview | None = None
        self.control: list[tuple[int, int, bytes]] = []
        """Control messages that came with the latest bytes of a payload."""
        self._batch = min(max(_LEAST_BATCH_BYTES, int(bucket.bytes_per_s * _READ_BATCH_S)), _MOST_BATCH_BYTES)
        self._low_water = 1
        self._await_bytes(HEADER_BYTES)

    @property
    def peer(self) -> int:
        return self.key[2]

    def arrival_s(self, size: int) -> float:
        """Seconds until a message has arrived whose header is here, at the port's rate less a first burst."""
        return max(0.0, size / self._share / self._bucket.bytes_per_s - self._bucket.burst_s)

    def fileno(self) -> int:
        return self.sock.fileno()

    # -- out ---------------------------------------------------------------------------------------

    def send(self, message: Outgoing) -> None:
        """Queue a message for ``flush``. A message without payload overtakes payloads that have not begun."""
        place = len(self._queue)
        while not message.payload and place and self._queue[place - 1].payload and not self._queue[place - 1].sent:
            place -= 1
        self._queue.insert(place, message)
        if not message.payload:  # it does not wait for what a payload waits for
            self._may_send_at = 0.0
        self._activity.sending[self] = None

    @property
    def sends_at(self) -> float:
        """Time from which on ``flush`` may send something (infinity: not before an event of the socket)."""
        return self._may_send_at if self.connected and not self._blocked and self._queue else math.inf

    @property
    def events(self) -> int:
        if not self.connected:
            return select.EPOLLOUT
        return (select.EPOLLIN if self._parked is None else 0) | (select.EPOLLOUT if self._blocked else 0)

    def flush(self, now: float) -> None:
        blocked = not self._send_queued(now)
        if blocked is not self._blocked:
            self._blocked = blocked
            self._activity.changed[self] = None

    def _send_queued(self, now: float) -> bool:
        """Send what may go now; False if the kernel takes no more at present."""
        while self._queue:
            message = self._queue[0]
            if message.sent == 0 and self._waits(now, message):
                return True
            room = self._room(now, message)
            if room == 0:
                return True
            if not self._push(message, now, room):
                return False
            if message.sent == message.size:
                self._queue.popleft()
                if message.token is not None:
                    self._inbox.written(self, message.token)
        self._activity.sending.pop(self, None)
        return True

    def _waits(self, now: float, message: Outgoing) -> bool:
        """Whether a message has to wait for its turn or for the tokens of the bucket, before its first byte."""
        wait, data = 0.0, len(message.payload) > 0
        if data and message.in_turn and self.allowance is None and self._bucket.backlog_s(now) > self._bucket.slack_s:
            wait = self._bucket.turn_s(now, unacknowledged(self.sock) / self._share)
        if wait <= 0 and data and message.hold:
            wait = self._bucket.wait_s(now, message.size / self._share, message.since)
        self._may_send_at = now + wait if wait > 0 else 0.0
        return wait > 0

    def allow_until(self, window: UpWindow | None) -> None:
        """Restrict sending to the up window of the circuit under this connection (None: no restriction)."""
        self._may_send_at = 0.0
        if window is None:
            self.allowance = None
            return
        again = unacknowledged(self.sock) if self.connected else 0
        self.allowance = SendAllowance(
            window, self._bucket, self._share, self._data_left if self._left_port else None, again
        )
        if again:
            self._enter()
            revive(self.sock)

    def _data_left(self) -> int:
        """Bytes that have left the port, without those of bare acknowledgements of this connection."""
        assert self._left_port is not None
        self._enter()
        return self._left_port() - segments_without_data(self.sock) * _BARE_BYTES

    def _room(self, now: float, message: Outgoing) -> int | None:
        """Number of bytes that may be written now (None: no limit); for 0, ``sends_at`` says when to look again."""
        if self.allowance is None:
            return None
        least = min(message.size - message.sent, LEAST_WRITE_BYTES)
        now = now if self._clock is None else self._clock()
        room = self.allowance.room(now)
        if room < least:
            self._may_send_at = self.allowance.look_again(now, least)
            return 0
        self._may_send_at = 0.0
        return int(room)

    def _push(self, message: Outgoing, now: float, room: int | None = None) -> bool:
        """Write at most ``room`` bytes once; False if the kernel took nothing."""
        done = message.sent
        head = len(message.head)
        end = None if room is None else max(0, done + room - head)
        parts: list[bytes | memoryview] = [message.payload[done - head : end]] if done >= head else []
        if not parts:
            parts = [message.head[done:], message.payload[:end]]
        last = room is None or room >= message.size - done
        try:
            # With MSG_EOR the last bytes leave in a segment of their own, which waits for no bytes of the next message.
            count = self.sock.sendmsg(parts, NOTICE if last and message.notice else (), socket.MSG_EOR if last else 0)
        except OSError as error:
            if error.errno in _TRY_AGAIN:
                return False
            raise PeerLost(f"the connection to rank {self.peer} broke while sending: {error.strerror}") from None
        message.sent += count
        self.sent_bytes += count
        if self.allowance is not None:
            self.allowance.handed(count)
        self.last_progress = now
        self._bucket.sent(now, count / self._share, control=not message.payload)
        return True

    @property
    def posted_bytes(self) -> int:
        """All bytes sent so far and all bytes of queued messages."""
        return self.sent_bytes + sum(m.size - m.sent for m in self._queue)

    def left_s(self, mark: int, *, acknowledged: bool) -> float:
        """Seconds until the next look at whether the first ``mark`` bytes have left (0: they have).

        ``acknowledged``: whether they are acknowledged, instead. The time is estimated from the rate of the port; a
        notice of the kernel (``notices``) may come earlier.
        """
        done = self.sent_bytes - (unacknowledged if acknowledged else unsent)(self.sock)
        if mark <= done:
            return 0.0
        if acknowledged:
            return max(self._bucket.backlog_s(time.monotonic()), 0.0) + _UNHEARD_S
        by_rate = (mark - done) / self._share / self._bucket.bytes_per_s
        return min(by_rate, max(self._bucket.backlog_s(time.monotonic()), _ROUND_TRIP_S))

    def notices(self) -> bool:
        return take_notices(self.sock)

    # -- in ----------------------------------------------------------------------------------------

    def resume(self, now: float) -> None:
        header = self._parked
        if header is not None and self._inbox.may_receive(self, header):
            self._parked = None
            self._activity.changed[self] = None
            self._take_in(header)
            if self._left == 0:
                self._end_message(header)
            self.receive(now)

    def receive(self, now: float) -> None:
        """Read all available data; raises ``PeerLost`` if the peer has closed the connection."""
        ended = False
        while self._parked is None:
            missing = HEADER_BYTES - self._have if self._header is None else self._left
            count = self._read(missing)
            if count:
                self.last_progress = now
                ended = self._took(count) or ended
            if count < missing:  # nothing is left in the kernel, or it is reported at once
                self._await_bytes(missing - count)
                break
            if self._header is None and missing >= _LEAST_BATCH_BYTES:  # as a rule the next header is not here yet
                self._await_bytes(HEADER_BYTES)
                break
        if ended:
            # A delayed ack (40 ms) would delay the end of the operation at the sender, or look like a loss.
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _took(self, count: int) -> bool:
        """Account for bytes that were read; returns whether they end a message."""
        if self._header is None:
            self._have += count
            if self._have < HEADER_BYTES:
                return False
            header = Header.unpack(self._head)
            if not self._inbox.may_receive(self, header):
                self._parked = header
                self._activity.changed[self] = None
                return False
            self._take_in(header)
        else:
            header = self._header
            self._left -= count
        if self._left:
            return False
        self._end_message(header)
        return True

    def _read(self, missing: int) -> int:
        """Read once, at most ``missing`` bytes; returns their number, 0 if none are available now."""
        try:
            if self._header is None:
                count = self.sock.recv_into(memoryview(self._head)[self._have :])
            elif self._into is None:
                room = _DISCARD[: min(missing, len(_DISCARD))]
                count, self.control, _, _ = self.sock.recvmsg_into([room], STAMP_BYTES, socket.MSG_TRUNC)
            else:
                room = self._into[len(self._into) - missing :]
                count, self.control, _, _ = self.sock.recvmsg_into([room], STAMP_BYTES)
        except OSError as error:
            if error.errno in _TRY_AGAIN:
                return 0
            raise PeerLost(f"the connection to rank {self.peer} broke while receiving: {error.strerror}") from None
        if count == 0:
            raise PeerLost(f"rank {self.peer} closed its connection before the program was done")
        return count

    def listen_closely(self) -> None:
        """Let ``select`` report the next byte, however many are missing: it shows whether the peer sends at all."""
        self._await_bytes(1)

    def _await_bytes(self, missing: int) -> None:
        """Let ``select`` sleep until a sizeable piece of the missing bytes has arrived."""
        low_water = min(missing, self._batch)
        if low_water != self._low_water:
            self._low_water = low_water
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    def _take_in(self, header: Header) -> None:
        self._header = header
        self._left, self.control = header.payload_bytes, []
        self._into = self._inbox.expect(self, header)

    def _end_message(self, header: Header) -> None:
        self._header, self._into, self._have = None, None, 0
        self._inbox.arrived(self, header)

    # -- opening and closing --------------------------------------------------------------------------------------

    @property
    def answered(self) -> bool:
        """Whether the peer has accepted the connection, even if ``check_connected`` was not called yet."""
        try:
            self.sock.getpeername()
        except OSError:
            return False
        return True

    def renew(self, sock: socket.socket, *, connected: bool) -> None:
        """Continue with another socket: the SYN of the old one was lost, and TCP would repeat it only later."""
        assert not self.connected
        self.sock.close()
        ask_for_times(sock)
        self.sock, self.connected, self._low_water = sock, connected, 1
        self._blocked = False
        self._activity.changed[self] = None
        self._await_bytes(HEADER_BYTES)

    def check_connected(self) -> None:
        """Complete a connect in progress when the socket is writable; raises ``PeerLost`` if it failed."""
        error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise PeerLost(f"cannot connect to rank {self.peer}: {os.strerror(error)}")
        self.connected = True
        self._activity.changed[self] = None

    def close(self, *, silent: bool = False) -> None:
        """Close the socket with a reset; ``silent``: without any packet, as a NIC gives up a queue.

        A FIN that waits for its acknowledgement would be repeated over circuits that connect other ranks by then, and
        they connect others already where a job ends between two phases.
        """
        self._activity.changed.pop(self, None)
        self._activity.sending.pop(self, None)
        if silent:
            self.sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


TCP_PORT = 7700
TCP_REPAIR = 19
"""Option of a socket (include/uapi/linux/tcp.h) that is closed without a packet."""
TCP_REPEATS_SYN_S = 1.0
"""Seconds after which TCP repeats a SYN that was not answered (RFC 6298), which no option of Linux shortens."""
_DOMAIN_OF_NETWORK: dict[Network, Domain] = {network: domain for domain, network in NETWORK_OF_DOMAIN.items()}


class Transport:
    """All sockets of one rank, made inside the rank's network namespace, into which ``enter`` moves the thread."""

    def __init__(self, plan: FabricPlan, rank: int, inbox: Inbox, enter: Callable[[], None] = lambda: None) -> None:
        self._rank = rank
        self._enter = enter
        self._inbox = inbox
        self._plan = plan
        self._ports: dict[tuple[Domain, int], HostPort] = {}
        self._buckets: dict[tuple[Domain, int], Bucket] = {}
        self._peer_of_ip: dict[str, tuple[Domain, HostPort]] = {}
        self._ip_of_peer: dict[tuple[Domain, int, int], str] = {}
        self._listeners: dict[socket.socket, tuple[Domain, int]] = {}
        self._connections: dict[PeerKey, PeerConnection] = {}
        self._far = plan.delayed or bool(plan.links)
        self._called_again = 0
        self.activity: Activity[PeerConnection] = Activity()
        """The connections that have something to send, or wait for other events than before."""
        self._read_plan(plan)

    def _read_plan(self, plan: FabricPlan) -> None:
        """Look up the ports of the rank and their peers: ports of the same switch, or of a linked one."""
        for switch in plan.switches:
            domain = _DOMAIN_OF_NETWORK[switch.network]
            mine = [port for port in switch.ports if port.rank == self._rank]
            for port in mine:
                self._ports[domain, port.lane] = port
                self._buckets[domain, port.lane] = Bucket(port.rate_mbps, plan.mtu, plan.burst)
            reached = plan.network(switch.network) if plan.links else (switch,)
            for port in (port for other in reached for port in other.ports) if mine else ():
                self._peer_of_ip[address_of(port)] = domain, port
                self._ip_of_peer[domain, port.rank, port.lane] = address_of(port)

    def listen(self) -> None:
        """Open a listener on every port; ``AgentError`` names the port on which that fails."""
        self._enter()
        for place, port in self._ports.items():
            sock = new_socket(port.interface)
            try:
                sock.bind((address_of(port), TCP_PORT))
                sock.listen(256)
            except OSError as error:
                sock.close()
                raise AgentError(
                    f"rank {self._rank} cannot listen on {port.interface} ({address_of(port)}): {error.strerror}"
                ) from None
            self._listeners[sock] = place

    def connection(self, key: PeerKey, now: float) -> PeerConnection | None:
        """The connection over path ``key``, opened if this rank has to do that; None if the peer has yet to do it."""
        if key not in self._connections and self._rank < key[2]:
            self._connections[key] = self._connect(key, now)
        return self._connections.get(key)

    def find(self, key: PeerKey) -> PeerConnection | None:
        return self._connections.get(key)

    def answer_s(self, key: PeerKey) -> float:
        """Seconds within which the peer's answer to a call over path ``key`` comes, unless a packet was lost.

        That is the retransmission time-out of the port. Packets that cross links between switches, or links with a
        delay, may wait longer, up to the time of TCP's own repetition.
        """
        port = self._ports[key[0], key[1]]
        return TCP_REPEATS_SYN_S if self._far else rto_min_ms(port.rate_mbps, self._plan.mtu, self._plan.burst) / 1e3

    def call_again(self, connection: PeerConnection) -> bool:
        """Connect anew where the peer has not answered: a packet was lost, for instance at a dark circuit.

        False where the peer has answered, or the connection was closed. An answer that comes while the other call is
        made is dropped: the peer would take a connection for open, and send on it, that is closed here.
        """
        if connection.fileno() < 0 or connection.connected or connection.answered:
            return False
        drop_packets(connection.sock)
        if connection.answered:  # just before its packets were dropped
            take_packets(connection.sock)
            return False
        sock, connected = self._call(connection.key)
        connection.renew(sock, connected=connected)
        self._called_again += 1
        return True

    def _connect(self, key: PeerKey, now: float) -> PeerConnection:
        sock, connected = self._call(key)
        connection = self._adopt(sock, key, connected=connected)
        connection.last_progress = now
        return connection

    def _call(self, key: PeerKey) -> tuple[socket.socket, bool]:
        """Make a connecting socket; returns the socket and whether it is connected already."""
        domain, lane, peer, peer_lane = key
        port = self._ports.get((domain, lane))
        address = self._ip_of_peer.get((domain, peer, peer_lane))
        if port is None or address is None:
            raise AgentError(
                f"rank {self._rank} was given a path from its port {lane} to port {peer_lane} of rank {peer} on the "
                f"{domain} network, which this fabric does not have"
            )
        self._enter()
        sock = new_socket(port.interface)
        try:
            sock.bind((address_of(port), 0))
            code = sock.connect_ex((address, TCP_PORT))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        except OSError as error:
            sock.close()
            raise AgentError(
                f"rank {self._rank} cannot connect from {port.interface} to rank {peer} ({address}): {error.strerror}"
            ) from None
        return sock, code == 0

    def _adopt(self, sock: socket.socket, key: PeerKey, *, connected: bool) -> PeerConnection:
        bucket, interface = self._buckets[key[0], key[1]], self._ports[key[0], key[1]].interface
        counted = goodput_share(self._plan.mtu) / self._plan.goodput_share
        return PeerConnection(
            sock,
            key,
            bucket,
            self._inbox,
            connected=connected,
            mtu=self._plan.mtu,
            overhead=self._plan.overhead,
            left_port=lambda: round(left_port(interface) * counted),
            clock=time.monotonic,
            activity=self.activity,
            enter=self._enter,
        )

    def accept(self, listener: socket.socket, now: float) -> list[PeerConnection]:
        """Accept the connections that peers have opened to a listener: the last one of each peer."""
        domain, lane = self._listeners[listener]
        new: dict[PeerKey, PeerConnection] = {}
        while True:
            try:
                sock, (address, _) = listener.accept()
            except BlockingIOError:
                return list(new.values())
            known = self._peer_of_ip.get(address)
            if known is None or known[0] != domain:
                sock.close()
                continue
            sock.setblocking(False)
            key = (domain, lane, known[1].rank, known[1].lane)
            connection = self._adopt(sock, key, connected=True)
            connection.last_progress = now
            if key in self._connections:
                self._connections[key].close()
            self._connections[key] = new[key] = connection

    @property
    def listeners(self) -> tuple[socket.socket, ...]:
        return tuple(self._listeners)

    def __iter__(self) -> Iterator[PeerConnection]:
        return iter(self._connections.values())

    def totals(self) -> dict[str, int]:
        """Retransmitted segments and sent bytes of all connections, as fields of the ``sockets`` event.

        A call that was repeated counts as one segment.
        """
        again = self._called_again + sum(retransmits(c.sock) for c in self)
        return {"retransmits": again, "bytes": sum(c.sent_bytes for c in self)}

    def close(self, *, silent: bool = False) -> None:
        for sock in self._listeners:
            sock.close()
        for connection in self:
            connection.close(silent=silent)
        self._listeners.clear()
        self._connections.clear()
