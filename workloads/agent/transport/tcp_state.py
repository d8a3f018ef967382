"""TCP sockets and ports as the kernel sees them: acknowledgements, sending again after a dark time, bytes sent."""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import termios
from pathlib import Path

_SO_TIMESTAMPING = 37
"""On sockets and in messages to them (include/uapi/asm-generic/socket.h)."""
_TX_ACK, _SOFTWARE, _ONLY_STAMPS = 1 << 9, 1 << 4, 1 << 11
"""Flags of include/uapi/linux/net_tstamp.h."""
_ROOM_BYTES = 256
"""For what comes with a notice."""

NOTICE = [(socket.SOL_SOCKET, _SO_TIMESTAMPING, struct.pack("=I", _TX_ACK))]
"""Goes with a ``sendmsg``: a notice is to come when the last byte that it takes is acknowledged."""


def allow_notices(sock: socket.socket) -> None:
    """Notices may be asked for on this socket."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _SOFTWARE | _ONLY_STAMPS)


def take_notices(sock: socket.socket) -> bool:
    """Whether a notice has come; takes all that have."""
    found = False
    while True:
        try:
            sock.recvmsg(0, _ROOM_BYTES, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except OSError:
            return found
        found = True


_TCP_REPAIR, _TCP_REPAIR_QUEUE, _TCP_QUEUE_SEQ = 19, 20, 21
_ON, _OFF, _OFF_IN_SILENCE = 1, 0, -1
_SEND_QUEUE = 2
_ICMP_UNREACHABLE, _ICMP_HOST_UNREACHABLE = 3, 1
_BACKOFF = 4
"""Offset of ``tcpi_backoff`` in ``struct tcp_info`` (include/uapi/linux/tcp.h)."""


def revive(sock: socket.socket) -> None:
    """Have ``sock`` send again at once what it waits to send again. Needs root; does nothing if there is nothing.

    If it waits for its peer to have room again, whose word of that was lost, it asks.
    """
    for _ in range(_doublings(sock)):
        _unreachable(sock)
        if _doublings(sock) == 0:
            return
    if _unacknowledged(sock):
        _ask_for_room(sock)


def _ask_for_room(sock: socket.socket) -> None:
    """A window probe: leaving the repair mode sends one."""
    sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _ON)
    sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _OFF)


def _doublings(sock: socket.socket) -> int:
    """How often the time-out was doubled."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    return int(info[_BACKOFF]) if len(info) > _BACKOFF else 0


def _unreachable(sock: socket.socket) -> None:
    """The ICMP message about the first segment that is not acknowledged, from this host to itself."""
    (here, port), (there, far_port) = sock.getsockname(), sock.getpeername()
    segment = struct.pack("!HHI", port, far_port, _first_unacknowledged(sock))
    packet = struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, socket.IPPROTO_TCP, 0)
    packet += socket.inet_aton(here) + socket.inet_aton(there) + segment
    head = struct.pack("!BBHI", _ICMP_UNREACHABLE, _ICMP_HOST_UNREACHABLE, 0, 0)
    message = head[:2] + struct.pack("!H", _checksum(head + packet)) + head[4:] + packet
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        raw.sendto(message, (here, 0))


def _first_unacknowledged(sock: socket.socket) -> int:
    """Its sequence number: the last one written less what is not acknowledged."""
    sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _ON)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR_QUEUE, _SEND_QUEUE)
        written = int(sock.getsockopt(socket.IPPROTO_TCP, _TCP_QUEUE_SEQ))
    finally:
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _OFF_IN_SILENCE)
    return (written - _unacknowledged(sock)) & 0xFFFFFFFF


def _unacknowledged(sock: socket.socket) -> int:
    left: bytes = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    return int.from_bytes(left, sys.byteorder)


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


_PATH = Path("/proc/thread-self/net/dev")
"""Of the network namespace that the caller is in."""
_SENT_BYTES = 8
"""Field after the name and the colon (proc_net_dev(5))."""


def left_port(interface: str) -> int:
    """Bytes sent by ``interface`` since it exists; ``OSError`` if there is none."""
    for line in _PATH.read_text(encoding="ascii").splitlines():
        name, colon, fields = line.partition(":")
        if colon and name.strip() == interface:
            return int(fields.split()[_SENT_BYTES])
    raise OSError(f"there is no interface {interface}")
