"""TCP sockets that stand in for the queues of a NIC: bound to their port, with buffers for the traffic of a rail.

Acknowledgements: the kernel puts a timestamp for the acknowledgement of a write's last byte
(``SOF_TIMESTAMPING_TX_ACK``, Linux 3.17 and later) on the error queue of the socket, which makes it readable for
``select``, so that no polling is needed. Only the arrival of the timestamp is used.

Retransmission: TCP resends what was lost while a circuit was dark after a time-out that doubles with each attempt;
where circuits come in slots most of these attempts fall into dark times as well. The host knows when its circuit is up
again and tells TCP in the way of RFC 6069 (TCP-LCD) for disruptions of connectivity: an ICMP message about a segment
that was sent again undoes one doubling, and if the shorter time-out is over, TCP sends the segment at once.

Bytes sent by a port: the counter of its network interface, which counts after the queueing discipline.

Packets for a socket: a filter of one instruction drops them all.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

from topos.plan import HostPort

BUFFER_BYTES = 2 << 20
"""Size of the send buffer and of the receive buffer of a socket."""
_TCP_RTO_MAX_MS, _RTO_MAX_MS = 44, 5000
"""Longest retransmission time-out, for data lost while a circuit was dark (include/uapi/linux/tcp.h). TCP gives a
connection up after 15 retransmissions, here a minute: later than an agent that knows why its peer is silent."""
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SO_BINDTODEVICE = 25


def address_of(port: HostPort) -> str:
    return port.ip.split("/")[0]


def new_socket(interface: str) -> socket.socket:
    """Make a non-blocking TCP socket that sends and receives on ``interface`` only; ``OSError`` where there is none.

    Its congestion control is that of the host (``topos.kernel.transport``).
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, interface.encode())
    except OSError:
        sock.close()
        raise
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(OSError):  # Linux 6.15 and later
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MAX_MS, _RTO_MAX_MS)
    return sock


_SO_TIMESTAMPING = 37
"""Socket option and control message type (include/uapi/asm-generic/socket.h)."""
_TX_ACK, _RECEIVED, _SOFTWARE, _ONLY_STAMPS = 1 << 9, 1 << 3, 1 << 4, 1 << 11
"""Flags of include/uapi/linux/net_tstamp.h."""
_ROOM_BYTES = 256
"""Buffer size for the control messages of a notice."""

NOTICE = [(socket.SOL_SOCKET, _SO_TIMESTAMPING, struct.pack("=I", _TX_ACK))]
"""Control message for ``sendmsg``: requests a notice when the last byte of this write is acknowledged."""


_OLDEST_S = 1.0
STAMP_BYTES = socket.CMSG_SPACE(48)
"""Buffer size for the control message of ``receive_time``."""


def ask_for_times(sock: socket.socket) -> None:
    """Enable acknowledgement notices on a socket, and times of arrival."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _RECEIVED | _SOFTWARE | _ONLY_STAMPS)


def receive_time(control: list[tuple[int, int, bytes]]) -> float | None:
    """Monotonic time at which the last bytes that a ``recvmsg`` returned came to this machine (None: not known).

    ``control``: what it returned beside them. Where an earlier packet was lost or overtaken the time is too early. A
    time more than a second ago counts as not known: the clock of the kernel's stamps may have been set.
    """
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPING):
            seconds, nanoseconds = struct.unpack_from("qq", data)
            age_s = float(time.time() - seconds - nanoseconds * 1e-9)
            if seconds and age_s < _OLDEST_S:
                return time.monotonic() - max(0.0, age_s)
    return None


def take_notices(sock: socket.socket) -> bool:
    taken = False
    while True:
        try:
            sock.recvmsg(0, _ROOM_BYTES, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except OSError:
            return taken
        taken = True


_TCP_REPAIR, _TCP_REPAIR_QUEUE, _TCP_QUEUE_SEQ = 19, 20, 21
_ON, _OFF, _OFF_IN_SILENCE = 1, 0, -1
_SEND_QUEUE = 2
_ICMP_UNREACHABLE, _ICMP_HOST_UNREACHABLE = 3, 1
_BACKOFF, _RETRANSMITS, _SEGMENTS = 4, 100, (136, 156)
"""Offsets of ``tcpi_backoff``, ``tcpi_total_retrans``, and ``tcpi_segs_out`` and ``tcpi_data_segs_out`` in ``struct
tcp_info`` (include/uapi/linux/tcp.h)."""
_SIOCOUTQNSD = 0x894B
"""Request of ``ioctl`` (include/uapi/linux/sockios.h)."""


def revive(sock: socket.socket) -> None:
    """Make ``sock`` resend unacknowledged data at once. Needs root; does nothing where nothing is unacknowledged.

    If the connection waits for its peer's receive window, whose update was lost, a window probe is sent.
    """
    for _ in range(_doublings(sock)):
        _unreachable(sock)
        if _doublings(sock) == 0:
            return
    if unacknowledged(sock):
        _probe_window(sock)


def _probe_window(sock: socket.socket) -> None:
    """Send a window probe: leaving the repair mode sends one."""
    sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _ON)
    sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _OFF)


def _doublings(sock: socket.socket) -> int:
    """Number of times that the retransmission time-out was doubled."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    return int(info[_BACKOFF]) if len(info) > _BACKOFF else 0


def _unreachable(sock: socket.socket) -> None:
    """Send this host the ICMP message "host unreachable" about the first unacknowledged segment of ``sock``."""
    (here, port), (there, far_port) = sock.getsockname(), sock.getpeername()
    segment = struct.pack("!HHI", port, far_port, _first_unacknowledged(sock))
    packet = struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, socket.IPPROTO_TCP, 0)
    packet += socket.inet_aton(here) + socket.inet_aton(there) + segment
    head = struct.pack("!BBHI", _ICMP_UNREACHABLE, _ICMP_HOST_UNREACHABLE, 0, 0)
    message = head[:2] + struct.pack("!H", _checksum(head + packet)) + head[4:] + packet
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        raw.sendto(message, (here, 0))


def _first_unacknowledged(sock: socket.socket) -> int:
    """Sequence number of the first unacknowledged byte: that of the last byte written less the unacknowledged bytes."""
    sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _ON)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR_QUEUE, _SEND_QUEUE)
        written = int(sock.getsockopt(socket.IPPROTO_TCP, _TCP_QUEUE_SEQ))
    finally:
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _OFF_IN_SILENCE)
    return (written - unacknowledged(sock)) & 0xFFFFFFFF


def unacknowledged(sock: socket.socket) -> int:
    """Number of bytes written to ``sock`` that the peer's kernel has not acknowledged."""
    return _waiting(sock, termios.TIOCOUTQ)


def unsent(sock: socket.socket) -> int:
    """Number of bytes written to ``sock`` that the kernel has not sent for the first time."""
    return _waiting(sock, _SIOCOUTQNSD)


def _waiting(sock: socket.socket, which: int) -> int:
    return int.from_bytes(fcntl.ioctl(sock.fileno(), which, b"\0\0\0\0"), sys.byteorder)


def segments_without_data(sock: socket.socket) -> int:
    """Number of segments sent that were bare acknowledgements."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    all_segments, with_data = (int.from_bytes(info[at : at + 4], sys.byteorder) for at in _SEGMENTS)
    return all_segments - with_data


def retransmits(sock: socket.socket) -> int:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int.from_bytes(info[_RETRANSMITS : _RETRANSMITS + 4], sys.byteorder)


_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_DROP = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))
"""The instruction "return 0" (include/uapi/linux/filter.h): nothing of the packet is kept."""


def drop_packets(sock: socket.socket) -> None:
    program = struct.pack("@HP", 1, ctypes.addressof(_DROP))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def take_packets(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


_PATH = Path("/proc/thread-self/net/dev")
"""Counters of the network namespace of the calling thread."""
_SENT_BYTES = 8
"""Index of the field after the name and the colon (proc_net_dev(5))."""


def left_port(interface: str) -> int:
    """Bytes sent by ``interface`` since it exists; ``OSError`` if there is no such interface."""
    for line in _PATH.read_text(encoding="ascii").splitlines():
        name, colon, fields = line.partition(":")
        if colon and name.strip() == interface:
            return int(fields.split()[_SENT_BYTES])
    raise OSError(f"there is no interface {interface}")
