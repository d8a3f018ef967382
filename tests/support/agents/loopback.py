"""Agents over the loopback interface, without root: a plan whose ports are addresses of it, and peers of raw bytes."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable

import pytest

from railyard.errors import RailyardError
from topos.plan import FabricPlan, HostPort, SwitchPlan
from workloads.agent.agent import Wait
from workloads.agent.agent_loop import AgentLoop
from workloads.agent.config import AgentConfig
from workloads.agent.transport import connection as connections
from workloads.agent.transport.message import HEADER_BYTES, Header

LONGEST_WAIT_S = 10.0
"""How long a test waits for a socket before it fails."""
RATE_MBPS = 10_000.0


def address(rank: int) -> str:
    return f"127.7.7.{rank + 1}"


def loopback_plan(ranks: int) -> FabricPlan:
    """One rail without circuits; every rank has one port, an address of the loopback interface."""
    ports = tuple(
        HostPort(rank + 1, f"g{rank}", rank, 0, "lo", f"02:00:00:00:00:{rank:02x}", address(rank), RATE_MBPS)
        for rank in range(ranks)
    )
    return FabricPlan("electrical", ranks, 1, 1, 9000, (SwitchPlan("rail0", 0x10000, "electrical", "rail", ports),))


def use_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents of this process listen on a port that is free now, with sockets that need no privilege."""
    monkeypatch.setattr(connections, "TCP_PORT", free_port())
    monkeypatch.setattr(connections, "new_socket", lambda interface: plain_socket())


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind((address(0), 0))
        return int(sock.getsockname()[1])


def plain_socket() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Peer:
    """The other end of one connection of an agent, which says and hears what the test wants.

    Of two ranks the lower one connects. ``room``: bytes that it has room for before it reads.
    """

    def __init__(self, rank: int, other: int, room: int | None = None) -> None:
        self.rank, self.other = rank, other
        self.ended = False
        """Whether the agent has closed the connection."""
        self._rest = b""
        self._sock: socket.socket | None = None
        self._listener: socket.socket | None = None
        if rank > other:
            self._listener = plain_socket()
            if room is not None:
                self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            self._listener.bind((address(rank), connections.TCP_PORT))
            self._listener.listen()

    def connect(self) -> None:
        """Call the agent, which listens."""
        self._sock = plain_socket()
        self._sock.bind((address(self.rank), 0))
        self._sock.connect_ex((address(self.other), connections.TCP_PORT))

    @property
    def sock(self) -> socket.socket:
        if self._sock is None:
            assert self._listener is not None, "connect first"
            assert select.select([self._listener], [], [], LONGEST_WAIT_S)[0], "nobody has called"
            self._sock, _ = self._listener.accept()
            self._sock.setblocking(False)
        return self._sock

    @property
    def called(self) -> bool:
        """Whether the agent has connected to this listener."""
        return self._sock is not None or bool(self._listener and select.select([self._listener], [], [], 0)[0])

    def say(self, header: Header, payload: bytes = b"") -> None:
        self.sock.setblocking(True)
        self.sock.sendall(header.pack() + payload)
        self.sock.setblocking(False)

    def read(self) -> None:
        """Take in what is there."""
        while True:
            try:
                data = self.sock.recv(1 << 20)
            except BlockingIOError:
                return
            if not data:
                self.ended = True
                return
            self._rest += data

    def heard(self) -> list[tuple[Header, bytes]]:
        """The messages that are here and complete."""
        self.read()
        found = []
        while len(self._rest) >= HEADER_BYTES:
            header = Header.unpack(self._rest[:HEADER_BYTES])
            end = HEADER_BYTES + header.payload_bytes
            if len(self._rest) < end:
                break
            found.append((header, self._rest[HEADER_BYTES:end]))
            self._rest = self._rest[end:]
        return found

    def wait(self, count: int = 1) -> list[tuple[Header, bytes]]:
        """So many messages; fails if they do not come. For agents that run by themselves."""
        found = self.heard()
        while len(found) < count:
            assert not self.ended, "the agent has closed the connection"
            assert select.select([self.sock], [], [], LONGEST_WAIT_S)[0], "the agent sends nothing"
            found += self.heard()
        return found

    def close(self) -> None:
        for sock in (self._sock, self._listener):
            if sock is not None:
                sock.close()


def until(condition: Callable[[], object], do: Callable[[], object]) -> None:
    """``do`` again and again until ``condition`` holds; fails after a bounded time."""
    end = time.monotonic() + LONGEST_WAIT_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        do()


def run_agent(config: AgentConfig, control: socket.socket) -> None:
    """Run the only agent of a process, and raise the error with which it ends."""
    loop, errors = AgentLoop([config], [], control), list[RailyardError]()
    (running,) = loop._running.values()

    def watched(course: Wait[None]) -> Wait[None]:
        try:
            yield from course
        except RailyardError as error:
            errors.append(error)
            raise

    running.course = watched(running.course)
    loop.run()
    for error in errors:
        raise error
