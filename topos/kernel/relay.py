"""A relay from the yard to a controller outside: lets a user's own Ryu app on loopback control the fabric.

The switches are in a network namespace with a loopback of its own. The relay listens there and forwards each
connection to the controller outside.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from railyard.accepting import accepted
from railyard.errors import ControlError
from topos.kernel import namespaces

_CHUNK_BYTES = 1 << 16


class Relay:
    """Relays connections to ``inside`` in namespace ``netns_fd`` to ``outside`` in the caller's namespace.

    Both are (host, port). Raises ``ControlError`` if nothing listens at ``outside``. Use as a context manager.
    """

    def __init__(self, netns_fd: int, inside: tuple[str, int], outside: tuple[str, int]) -> None:
        self._outside = outside
        try:
            socket.create_connection(outside, timeout=5).close()
        except OSError as error:
            host, port = outside
            raise ControlError(
                f"no OpenFlow controller answers at {host}:{port} ({error.strerror or error}); start yours first"
            ) from None
        with namespaces.inside(netns_fd):
            self._listener = socket.create_server(inside)
        self._open: set[socket.socket] = {self._listener}
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def _accept(self) -> None:
        for switch, _ in accepted(self._listener.accept, "railyard: the relay to the controller"):
            try:
                controller = socket.create_connection(self._outside, timeout=5)
            except OSError:
                switch.close()
                continue
            controller.settimeout(None)
            with self._lock:
                self._open |= {switch, controller}
            for source, sink in ((switch, controller), (controller, switch)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open.discard(source)
        source.close()

    def close(self) -> None:
        """Close the listening socket and all connections."""
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
