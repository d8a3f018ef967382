"""The thread of the job channel serves all other clients whatever one of them does."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator
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
