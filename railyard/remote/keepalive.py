"""On a machine that is reached by ``ssh``: notice that the other one is gone without a word, as after a power failure.

The other side's ``ssh`` asks for a sign of life every two seconds; ``sshd`` by itself waits for hours. So the kernel
is told to watch the connection of this one login: it closes it, ``sshd`` ends the login, and the input of the process
ends.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import suppress

SSHD_VARIABLE = "RAILYARD_REMOTE_SSHD"
"""Environment variable by which the start of a process tells it the process id of the ``sshd`` of its own login."""
_SYS_PIDFD_GETFD = 438
_OPTIONS = {
    socket.TCP_KEEPIDLE: 2,
    socket.TCP_KEEPINTVL: 2,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 8000,  # ms, for what was sent and is not acknowledged
}
LOST_S = 8.0
"""Seconds after which the connection to a machine that is gone is closed."""


def watch_connection() -> bool:
    """Let the kernel close the connection of this process's login ``LOST_S`` seconds after the other side is gone.

    Returns whether it does: not for a process that ``ssh`` did not start, or where ``sshd`` is not to be looked into.
    """
    sshd = os.environ.pop(SSHD_VARIABLE, "")
    watched = False
    with suppress(OSError, ValueError):
        for connection in _connections(int(sshd)):
            with connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in _OPTIONS.items():
                    connection.setsockopt(socket.IPPROTO_TCP, option, value)
                watched = True
    return watched


def _connections(pid: int) -> Iterator[socket.socket]:
    """The connected TCP sockets of a process."""
    pidfd = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                continue
            fd = ctypes.CDLL(None).syscall(_SYS_PIDFD_GETFD, pidfd, int(name), 0)
            if fd < 0:
                continue
            found = socket.socket(fileno=fd)
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                yield found
            else:
                found.close()
    finally:
        os.close(pidfd)
