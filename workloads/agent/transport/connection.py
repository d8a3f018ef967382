"""One TCP connection between two ports: messages out in order, messages in, nothing blocks.

What an incoming message is for and where its payload goes is told by the ``Inbox`` that owns the connection.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import sys
import termios
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from railyard.errors import PeerLost
from railyard.scale import ETHERNET_HEADER_BYTES, TCP_IP_HEADER_BYTES, goodput_share
from workloads.agent.transport.message import HEADER_BYTES, Header
from workloads.agent.transport.pacing import Bucket
from workloads.agent.transport.sockets import BUFFER_BYTES
from workloads.agent.transport.tcp_state import NOTICE, allow_notices, revive, take_notices
from workloads.agent.transport.up_window import SendAllowance, UpWindow
from workloads.program import Domain

_READ_BATCH_S = 0.05
"""Wake up for at least this much of a payload at line rate; 50 Mb/s: every 312 kB."""
_ROUND_TRIP_S = 0.0005
"""How soon it is looked again whether something has left."""
_UNHEARD_S = 0.005
"""How soon it is looked again whether something is acknowledged, should the kernel not say so."""
_LEAST_BATCH_BYTES = 16 << 10
LEAST_WRITE_BYTES = 4 << 10
"""Fewer are not written at the end of a light: they wait for the next."""
_DISCARD = bytearray(1 << 20)
_TCP_INFO_SEGMENTS = (136, 156)
"""Offsets of ``tcpi_segs_out`` and ``tcpi_data_segs_out`` in ``struct tcp_info``."""
_BARE_BYTES = TCP_IP_HEADER_BYTES + ETHERNET_HEADER_BYTES
_TCP_INFO_RETRANSMITS = 100
"""Offset of ``tcpi_total_retrans`` in ``struct tcp_info`` (include/uapi/linux/tcp.h)."""
_SIOCOUTQ = termios.TIOCOUTQ
_SIOCOUTQNSD = 0x894B
"""Bytes that the kernel has not sent for the first time (include/uapi/linux/sockios.h)."""
_TRY_AGAIN = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)


PeerKey = tuple[Domain, int, int, int]
"""(domain, my lane, peer rank, peer lane)."""


@dataclass
class Outgoing:
    """A message on its way out; ``token`` comes back when its last byte is in the kernel's hands.

    ``fresh``: the first of its operation on this path, which pays for what the token bucket saved up before. Later
    pauses of an operation come from waiting for others; over the whole operation the bucket then keeps to the rate.
    """

    head: bytes
    payload: memoryview
    token: object = None
    fresh: bool = False
    since: float | None = None
    """When the system would have begun to send it, where this machine may be late."""
    sent: int = 0

    @property
    def size(self) -> int:
        """Bytes of head and payload."""
        return len(self.head) + len(self.payload)


class Inbox(Protocol):
    """Who the messages of a connection are for."""

    def awaits(self, connection: Connection, header: Header) -> bool:
        """Whether a message may be taken in now; if not, ``Connection.resume`` tries again."""

    def expect(self, connection: Connection, header: Header) -> memoryview | None:
        """Where the payload of a message goes (None: nowhere, it is thrown away); ``VerifyError`` if it is wrong."""

    def arrived(self, connection: Connection, header: Header) -> None:
        """A message is complete."""

    def written(self, connection: Connection, token: object) -> None:
        """The last byte of an outgoing message was taken by the kernel."""


class Connection:
    """A connection from a port of this host to the port of a peer, over one path.

    ``left_port`` tells how many bytes have left the port, where something depends on that
    (``workloads.agent.transport.up_window``). ``clock`` tells the time there: on a busy machine what the caller calls
    now was some milliseconds ago.
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
        left_port: Callable[[], int] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.sock = sock
        self.key = key
        self.connected = connected
        self.last_progress = 0.0
        self.sent_bytes = 0
        self._bucket = bucket
        self._inbox = inbox
        self._share = goodput_share(mtu)
        self._queue: deque[Outgoing] = deque()
        self._may_send_at = 0.0
        self._left_port = left_port
        self._clock = clock
        allow_notices(sock)
        self._allowance: SendAllowance | None = None
        self._head = bytearray(HEADER_BYTES)
        self._have = 0
        self._header: Header | None = None
        self._parked: Header | None = None
        """The head of a message that may not be taken in yet; it waits in the kernel, and what follows behind it."""
        self._left = 0
        self._into: memoryview | None = None
        self._batch = max(_LEAST_BATCH_BYTES, int(bucket.bytes_per_s * _READ_BATCH_S))
        self._batch = min(self._batch, BUFFER_BYTES // 4)
        self._low_water = 1
        self._await_bytes(HEADER_BYTES)

    @property
    def peer(self) -> int:
        """The peer's rank."""
        return self.key[2]

    def arrival_s(self, size: int) -> float:
        """Seconds until a message whose head is here has arrived, by the port's rate (a first piece came with it)."""
        return max(0.0, size / self._share / self._bucket.bytes_per_s - self._bucket.burst_s)

    def fileno(self) -> int:
        """For ``select``."""
        return self.sock.fileno()

    # -- out ---------------------------------------------------------------------------------------

    def send(self, message: Outgoing) -> None:
        """Queue a message; ``flush`` sends it. One without payload goes before payloads that have not begun."""
        place = len(self._queue)
        while not message.payload and place and self._queue[place - 1].payload and not self._queue[place - 1].sent:
            place -= 1
        self._queue.insert(place, message)

    def has_something_to_send(self, now: float) -> bool:
        """Whether ``flush`` may send something now."""
        return self.connected and bool(self._queue) and now >= self._may_send_at

    def wants_to_write(self, now: float) -> bool:
        """Whether ``select`` should wait for room in the socket."""
        return not self.connected or (bool(self._queue) and now >= self._may_send_at)

    def held_until(self) -> float | None:
        """When bytes that wait for the port's saved-up tokens may go."""
        return self._may_send_at if self._may_send_at > 0 else None

    def flush(self, now: float) -> None:
        """Hand queued messages to the kernel as far as it takes them."""
        while self._queue:
            message = self._queue[0]
            if message.fresh and message.sent == 0 and self._hold(now, message):
                return
            room = self._room(now, message)
            if room == 0 or not self._push(message, now, room):
                return
            if message.sent == message.size:
                self._queue.popleft()
                if message.token is not None:
                    self._inbox.written(self, message.token)

    def _hold(self, now: float, message: Outgoing) -> bool:
        wait = self._bucket.wait_s(now, message.size / self._share, message.since)
        self._may_send_at = now + wait if wait > 0 else 0.0
        return wait > 0

    def allow_until(self, light: UpWindow | None) -> None:
        """The circuit under this connection passes light for a while; before and after nothing is sent.

        None: for as long as anybody has something to send.
        """
        self._may_send_at = 0.0
        if light is None:
            self._allowance = None
            return
        again = self._in_kernel(_SIOCOUTQ) if self.connected else 0
        self._allowance = SendAllowance(
            light, self._bucket, self._share, self._data_left if self._left_port else None, again
        )
        if again:
            revive(self.sock)

    def _data_left(self) -> int:
        """Bytes that have left the port but for those of bare acknowledgements of this connection."""
        assert self._left_port is not None
        info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        all_segments, with_data = (int.from_bytes(info[at : at + 4], sys.byteorder) for at in _TCP_INFO_SEGMENTS)
        return self._left_port() - (all_segments - with_data) * _BARE_BYTES

    def _room(self, now: float, message: Outgoing) -> int | None:
        """How many bytes may be written now (None: any number); for 0 it is known when to look again."""
        if self._allowance is None:
            return None
        least = min(message.size - message.sent, LEAST_WRITE_BYTES)
        now = now if self._clock is None else self._clock()
        room = self._allowance.room(now)
        if room < least:
            self._may_send_at = self._allowance.look_again(now, least)
            return 0
        self._may_send_at = 0.0
        return int(room)

    def _push(self, message: Outgoing, now: float, room: int | None = None) -> bool:
        """One write of at most ``room`` bytes; False if the kernel took nothing."""
        done = message.sent
        head = len(message.head)
        end = None if room is None else max(0, done + room - head)
        parts: list[bytes | memoryview] = [message.payload[done - head : end]] if done >= head else []
        if not parts:
            parts = [message.head[done:], message.payload[:end]]
        whole = room is None or room >= message.size - done
        try:
            count = self.sock.sendmsg(parts, NOTICE if whole else ())
        except OSError as error:
            if error.errno in _TRY_AGAIN:
                return False
            raise PeerLost(f"the connection to rank {self.peer} broke while sending: {error.strerror}") from None
        message.sent += count
        self.sent_bytes += count
        if self._allowance is not None:
            self._allowance.handed(count)
        self.last_progress = now
        self._bucket.sent(now, count / self._share, control=not message.payload)
        return True

    @property
    def posted_bytes(self) -> int:
        """All that was ever to be sent, queued messages included."""
        return self.sent_bytes + sum(m.size - m.sent for m in self._queue)

    def _in_kernel(self, which: int) -> int:
        return int.from_bytes(fcntl.ioctl(self.sock.fileno(), which, b"\0\0\0\0"), sys.byteorder)

    def left_s(self, mark: int, *, acknowledged: bool) -> float:
        """When to look again whether the first ``mark`` bytes of this connection have left, by the port's rate, or are
        ``acknowledged``, unless the kernel says so before (``notices``); 0: they have.
        """
        done = self.sent_bytes - self._in_kernel(_SIOCOUTQ if acknowledged else _SIOCOUTQNSD)
        if mark <= done:
            return 0.0
        if acknowledged:
            return max(self._bucket.backlog_s(time.monotonic()), 0.0) + _UNHEARD_S
        by_rate = (mark - done) / self._share / self._bucket.bytes_per_s
        return min(by_rate, max(self._bucket.backlog_s(time.monotonic()), _ROUND_TRIP_S))

    def notices(self) -> bool:
        """Whether the kernel has said since the last call that something is acknowledged."""
        return take_notices(self.sock)

    # -- in ----------------------------------------------------------------------------------------

    @property
    def readable(self) -> bool:
        """Whether ``select`` should wait for what comes in."""
        return self.connected and self._parked is None

    def resume(self, now: float) -> None:
        """Take in what had to wait, if it may come now."""
        header = self._parked
        if header is not None and self._inbox.awaits(self, header):
            self._parked = None
            self._take_in(header)
            if self._left == 0:
                self._end_message(header)
            self.receive(now)

    def receive(self, now: float) -> None:
        """Read what is there; ``PeerLost`` if the peer is gone."""
        ended = False
        while True:
            count = self._read() if self._parked is None else 0
            if count == 0:
                if ended:
                    # A delayed ack (40 ms) would hold up whoever waits until nothing is in flight, or pass for a loss.
                    self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                return
            self.last_progress = now
            if self._header is None:
                self._have += count
                if self._have == HEADER_BYTES:
                    header = Header.unpack(self._head)
                    if self._inbox.awaits(self, header):
                        self._take_in(header)
                    else:
                        self._parked = header
            else:
                self._left -= count
            if self._header is not None and self._left == 0:
                ended = True
                self._end_message(self._header)

    def _read(self) -> int:
        """Bytes read, 0 if there is nothing now."""
        try:
            if self._header is None:
                count = self.sock.recv_into(memoryview(self._head)[self._have :])
            elif self._into is None:
                wanted = min(self._left, len(_DISCARD))
                count = self.sock.recv_into(_DISCARD, wanted, socket.MSG_TRUNC)
            else:
                count = self.sock.recv_into(self._into[len(self._into) - self._left :])
        except OSError as error:
            if error.errno in _TRY_AGAIN:
                self._await_bytes(HEADER_BYTES - self._have if self._header is None else self._left)
                return 0
            raise PeerLost(f"the connection to rank {self.peer} broke while receiving: {error.strerror}") from None
        if count == 0:
            raise PeerLost(f"rank {self.peer} closed its connection before the program was done")
        return count

    def _await_bytes(self, missing: int) -> None:
        """Let ``select`` sleep until a good piece of what is missing is here."""
        low_water = min(missing, self._batch)
        if low_water != self._low_water:
            self._low_water = low_water
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    def _take_in(self, header: Header) -> None:
        self._header = header
        self._left = header.payload_bytes
        self._into = self._inbox.expect(self, header)

    def _end_message(self, header: Header) -> None:
        self._header, self._into, self._have = None, None, 0
        self._inbox.arrived(self, header)

    # -- life --------------------------------------------------------------------------------------

    @property
    def answered(self) -> bool:
        """Whether the peer has answered the call, even if nobody has looked yet (``check_connected``)."""
        try:
            self.sock.getpeername()
        except OSError:
            return False
        return True

    def renew(self, sock: socket.socket, *, connected: bool) -> None:
        """Go on with another socket: the call of the one before was lost, and it would call again at its own time."""
        assert not self.connected
        self.sock.close()
        allow_notices(sock)
        self.sock, self.connected, self._low_water = sock, connected, 1
        self._await_bytes(HEADER_BYTES)

    def check_connected(self) -> None:
        """After a connect in progress became writable: it stands, or ``PeerLost``."""
        error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise PeerLost(f"cannot connect to rank {self.peer}: {os.strerror(error)}")
        self.connected = True

    def retransmits(self) -> int:
        """Segments that the kernel sent again, over the life of the connection."""
        info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        if len(info) < _TCP_INFO_RETRANSMITS + 4:
            return 0
        return int(struct.unpack_from("=I", info, _TCP_INFO_RETRANSMITS)[0])

    def close(self) -> None:
        """Close the socket at once: a farewell that waits for its ack would be sent again and again over circuits that
        others have by then.
        """
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()
