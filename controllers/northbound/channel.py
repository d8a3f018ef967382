"""The server of the job channel: newline-delimited JSON over a Unix socket, one thread for all connections.

A Unix socket is reached from every network namespace. Only its owner may open it (mode 0600).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import stat
import struct
import threading
from pathlib import Path

from controllers.northbound.pending_replies import failure
from controllers.openflow.core import ControllerCore
from railyard.errors import MachineError
from railyard.protocol import to_json

LINE_BYTES = 4 << 20
"""The longest request; the registration of a few thousand groups is far shorter."""
RECEIVE_BYTES = 1 << 16
SEND_S = 5.0
"""How long a client may leave its answers unread before its connection is closed."""


def listen(path: Path, owner: int | None = None) -> socket.socket:
    """A listening socket at ``path`` that only ``owner`` (a user id; default: this user) can open.

    A socket file that no process listens on is replaced. ``MachineError`` if a controller listens there already, or if
    the socket cannot be made.
    """
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            else:
                raise MachineError(f"{path} is the channel of a running controller; choose another --channel")
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError as error:
        raise MachineError(f"the job channel cannot be made at {path}: {error.strerror or error}") from error
    finally:
        os.umask(mask)
    if owner is not None:
        os.chown(path, owner, -1)
    listener.listen(1024)
    return listener


class ChannelConnection:
    """One connection of a client; ``answer`` may be called from any thread."""

    def __init__(self, sock: socket.socket, core: ControllerCore) -> None:
        self._socket = sock
        self._core = core
        self._sending = threading.Lock()
        self._rest = b""
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self.trusted = struct.unpack("3i", credentials)[1] == os.geteuid()

    def answer(self, request_id: object, answer: bytes) -> None:
        """Send the answer to one request as a line."""
        number = b"%d" % request_id if type(request_id) is int else to_json(request_id)
        try:
            with self._sending:
                self._socket.sendall(b'{"id":%b,%b\n' % (number, answer[1:]))
        except OSError:
            self._shut_down()

    def read(self) -> bool:
        """Handle the requests that have come; False if the client has closed the connection."""
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            return True
        except OSError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._core.handle(line, self)
        if len(self._rest) > LINE_BYTES:
            self.answer(None, failure(f"a request is longer than {LINE_BYTES} bytes; send it in parts"))
            return False
        return bool(data)

    def close(self) -> None:
        """Close the connection, whose client is gone."""
        self._shut_down()
        self._core.closed(self)
        self._socket.close()

    def _shut_down(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def serve(listener: socket.socket, core: ControllerCore) -> None:
    """Accept connections for ever and serve all of them in this thread.

    A thread for each would hand the interpreter on for each of the requests that come together, one per member.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                connection: ChannelConnection | None = key.data
                if connection is None:
                    sock, _ = listener.accept()
                    sock.settimeout(SEND_S)
                    selector.register(sock, selectors.EVENT_READ, ChannelConnection(sock, core))
                elif not connection.read():
                    selector.unregister(key.fileobj)
                    connection.close()
