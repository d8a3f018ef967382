"""Connections of one process that must never wait for any of them: non-blocking sockets with output buffers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from railyard.loop import READ, WRITE, Loop

_CHUNK_BYTES = 1 << 18
_MOST_BUFFERED_BYTES = 64 << 20
"""Bytes that may wait to be sent to a peer that does not read; then its connection is closed."""


def _nothing(*_: object) -> None: ...


class BufferedStream:
    """One connected socket: ``received`` is called with the buffer of what came, ``closed`` once when it ends."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        received: Callable[[bytearray], None],
        closed: Callable[[], None],
    ) -> None:
        self._loop, self._socket = loop, connection
        self._received, self._closed = received, closed
        self._incoming, self._outgoing = bytearray(), bytearray()
        self.open, self._finishing = True, False
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop.watch(connection, self._ready)

    def _ready(self, mask: int) -> None:
        if mask & WRITE:
            self._flush()
        if mask & ~WRITE:
            self.read()

    def read(self) -> int:
        """Take what can be read now; the number of bytes."""
        taken, ended = 0, False
        while self.open:
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            ended = not data
            taken += len(data)
            self._incoming += data
            if len(data) < _CHUNK_BYTES:
                break
        if self._finishing:
            self._incoming.clear()
        elif taken:
            try:
                self._received(self._incoming)
            except (ValueError, IndexError, struct.error):  # the peer does not speak the protocol
                ended = True
        if ended:
            self.close()
        return taken

    def send(self, data: bytes | bytearray) -> None:
        if not self.open or self._finishing or not data:
            return
        if self._outgoing:
            self._outgoing += data
        else:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.close()
                return
            if sent < len(data):
                self._outgoing += data[sent:]
                self._loop.watch(self._socket, self._ready, READ | WRITE)
        if len(self._outgoing) > _MOST_BUFFERED_BYTES:
            self.close()

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._outgoing)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        del self._outgoing[:sent]
        if not self._outgoing:
            self._loop.watch(self._socket, self._ready)
            if self._finishing:
                self.close()

    def finish(self) -> None:
        """Close the socket once all that was sent has left; what still comes is thrown away."""
        self._finishing = True
        if not self._outgoing:
            self.close()

    def close(self) -> None:
        if self.open:
            self.open = False
            self._loop.forget(self._socket)
            self._socket.close()
            closed, self._closed, self._received = self._closed, _nothing, _nothing  # these refer to this stream
            closed()
