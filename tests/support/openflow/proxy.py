"""A TCP proxy between switches and their controller that resets connections, holds them up and loses messages."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from topos.kernel import namespaces

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing the socket, which the thread that reads it does, resets the connection."""


class Proxy:
    """Relays connections to ``inside`` to ``controller``, both (host, port) in namespace ``netns_fd``.

    ``loses(message)`` is asked for each OpenFlow message from a switch. While ``passes`` is not set nothing is relayed.
    """

    def __init__(self, netns_fd: int, inside: tuple[str, int], controller: tuple[str, int]) -> None:
        self._netns_fd, self._controller = netns_fd, controller
        self.passes = threading.Event()
        self.passes.set()
        self.loses: Callable[[bytes], bool] = lambda message: False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        with namespaces.inside(netns_fd):
            self._listener = socket.create_server(inside)
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                switch, _ = self._listener.accept()
                with namespaces.inside(self._netns_fd):
                    controller = socket.socket()
                try:
                    controller.connect(self._controller)
                except OSError:
                    switch.close()
                    controller.close()
                    continue
                self._pairs.append((switch, controller))
                for source, sink, lose in ((switch, controller, True), (controller, switch, False)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._pump, args=(source, sink, lose), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, lose: bool) -> None:
        buffer = b""
        with suppress(OSError):
            while data := source.recv(1 << 16):
                buffer += data
                while len(buffer) >= 8 and len(buffer) >= (length := int.from_bytes(buffer[2:4], "big")):
                    message, buffer = buffer[:length], buffer[length:]
                    self.passes.wait()
                    if not (lose and self.loses(message)):
                        sink.sendall(message)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RD)
        source.close()

    def reset(self) -> None:
        """Reset all connections, on both sides."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    end.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Take no more connections, and end all."""
        self.passes.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()
