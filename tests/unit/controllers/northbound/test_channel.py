"""The thread of the job channel serves all other clients whatever one of them does."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from controllers.northbound import channel
from controllers.northbound.pending_replies import Requester
from controllers.openflow.core import ControllerCore

BURST = 200


class Core:
    """Answers any line, with 64 KB if it is ``much``; has two defects that the line ``defect`` meets."""

    def __init__(self) -> None:
        self.closed_ones: list[Requester] = []
        self.met: Requester | None = None

    def handle(self, line: bytes, requester: Requester) -> None:
        """Answer ``line``."""
        if line == b"defect":
            self.met = requester
            raise KeyError("a defect")
        requester.answer(1, b'{"x":"%b"}' % (b"y" * (1 << 16 if line == b"much" else 1)))

    def closed(self, requester: Requester) -> None:
        """Take note of the end of a connection."""
        self.closed_ones.append(requester)
        if requester is self.met:
            raise KeyError("another defect")


class Listener:
    """A listening socket that has refused to accept ``left`` more times."""

    def __init__(self, path: Path) -> None:
        self.sock, self.left, self.tries = channel.listen(path), 0, 0

    def fileno(self) -> int:
        return self.sock.fileno()

    def accept(self) -> tuple[socket.socket, Any]:
        self.tries += 1
        if self.left > 0:
            self.left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self.sock.accept()


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
def listener(core: Core, tmp_path: Path) -> Iterator[Listener]:
    made = Listener(tmp_path / "channel")
    arguments = cast("socket.socket", made), cast("ControllerCore", core)
    thread = threading.Thread(target=channel.serve, args=arguments, daemon=True)
    thread.start()
    yield made
    made.sock.shutdown(socket.SHUT_RDWR)
    thread.join(5)
    made.sock.close()
    assert not thread.is_alive()


def connected(listener: Listener) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(5)
    made.connect(listener.sock.getsockname())
    return made


def test_a_defect_ends_the_connection_that_meets_it_alone(
    core: Core, listener: Listener, capsys: pytest.CaptureFixture[str]
) -> None:
    with connected(listener) as one, connected(listener) as other:
        one.sendall(b"defect\n")
        assert one.recv(100) == b""
        other.sendall(b"hello\n")
        assert other.recv(100) == b'{"id":1,"x":"y"}\n'
    assert core.closed_ones
    assert "KeyError: 'a defect'" in capsys.readouterr().err, "the log says what is to be mended"


def test_a_client_that_does_not_read_hardly_delays_others(core: Core, listener: Listener) -> None:
    with connected(listener) as one, connected(listener) as other:
        one.sendall(b"much\n" * BURST)
        began = time.monotonic()
        other.sendall(b"hello\n")
        assert other.recv(100) == b'{"id":1,"x":"y"}\n'
        assert time.monotonic() - began < 2.0, "well below 5 s, on a machine that is busy"
        while one.recv(1 << 20):
            pass
    assert core.closed_ones


def test_no_file_descriptors_left_is_no_end(listener: Listener, capsys: pytest.CaptureFixture[str]) -> None:
    with connected(listener) as one:
        one.sendall(b"hello\n")
        assert one.recv(100)
        listener.left = 3
        with connected(listener) as other:
            other.sendall(b"hello\n")
            assert other.recv(100) == b'{"id":1,"x":"y"}\n'
    assert listener.left == 0 and listener.tries == 5, "it waited in between"
    assert capsys.readouterr().err.count("accepts no connections for now") == 1


def test_a_line_without_end_is_refused(core: Core, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "LINE_BYTES", 1 << 18)
    with connected(listener) as one, connected(listener) as other:
        one.sendall(b"x" * (1 << 18) + b"\n")
        assert one.recv(100) == b'{"id":1,"x":"y"}\n'
        with suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(100):
                one.sendall(b"x" * (1 << 16))
        with suppress(ConnectionResetError):
            assert b"a request is longer than 262144 bytes; send it in parts" in one.recv(1000)
            assert one.recv(100) == b""
        other.sendall(b"hello\n")
        assert other.recv(100) == b'{"id":1,"x":"y"}\n'
    assert core.closed_ones


def test_a_line_may_come_byte_by_byte(listener: Listener) -> None:
    with connected(listener) as one:
        for byte in b"hello\nhe":
            one.sendall(bytes([byte]))
        assert one.recv(100) == b'{"id":1,"x":"y"}\n'
        one.sendall(b"llo\n")
        assert one.recv(100) == b'{"id":1,"x":"y"}\n'


def answered(listener: Listener) -> bool:
    """Whether a new client is served."""
    with connected(listener) as client, suppress(BrokenPipeError, ConnectionResetError):
        client.sendall(b"hello\n")
        return client.recv(100) == b'{"id":1,"x":"y"}\n'
    return False


def test_too_many_clients_are_turned_away_and_the_others_served(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(channel, "MOST_CLIENTS", 2)
    with connected(listener) as one, connected(listener) as two, connected(listener) as third:
        assert third.recv(100) == b""
        for client in (one, two):
            client.sendall(b"hello\n")
            assert client.recv(100) == b'{"id":1,"x":"y"}\n'
    end = time.monotonic() + 5
    while not answered(listener):
        assert time.monotonic() < end, "the connections that were closed count still"
    assert "accepts no connections for now: [Errno 24] there are 2 connections already" in capsys.readouterr().err
