"""Connections between a bridge and its clients (a controller, ``ovs-ofctl``), by way of this process.

A reply that promises that something holds (a barrier reply, a commit of a bundle, statistics, a removed flow) passes
when the fast path holds it too. Messages of a connection keep their order.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from topos.kernel.fastpath import openflow
from topos.kernel.fastpath.monitor import Monitor
from topos.kernel.fastpath.streams import Loop, Stream

_BARRIER_REPLIES = {1: 19}
"""Type of a barrier reply in OpenFlow 1.0 (version 1); later versions share another one."""
_BACKLOG = 64
_CONNECT_S = 5.0

Connect = Callable[[], socket.socket]


def unix(path: Path) -> Connect:
    """A function that connects to the Unix socket ``path``."""

    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_CONNECT_S)
        connection.connect(str(path))
        return connection

    return connect


def tcp(address: tuple[str, int]) -> Connect:
    """A function that connects to a TCP address."""
    return lambda: socket.create_connection(address, _CONNECT_S)


class Listener:
    """Listens at the Unix socket ``path``, and connects each caller on by ``connect``.

    ``callers`` says which side calls: ``bridge`` (Open vSwitch, towards a controller) or ``client``.
    """

    def __init__(
        self, loop: Loop, path: Path, connect: Connect, callers: str, monitor: Callable[[], Monitor | None]
    ) -> None:
        self._loop, self._connect, self._callers, self._monitor = loop, connect, callers, monitor
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        loop.watch(self._listener, self._accept)

    def _accept(self, _: int) -> None:
        with suppress(OSError):
            caller, _address = self._listener.accept()
            try:
                other = self._connect()
            except OSError:
                caller.close()  # Open vSwitch tries again
                return
            bridge, client = (caller, other) if self._callers == "bridge" else (other, caller)
            Relay(self._loop, bridge, client, self._monitor)


class Relay:
    """One connection between a bridge and a client."""

    def __init__(
        self, loop: Loop, bridge: socket.socket, client: socket.socket, monitor: Callable[[], Monitor | None]
    ) -> None:
        self._monitor = monitor
        self._held: deque[bytes] = deque()
        self._bridge = Stream(loop, bridge, self._from_bridge, self._end)
        self._client = Stream(loop, client, self._from_client, self._end)

    def _from_client(self, buffer: bytearray) -> None:
        self._bridge.send(bytes(buffer))
        buffer.clear()

    def _from_bridge(self, buffer: bytearray) -> None:
        messages = openflow.split(buffer)
        if self._held:
            self._held.extend(messages)
        else:
            self._pass(deque(messages))

    def _pass(self, messages: deque[bytes]) -> None:
        """Send messages to the client, up to the first one that promises what the fast path does not hold yet."""
        ready = bytearray()
        current = False
        while messages:
            if not current and _promises(messages[0]):
                monitor = self._monitor()
                current = monitor is None or monitor.synchronize(self._release)
                if not current:
                    break
            ready += messages.popleft()
        self._held = messages
        self._client.send(ready)

    def _release(self) -> None:
        """Pass on the first held message, whose promise the fast path holds, and what may follow it."""
        if self._held:
            self._client.send(self._held.popleft())
            self._pass(self._held)

    def _end(self) -> None:
        self._bridge.close()
        self._client.close()


def _promises(message: bytes) -> bool:
    """Whether a message of a bridge says that something holds."""
    return message[1] in (_BARRIER_REPLIES.get(message[0], openflow.BARRIER_REPLY), openflow.BUNDLE_CONTROL)
