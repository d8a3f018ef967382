"""Accepting connections for as long as a listening socket lives, whatever the machine lacks for a moment."""

from __future__ import annotations

import errno
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

ACCEPT_AGAIN_S = 0.1
"""Wait after a connection could not be accepted, such as when no file descriptors are left."""


def caller(connection: socket.socket) -> tuple[int, int]:
    """The process id and the user id of who connected a Unix socket."""
    size = struct.calcsize("3i")
    pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, user


def accepted(accept: Callable[[], tuple[Any, Any]], what: str) -> Iterator[tuple[Any, Any]]:
    """The connections that ``accept`` returns, until its socket is closed or shut down.

    When one cannot be accepted, this prints a sentence that names ``what`` listens, once for each cause in a row, and
    waits before it tries again. Under green threads all other threads run meanwhile.
    """
    last_error = ""
    while True:
        try:
            connection = accept()
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EBADF):
                return
            if str(error) != last_error:
                last_error = str(error)
                print(f"{what} accepts no connections for now: {last_error}", file=sys.stderr)
            time.sleep(ACCEPT_AGAIN_S)
        else:
            last_error = ""
            yield connection
