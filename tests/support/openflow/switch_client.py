"""A connection to a bridge such as ``ovs-ofctl`` has: sends messages of the framework, collects what comes back."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterable
from typing import Any

from openflow.decoding import connection, decode, encode

from controllers.openflow.flows import bundle
from topos.kernel.emulation import Emulation

_NUMBERS = {"1.0": 1, "1.3": 4, "1.4": 5, "1.5": 6}
_ECHO_REQUEST, _ECHO_REPLY, _ERROR, _PACKET_IN, _REMOVED = 2, 3, 1, 10, 11
PATIENCE_S = 5.0


class SwitchClient:
    """Speaks ``version`` with ``bridge`` of a running emulation. Use as a context manager.

    ``packets_in``, ``removed``: the messages of these kinds that came so far.
    """

    def __init__(self, net: Emulation, bridge: str, version: str = "1.4") -> None:
        self.version = version
        self.link = connection(version)
        self.ofproto, self.parser = self.link.ofproto, self.link.ofproto_parser
        self.packets_in: list[Any] = []
        self.removed: list[Any] = []
        self._number, self._xid = _NUMBERS[version], 0
        self._buffer = b""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(f"{net.run.path}/{bridge}.mgmt")
        number = self._number
        self._socket.sendall(struct.pack("!BBHIHHI", number, 0, 16, 0, 1, 8, 1 << number))
        self._next(time.monotonic() + PATIENCE_S)  # hello
        # a connection that wants no bytes of packets gets no messages but replies
        self._socket.sendall(struct.pack("!BBHIHH", number, 9, 12, 0, 0, 0xFFFF))

    def __enter__(self) -> SwitchClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, *messages: Any) -> int:
        """Send messages of the framework; the number of the last one."""
        data = b""
        for message in messages:
            self._xid += 1
            data += encode(message, self._xid)
        self._socket.sendall(data)
        return self._xid

    def bundle(self, messages: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Have flow-mods, each by its name and arguments, carried out at once, and wait for the barrier behind them."""
        mods = [getattr(self.parser, name)(self.link, **arguments) for name, arguments in messages]
        self._xid += 1
        self._socket.sendall(bundle((encode(mod, self._xid)[8:] for mod in mods), self._xid))
        self.barrier()

    def barrier(self) -> None:
        """Return when the bridge has carried out all that was sent; ``AssertionError`` if it refuses something."""
        number = self.send(self.parser.OFPBarrierRequest(self.link))
        self.reply_to(number)

    def ask(self, message: Any) -> Any:
        """The body of the reply, of all its parts if it has several."""
        number, entries = self.send(message), []
        while True:
            reply = self.reply_to(number)
            if not isinstance(reply.body, list):
                return reply.body
            entries += reply.body
            if not reply.flags & 1:
                return entries

    def reply_to(self, number: int) -> Any:
        """The next message with this number."""
        end = time.monotonic() + PATIENCE_S
        while True:
            message = self._next(end)
            assert message is not None, "the bridge does not answer"
            if message[1] == _ERROR:
                raise AssertionError(f"refused: {decode(self.version, message)}")
            if struct.unpack_from("!I", message, 4)[0] == number and message[1] not in (_PACKET_IN, _REMOVED):
                return decode(self.version, message) if len(message) > 8 else None

    def read(self, seconds: float = 0.0) -> None:
        """Take what the bridge has sent, waiting up to ``seconds`` for the first message."""
        end = time.monotonic() + seconds
        while self._next(end) is not None:
            end = time.monotonic()

    def _next(self, end: float) -> bytes | None:
        """The next message of the bridge; None if none comes in time."""
        while True:
            if len(self._buffer) >= 4:
                length = struct.unpack_from("!H", self._buffer, 2)[0]
                if len(self._buffer) >= length:
                    message, self._buffer = self._buffer[:length], self._buffer[length:]
                    self._note(message)
                    return message
            if not select.select([self._socket], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            data = self._socket.recv(1 << 20)
            assert data, "the bridge has closed the connection"
            self._buffer += data

    def _note(self, message: bytes) -> None:
        if message[1] == _PACKET_IN:
            self.packets_in.append(decode(self.version, message))
        elif message[1] == _REMOVED:
            self.removed.append(decode(self.version, message))
        elif message[1] == _ECHO_REQUEST:
            self._socket.sendall(bytes([message[0], _ECHO_REPLY]) + message[2:])
