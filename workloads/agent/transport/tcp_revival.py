"""Tell TCP that its path is back, so that it does not sleep through the light.

What was lost in the dark is sent again after a time-out that doubles with each attempt; where circuits come in turns
those attempts mostly fall into the dark as well. The host knows when its circuit is back. It says so in the way that
RFC 6069 (TCP-LCD) gave TCP for disruptions of connectivity: an ICMP message about a segment that was sent again takes
one doubling back, and if the shorter time-out is over, the segment is sent at once.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import termios

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
