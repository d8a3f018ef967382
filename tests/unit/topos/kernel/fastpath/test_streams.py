from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fast_path.doubles import turn

from railyard.loop import Loop
from topos.kernel.fastpath import streams
from topos.kernel.fastpath.streams import BufferedStream
from topos.kernel.relay import connect_unix


class Line:
    """A stream and the peer at its other end."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.peer, own = socket.socketpair()
        self.peer.setblocking(False)
        self.came, self.ends = bytearray(), 0
        self.bad: Exception | None = None
        self.stream = BufferedStream(self.loop, own, self._received, self._ended)
        self.own = own
        self.on_received: Callable[[], object] = int

    def _received(self, buffer: bytearray) -> None:
        self.came += buffer
        self.on_received()
        buffer.clear()
        if self.bad is not None:
            raise self.bad

    def _ended(self) -> None:
        self.ends += 1

    def drain(self) -> bytes:
        """What the peer can read by and by."""
        found = bytearray()
        while True:
            turn(self.loop, 1)
            try:
                data = self.peer.recv(1 << 20)
            except BlockingIOError:
                return bytes(found)
            if not data:
                return bytes(found)
            found += data


@pytest.fixture
def line() -> Iterator[Line]:
    one = Line()
    yield one
    one.peer.close()
    one.stream.close()
    one.loop.close()


def test_reading_takes_what_is_there_and_says_how_much(line: Line) -> None:
    assert line.stream.read() == 0
    line.peer.send(b"12345")
    assert line.stream.read() == 5 and line.came == b"12345"


def test_a_slow_peer_gets_everything_in_order_and_nobody_waits(line: Line) -> None:
    parts = [bytes([n]) * 300_000 for n in range(5)]
    for part in parts:
        line.stream.send(part)
    assert line.drain() == b"".join(parts)
    began = time.monotonic()
    line.loop.turn(began + 0.02)
    assert time.monotonic() >= began + 0.02, "the loop does not wake up for a peer that has everything"


def test_a_peer_that_does_not_read_is_cut_off(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_MOST_BUFFERED_BYTES", 1 << 20)
    sent = 0
    while line.stream.open and sent < 8 << 20:
        line.stream.send(bytes(1 << 18))
        sent += 1 << 18
    assert not line.stream.open and line.ends == 1 and sent < 3 << 20


def test_a_peer_that_closes_ends_the_stream_once(line: Line) -> None:
    line.peer.send(b"last words")
    line.peer.close()
    turn(line.loop)
    assert line.came == b"last words" and not line.stream.open and line.ends == 1
    line.stream.close()
    line.stream.finish()
    line.stream.send(b"nobody")
    assert line.ends == 1 and not line.loop.watched


def test_last_words_are_taken_before_the_end(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_CHUNK_BYTES", 5)
    line.peer.send(b"12345")
    line.peer.close()
    taken: list[bool] = []
    line.on_received = lambda: taken.append(line.ends == 0)
    turn(line.loop)
    assert line.came == b"12345" and taken == [True] and line.ends == 1


def test_a_peer_that_closes_while_bytes_wait_ends_the_stream(line: Line) -> None:
    line.stream.send(bytes(1 << 20))
    line.peer.close()
    turn(line.loop)
    assert not line.stream.open and line.ends == 1


def test_sending_to_a_peer_that_is_gone_ends_the_stream(line: Line) -> None:
    line.peer.close()
    line.stream.send(b"x")
    assert not line.stream.open and line.ends == 1


@pytest.mark.parametrize("error", [ValueError("not the protocol"), struct.error("cut short"), IndexError("cut short")])
def test_a_peer_with_another_protocol_is_cut_off(line: Line, error: Exception) -> None:
    line.bad = error
    line.peer.send(b"GET / HTTP/1.1")
    turn(line.loop)
    assert not line.stream.open and line.ends == 1


def test_finishing_sends_what_waits_and_takes_no_more(line: Line) -> None:
    line.stream.send(bytes(1 << 20))
    line.stream.finish()
    line.stream.send(b"too late")
    line.peer.send(b"too late as well")
    assert line.stream.open
    assert line.drain() == bytes(1 << 20)
    turn(line.loop)
    assert not line.stream.open and line.ends == 1 and not line.came
    assert line.own.fileno() == -1


def test_finishing_closes_at_once_if_nothing_waits(line: Line) -> None:
    line.stream.finish()
    assert not line.stream.open and line.ends == 1


def test_a_connection_that_is_not_made_leaves_no_descriptor(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        connect_unix(tmp_path / "nobody", 1)
    with pytest.raises(OSError, match="too long"):
        connect_unix(tmp_path / ("x" * 120), 1)
