"""Larger socket buffers for the packet sockets of the userspace switch.

Each port of the userspace datapath reads from a packet socket whose buffer has the system's default size
(208 KiB: some 10 ms of one 100 Mb/s port), so a switch that the scheduler keeps waiting loses packets that no real
switch would lose. The default is a setting of the whole machine and stays as it is; ``pidfd_getfd`` (Linux 5.6) gives
access to the sockets of a child process instead.
"""

from __future__ import annotations

import ctypes
import os
import socket
from contextlib import suppress
from pathlib import Path

_PIDFD_GETFD = 438
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
RECEIVE_BYTES = 8 << 20
SEND_BYTES = 256 << 20
"""The switch sends on one socket for all ports, whose buffer holds the packets queued at all of them."""
_libc = ctypes.CDLL(None, use_errno=True)


def widen(pid: int) -> int:
    """Enlarge the buffers of every packet socket of process ``pid``; returns their number.

    The number is 0 on a kernel without ``pidfd_getfd``.
    """
    widened = 0
    pidfd = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if not os.readlink(entry).startswith("socket:"):
                    continue
                own = _libc.syscall(_PIDFD_GETFD, pidfd, int(entry.name), 0)
                if own < 0:
                    continue
                with socket.socket(fileno=own) as sock:
                    if sock.family == socket.AF_PACKET:
                        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
                        sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SEND_BYTES)
                        widened += 1
    finally:
        os.close(pidfd)
    return widened
