"""TCP sockets that stand in for the queues of a NIC: bound to their port, with buffers for the traffic of a rail."""

from __future__ import annotations

import socket
from contextlib import suppress

BUFFER_BYTES = 2 << 20
"""Size of the send buffer and of the receive buffer of a socket."""
_CONGESTION_CONTROLS = (b"cubic", b"reno")
_TCP_RTO_MAX_MS, _RTO_MAX_MS = 44, 5000
"""Longest retransmission time-out, for data lost while a circuit was dark (include/uapi/linux/tcp.h). TCP gives a
connection up after 15 retransmissions, here a minute: later than an agent that knows why its peer is silent."""
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SO_BINDTODEVICE = 25


def new_socket(interface: str) -> socket.socket:
    """Make a non-blocking TCP socket that sends and receives on ``interface`` only; ``OSError`` where there is none."""
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
    _stand_in_for_a_nic(sock)
    return sock


def _stand_in_for_a_nic(sock: socket.socket) -> None:
    """Choose a congestion control that does not probe for a rate: the rate of the rail is known."""
    for name in _CONGESTION_CONTROLS:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
        except OSError:
            continue
        return
