"""Larger socket buffers for the packet sockets of the userspace switch.

Each port of the userspace datapath reads from a packet socket whose buffer has the system's default size
(208 KiB: some 10 ms of one 100 Mb/s port), so a switch that the scheduler keeps waiting loses packets that
no real switch would. The default is a setting of the whole machine and not ours to change; the sockets of our
own child are (``pidfd_getfd``, Linux 5.6).
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PIDFD_GETFD = 438
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
RECEIVE_BYTES = 8 << 20
SEND_BYTES = 256 << 20
"""One socket sends for all ports, and what waits in the queue of any of them counts."""
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def _borrowed(pidfd: int, fd: int) -> Iterator[socket.socket | None]:
    """Descriptor ``fd`` of another process as a socket of ours, or None where it is none."""
    own = _libc.syscall(_PIDFD_GETFD, pidfd, fd, 0)
    if own < 0:
        yield None
        return
    borrowed = socket.socket(fileno=own)
    try:
        yield borrowed
    finally:
        borrowed.close()


def widen(pid: int) -> int:
    """Widen every packet socket of process ``pid``; returns how many there are (0 on a kernel that cannot)."""
    widened = 0
    pidfd = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if not os.readlink(entry).startswith("socket:"):
                    continue
                with _borrowed(pidfd, int(entry.name)) as sock:
                    if sock is not None and sock.family == socket.AF_PACKET:
                        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BYTES)
                        sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SEND_BYTES)
                        widened += 1
    finally:
        os.close(pidfd)
    return widened
