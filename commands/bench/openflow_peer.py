"""A controller of one switch that only sends what a benchmark gives it, and stamps request and barrier reply."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Iterable

from commands.bench import NotMeasured
from controllers.openflow.flows import TYPE_BARRIER_REPLY, TYPE_ERROR, VERSION, bundle, header
from topos.kernel.namespaces import inside

_HEADER = struct.Struct("!BBHI")
_HELLO, _ECHO_REQUEST, _ECHO_REPLY = 0, 2, 3
_PATIENCE_S = 10.0


class OpenFlowPeer:
    """Listens at ``address`` in the namespace ``netns_fd`` for a switch, which ``wait`` then awaits."""

    def __init__(self, netns_fd: int, address: tuple[str, int]) -> None:
        with inside(netns_fd):
            self._listener = socket.create_server(address)
        self._listener.settimeout(_PATIENCE_S)
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._xids = itertools.count(1)

    @property
    def address(self) -> tuple[str, int]:
        """The address at which this listens."""
        host, port = self._listener.getsockname()
        return host, port

    def wait(self) -> None:
        """Wait until the switch has connected; ``NotMeasured`` if it does not within ten seconds."""
        try:
            self._socket = self._listener.accept()[0]
        except TimeoutError:
            raise NotMeasured(f"no switch connected to its controller within {_PATIENCE_S:g} s") from None
        self._socket.settimeout(_PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(header(_HELLO, next(self._xids), 0))

    def change(self, bodies: Iterable[bytes]) -> tuple[float, float]:
        """Send flow-mods as one bundle; the monotonic times of the request and of the barrier reply.

        ``NotMeasured`` if the switch refuses it or does not answer.
        """
        assert self._socket is not None, "wait() first"
        xid = next(self._xids)
        message = bundle(bodies, xid)
        began = time.monotonic()
        try:
            self._socket.sendall(message)
            while True:
                kind, of, body = self._receive()
                if kind == TYPE_BARRIER_REPLY and of == xid:
                    return began, time.monotonic()
                if kind == TYPE_ERROR:
                    raise NotMeasured(f"the switch refused a change with error {body[:4].hex()}")
                if kind == _ECHO_REQUEST:
                    self._socket.sendall(header(_ECHO_REPLY, of, len(body)) + body)
        except TimeoutError:
            raise NotMeasured(f"the switch did not answer a change within {_PATIENCE_S:g} s") from None

    def _receive(self) -> tuple[int, int, bytes]:
        """Type, xid and body of the next message."""
        version, kind, length, xid = _HEADER.unpack(self._read(_HEADER.size))
        body = self._read(length - _HEADER.size)
        if version != VERSION and kind != _HELLO:
            raise NotMeasured(f"the switch speaks version {version} of OpenFlow, not {VERSION}")
        return kind, xid, body

    def _read(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        assert self._socket is not None
        while len(self._buffer) < count:
            piece = self._socket.recv(1 << 16)
            if not piece:
                raise NotMeasured("the switch closed the connection to its controller")
            self._buffer += piece
        found, self._buffer = self._buffer[:count], self._buffer[count:]
        return found

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._listener.close()

    def __enter__(self) -> OpenFlowPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
