"""A relay from the yard to a controller outside: a user's own Ryu app on loopback, or a controller on another machine.

The switches are in a network namespace with a loopback of its own. The relay listens there and forwards each
connection to the controller outside.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from railyard.accepting import accepted
from railyard.errors import ControlError
from railyard.priority import set_real_time
from topos.kernel import namespaces

_CHUNK_BYTES = 1 << 16
_RETRY_S = 0.01


class Relay:
    """Relays every connection to ``listener`` to a connection that ``connect`` makes. Use as a context manager.

    ``connect`` may raise ``OSError``, which closes the connection that was to be relayed. ``left`` is called, in a
    thread, when what it connected to ends a connection first.
    """

    def __init__(
        self, listener: socket.socket, connect: Callable[[], socket.socket], left: Callable[[], None] = lambda: None
    ) -> None:
        self._connect, self._left = connect, left
        self._listener = listener
        self._open: set[socket.socket] = {self._listener}
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    @staticmethod
    def to_controller(
        netns_fd: int, inside: tuple[str, int], outside: tuple[str, int], left: Callable[[], None]
    ) -> Relay:
        """Relay connections to ``inside`` in namespace ``netns_fd`` to ``outside`` in the caller's namespace.

        Both are (host, port). Raises ``ControlError`` if nothing listens at ``outside``.
        """
        try:
            socket.create_connection(outside, timeout=5).close()
        except OSError as error:
            host, port = outside
            raise ControlError(
                f"no OpenFlow controller answers at {host}:{port} ({error.strerror or error}); start yours first"
            ) from None
        return Relay(listener_in(netns_fd, inside), lambda: socket.create_connection(outside, timeout=5), left)

    def _accept(self) -> None:
        for switch, _ in accepted(self._listener.accept, "railyard: the relay to the controller"):
            try:
                controller = self._connect()
            except OSError:
                switch.close()
                continue
            controller.settimeout(None)
            for end in (switch, controller):
                if end.family != socket.AF_UNIX:
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:  # from now on ``close`` may close them
                self._open |= {switch, controller}
            for source, sink in ((switch, controller), (controller, switch)):
                threading.Thread(target=self._pump, args=(source, sink, controller), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, controller: socket.socket) -> None:
        set_real_time()  # circuits wait for what it carries
        ended = source
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                ended = sink
                sink.sendall(data)
                ended = source
        with self._lock:
            first = {source, sink} <= self._open
            self._open.discard(source)
        if first and ended is controller:
            self._left()
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()

    @property
    def relays(self) -> bool:
        """Whether any connection is relayed now, which Open vSwitch would tell 5 s later."""
        return len(self._open) > 1  # the listener

    def close(self) -> None:
        with self._lock:
            ends, self._open = self._open, set()
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def listener_in(netns_fd: int, address: tuple[str, int]) -> socket.socket:
    """A socket that listens on ``address`` (host, port) in namespace ``netns_fd``."""
    with namespaces.inside(netns_fd):
        return socket.create_server(address)


def connected_in(netns_fd: int, address: tuple[str, int]) -> socket.socket:
    """A connection to ``address`` (host, port) in namespace ``netns_fd``; ``OSError`` if nothing listens there."""
    with namespaces.inside(netns_fd):
        return socket.create_connection(address, timeout=5)


def connect_unix(path: Path | str, longest_s: float | None = None, wait_s: float = 0.0) -> socket.socket:
    """A connection to the Unix socket ``path``, whose calls take ``longest_s`` seconds at most; ``OSError`` without.

    It is tried again for ``wait_s`` seconds, in which somebody may begin to listen there.
    """
    end = time.monotonic() + wait_s
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(longest_s)
            connection.connect(str(path))
            return connection
        except OSError:
            connection.close()
            if time.monotonic() + _RETRY_S > end:
                raise
        time.sleep(_RETRY_S)


def open_listener(path: Path) -> socket.socket:
    """A socket that listens at ``path``, open to all who can enter its folder, which must be private."""
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    listener.listen(256)
    return listener
