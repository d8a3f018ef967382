"""The server of the job channel: newline-delimited JSON over a Unix socket, one thread for all connections.

A Unix socket is reached from every network namespace. Only its owner may open it (mode 0600).
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import stat
import sys
import threading
import traceback
from pathlib import Path

from controllers.northbound.pending_replies import failure
from controllers.openflow.core import ControllerCore
from railyard.accepting import caller
from railyard.errors import MachineError
from railyard.protocol import to_json

LINE_BYTES = 4 << 20
"""The longest request; the registration of a few thousand groups is far shorter."""
MOST_CLIENTS = 1 << 14
"""Connections at once, more than ranks need; further ones are closed."""
RECEIVE_BYTES = 1 << 16
SEND_S = 0.2
"""How long a client may keep an answer from being sent, and all other clients waiting; then its connection is closed.
The kernel keeps some 200 KB for a client that does not read."""
_ACCEPT_AGAIN_S = 0.1
"""Wait after a connection could not be accepted (no file descriptors are left), unless a request comes before."""


def listen(path: Path, owner: int | None = None, *, anyone: bool = False) -> socket.socket:
    """A listening socket at ``path`` that only ``owner`` (a user id; default: this user) can open.

    ``anyone``: everybody who can enter its folder can open it.

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
    mask = os.umask(0 if anyone else 0o177)
    try:
        listener.bind(str(path))
    except OSError as error:
        raise MachineError(f"the job channel cannot be made at {path}: {error.strerror or error}") from error
    finally:
        os.umask(mask)
    if owner is not None:
        os.chown(path, owner, -1, follow_symlinks=False)
    listener.listen(1024)
    return listener


def _is_shared(sock: socket.socket) -> bool:
    """Whether others than its owner can open the listening socket that ``sock`` was accepted from."""
    place = sock.getsockname()
    with contextlib.suppress(OSError):
        return bool(place and os.stat(place).st_mode & 0o077)
    return True


class ChannelConnection:
    """One connection of a client; ``answer`` may be called from any thread."""

    def __init__(self, sock: socket.socket, core: ControllerCore) -> None:
        self._socket = sock
        self._core = core
        self._sending = threading.Lock()
        self._rest = bytearray()
        pid, user = caller(sock)
        self.trusted = user == os.geteuid() and (pid == os.getppid() or not _is_shared(sock))
        """Whether the client is of this user; on a socket that others can open, only the parent of this process."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def answer(self, request_id: object, answer: bytes) -> None:
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
        self._rest += data
        if b"\n" in data:  # looked for in what is new only: a long line comes in many parts
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                self._core.handle(bytes(line), self)
        if len(self._rest) > LINE_BYTES:
            self.answer(None, failure(f"a request is longer than {LINE_BYTES} bytes; send it in parts"))
            return False
        return bool(data)

    def close(self) -> None:
        self._shut_down()
        try:
            self._core.closed(self)
        finally:
            self._socket.close()

    def _shut_down(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def serve(listener: socket.socket, core: ControllerCore) -> None:
    """Accept connections and serve all of them in this thread, until ``listener`` is shut down.

    An error of one connection ends no other. A thread for each would hand the interpreter on for each of the requests
    that come together, one per member.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        paused, said = False, ""
        while True:
            ready = selector.select(_ACCEPT_AGAIN_S if paused else None)
            if paused:
                selector.register(listener, selectors.EVENT_READ)
                paused = False
            for key, _ in ready:
                if key.data is not None:
                    _serve_one(selector, key.data)
                    continue
                try:
                    _accept(selector, listener, core)
                    said = ""
                except OSError as error:
                    if error.errno == errno.EINVAL:
                        return
                    selector.unregister(listener)
                    paused = True
                    if str(error) != said:
                        said = str(error)
                        print(f"controller: the job channel accepts no connections for now: {said}", file=sys.stderr)


def _accept(selector: selectors.BaseSelector, listener: socket.socket, core: ControllerCore) -> None:
    sock, _ = listener.accept()
    if len(selector.get_map()) > MOST_CLIENTS:
        sock.close()
        raise OSError(errno.EMFILE, f"there are {MOST_CLIENTS} connections already")
    sock.settimeout(SEND_S)
    connection = ChannelConnection(sock, core)
    selector.register(connection, selectors.EVENT_READ, connection)


def _serve_one(selector: selectors.BaseSelector, connection: ChannelConnection) -> None:
    """Handle what has come on a connection, which ends if the client has closed it or handling it fails."""
    try:
        if connection.read():
            return
    except Exception:  # a defect that one client meets
        traceback.print_exc()
    selector.unregister(connection)
    try:
        connection.close()
    except Exception:  # the same
        traceback.print_exc()
