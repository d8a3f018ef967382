"""The kernel says when a peer has acknowledged what was written, so that nobody has to ask it again and again.

Time stamps of the acknowledgement of a write's last byte (``SOF_TIMESTAMPING_TX_ACK``, Linux 3.17 and later) come on
the error queue of the socket, which makes it readable for ``select``. Only that they come counts here.
"""

from __future__ import annotations

import socket
import struct

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
