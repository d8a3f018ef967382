"""Connections between a bridge and its clients (a controller, ``ovs-ofctl``), by way of this process.

A reply that promises that something holds (a barrier reply, a commit of a bundle, statistics, a removed flow) passes
when the fast path holds it too. Messages of a connection keep their order, but while a reply waits for the end of a
dark time, which may take minutes, echoes pass it, without which Ryu takes a connection for dead after 15 s, and so do
packets and states of ports, which nobody has asked for.
"""

from __future__ import annotations

import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

from railyard.accepting import ACCEPT_AGAIN_S
from railyard.loop import Loop
from topos.kernel.fastpath import lasting, openflow
from topos.kernel.fastpath.monitor import Monitor
from topos.kernel.fastpath.statistics import Statistics
from topos.kernel.fastpath.streams import BufferedStream
from topos.kernel.relay import connect_unix

_BARRIER_REPLIES = {1: 19}
"""Type of a barrier reply in OpenFlow 1.0 (version 1); later versions share another one."""
_BACKLOG = 64
_CONNECT_S = 0.01
"""Longest wait for a connection, of the run's own loopback or file system, which answers at once or refuses."""
_RETRY_S, _PATIENCE_S = 0.02, 0.9
"""A caller waits so long for a server that is not there yet, which is tried in between. Open vSwitch gives up after one
second, and then waits for another."""
_MOST_ENDS = 256
"""Barriers of one connection that are remembered because their reply is to follow the end of flows."""
_PACKET_IN, _COMMIT_REPLY = 10, 5  # OFPBCT_COMMIT_REPLY
_UNASKED = {openflow.ECHO_REQUEST, openflow.ECHO_REPLY, _PACKET_IN, openflow.PORT_STATUS}
_MOST_HELD = 1 << 14
"""Messages that may wait behind a reply; a client that asks for more is disconnected."""

Connect = Callable[[], socket.socket]


def unix(path: Path) -> Connect:
    return lambda: connect_unix(path, _CONNECT_S)


def tcp(address: tuple[str, int]) -> Connect:
    """A function that connects to a TCP address (IPv4), or has begun to if that takes longer than ``_CONNECT_S``."""

    def connect() -> socket.socket:
        connection = socket.socket()
        connection.settimeout(_CONNECT_S)
        try:
            connection.connect(address)
        except TimeoutError:
            pass  # the server has no room for another caller; what is sent to it waits
        except OSError:
            connection.close()
            raise
        return connection

    return connect


class Listener:
    """Listens at the Unix socket ``path``, and connects each caller on by ``connect``, soon if it cannot at once.

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
        self._said = ""
        self._watch()

    def _watch(self) -> None:
        self._loop.watch(self._listener, self._accept)

    def _accept(self, _: int) -> None:
        try:
            caller, _address = self._listener.accept()
        except BlockingIOError:  # the caller is gone
            return
        except OSError as error:  # such as no file descriptors left: the caller waits, and would be reported again
            if str(error) != self._said:
                self._said = str(error)
                print(f"fast path: no connection is accepted for now: {error}", file=sys.stderr)
            self._loop.forget(self._listener)
            self._loop.at(time.monotonic() + ACCEPT_AGAIN_S, self._watch)
            return
        self._said = ""
        self._connect_on(caller, time.monotonic() + _PATIENCE_S)

    def _connect_on(self, caller: socket.socket, until: float) -> None:
        try:
            other = self._connect()
        except OSError:
            again = time.monotonic() + _RETRY_S
            if again > until:
                caller.close()
            else:
                self._loop.at(again, partial(self._connect_on, caller, until))
            return
        bridge, client = (caller, other) if self._callers == "bridge" else (other, caller)
        BridgeRelay(self._loop, bridge, client, self._monitor)


class BridgeRelay:
    """One connection between a bridge and a client."""

    def __init__(
        self, loop: Loop, bridge: socket.socket, client: socket.socket, monitor: Callable[[], Monitor | None]
    ) -> None:
        self._monitor = monitor
        self._statistics: Statistics | None = None
        self._greeted = False
        self._ends: dict[int, int] = {}
        """Xids of barriers whose reply is to say that the flows with a cookie have ended in the kernel."""
        self._held: deque[bytes] = deque()
        self._unlit = False
        """Whether the first held message waits for the end of a dark time."""
        self._bridge = BufferedStream(loop, bridge, self._from_bridge, self._end)
        self._client = BufferedStream(loop, client, self._from_client, self._end)

    def _from_client(self, buffer: bytearray) -> None:
        messages = [message for message in openflow.split(buffer) if not self._lasts(message)]
        self._bridge.send(b"".join(messages))
        if not self._greeted:
            self._greeted = True
            self._wake()
        statistics = self._rewriter()
        if statistics is not None:
            for message in messages:
                statistics.asked(message)

    def _wake(self) -> None:
        """Wake Open vSwitch for the hello of a controller, for which it does not wait: it looks once a second."""
        monitor = self._monitor()
        if monitor is not None:
            monitor.when_current(lambda: None)

    def _lasts(self, message: bytes) -> bool:
        """Whether a message of the client is one for the fast path alone, which is then carried out."""
        request = lasting.decode(message)
        if request is None:
            return False
        monitor = self._monitor()
        if monitor is not None and isinstance(request, lasting.NotBefore):
            monitor.hold(request.at)
        elif monitor is not None and isinstance(request, lasting.Lasts):
            monitor.tables.lasting.ask(request.cookie, request.seconds, time.monotonic())
            self._ends[request.xid] = request.cookie
            if len(self._ends) > _MOST_ENDS:
                del self._ends[next(iter(self._ends))]
        return True

    def _rewriter(self) -> Statistics | None:
        """The rewriter of replies with the fast path's counts; None as long as nothing is attached to the bridge."""
        if self._statistics is None:
            monitor = self._monitor()
            self._statistics = None if monitor is None else Statistics(monitor.tables)
        return self._statistics

    def _from_bridge(self, buffer: bytearray) -> None:
        messages = openflow.split(buffer)
        if self._held:
            self._held.extend(messages)
            self._overtake()
        else:
            self._pass(deque(messages))

    def _pass(self, messages: deque[bytes]) -> None:
        """Send messages to the client, up to the first one that promises what the fast path does not hold yet."""
        ready = bytearray()
        monitor, statistics = self._monitor(), self._rewriter()
        current = monitor is None
        while messages:
            counted = statistics is not None and statistics.concerns(messages[0])
            if not current and monitor is not None and (counted or _promises(messages[0])):
                current = monitor.synchronize(self._release)
                if not current:
                    break
            if self._waits_for_light(messages[0]):
                break
            ready += self._passed(messages.popleft())
        self._held = messages
        self._client.send(ready)
        self._overtake()

    def _waits_for_light(self, message: bytes) -> bool:
        """Whether a message, which is or will be the first held one, is to follow the end of dark times."""
        monitor = self._monitor()
        self._unlit = monitor is not None and _tells_of_light(message) and monitor.when_lit(self._lit)
        return self._unlit

    def _overtake(self) -> None:
        """Pass on what may overtake a message that waits for the end of a dark time."""
        if not self._unlit:
            return
        passing = [message for message in self._held if message[1] in _UNASKED]
        if passing:
            self._held = deque(message for message in self._held if message[1] not in _UNASKED)
            self._client.send(b"".join(map(self._passed, passing)))
        if len(self._held) > _MOST_HELD:
            self._client.close()

    def _release(self) -> None:
        """Pass on the first held message, whose promise the fast path holds, unless it waits for light."""
        if self._held and self._waits_for_light(self._held[0]):
            self._overtake()
        else:
            self._lit()

    def _lit(self) -> None:
        """Pass on the first held message, whose promise holds, and what may follow it."""
        self._unlit = False
        if self._held:
            self._client.send(self._passed(self._held.popleft()))
            self._pass(self._held)

    def _passed(self, message: bytes) -> bytes:
        """A message as the client is to see it now; nothing of a barrier reply that waits for the end of flows."""
        if self._ends and message[1] == openflow.BARRIER_REPLY:
            cookie, monitor = self._ends.pop(int.from_bytes(message[4:8], "big"), None), self._monitor()
            later = partial(self._client.send, message)
            if cookie is not None and monitor is not None and monitor.when_gone(cookie, later):
                return b""
        return message if self._statistics is None else self._statistics.answered(message)

    def _end(self) -> None:
        self._bridge.finish()
        self._client.finish()


def _promises(message: bytes) -> bool:
    return message[1] in (_BARRIER_REPLIES.get(message[0], openflow.BARRIER_REPLY), openflow.BUNDLE_CONTROL)


def _tells_of_light(message: bytes) -> bool:
    """Whether a reply says that changes hold: that of a barrier, or of a bundle's commit."""
    if message[1] == openflow.BUNDLE_CONTROL:
        return int.from_bytes(message[12:14], "big") == _COMMIT_REPLY
    return _promises(message)
