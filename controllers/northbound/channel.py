"""The job channel's server: newline-delimited JSON over a Unix socket, one thread a connection.

A Unix socket is reached from every network namespace. Only its owner may open it (mode 0600).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
import threading
from pathlib import Path

from controllers.northbound.answers import failure
from controllers.openflow.core import ControllerCore
from railyard.errors import MachineError

LINE_BYTES = 4 << 20
"""The longest request; a register of a few thousand groups stays far below."""
SEND_S = 5.0
"""How long a client may leave its answers unread before it is hung up on."""


def listen(path: Path, owner: int | None = None) -> socket.socket:
    """A listening socket at ``path``, for ``owner`` (a user id; default: us) only. A dead socket there is replaced."""
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            else:
                raise MachineError(f"{path} is the channel of a controller that runs; choose another --channel")
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
    """One client. Its answers may come from any thread."""

    def __init__(self, sock: socket.socket, core: ControllerCore) -> None:
        self._socket = sock
        self._core = core
        self._sending = threading.Lock()
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self.trusted = struct.unpack("3i", credentials)[1] == os.geteuid()

    def answer(self, request_id: object, fragment: str) -> None:
        """Send one line."""
        line = f'{{"id":{json.dumps(request_id)},{fragment}}}\n'.encode()
        try:
            with self._sending:
                self._socket.sendall(line)
        except OSError:
            self._hang_up()

    def serve(self) -> None:
        """Read requests until the client hangs up."""
        try:
            rest = b""
            while data := self._receive():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take(line)
                if len(rest) > LINE_BYTES:
                    self.answer(None, failure(f"a request is longer than {LINE_BYTES} bytes; send it in parts"))
                    break
        except OSError:
            pass
        finally:
            self._hang_up()
            self._core.closed(self)
            self._socket.close()

    def _receive(self) -> bytes:
        """The next bytes, however long the client is silent (the time-out is for sending)."""
        while True:
            with contextlib.suppress(TimeoutError):
                return self._socket.recv(65536)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            self.answer(None, failure("a request must be one line of JSON"))
            return
        self._core.handle(message, self)

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def serve(listener: socket.socket, core: ControllerCore) -> None:
    """Take connections for ever, each in a thread of its own."""
    while True:
        sock, _ = listener.accept()
        sock.settimeout(SEND_S)
        connection = ChannelConnection(sock, core)
        threading.Thread(target=connection.serve, name="channel", daemon=True).start()
