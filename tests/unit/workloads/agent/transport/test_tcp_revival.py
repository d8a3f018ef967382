"""Telling TCP that its path is back: what of it can be seen without root."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from workloads.agent.transport import tcp_revival


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
        with near, far:
            yield near, far


def test_a_connection_that_waits_for_nothing_is_left_alone(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[socket.socket] = []
    monkeypatch.setattr(tcp_revival, "_unreachable", told.append)
    pair[0].sendall(b"x" * 1000)
    tcp_revival.revive(pair[0])
    assert not told


def test_one_word_for_each_doubling_until_it_has_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    doublings, told = [4], list[object]()

    def unreachable(sock: object) -> None:
        told.append(sock)
        doublings[0] = 0 if len(told) == 3 else doublings[0] - 1

    monkeypatch.setattr(tcp_revival, "_doublings", lambda sock: doublings[0])
    monkeypatch.setattr(tcp_revival, "_unreachable", unreachable)
    tcp_revival.revive("a socket")  # type: ignore[arg-type]
    assert len(told) == 3


def test_what_is_not_acknowledged_is_counted(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    assert tcp_revival._unacknowledged(near) == 0 and tcp_revival._doublings(near) == 0
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    near.setblocking(False)
    sent = near.send(b"x" * (8 << 20))
    assert 0 < tcp_revival._unacknowledged(near) <= sent, "the other end does not read"


def test_the_word_is_an_icmp_message_about_the_first_segment_that_is_not_acknowledged(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[bytes, tuple[str, int]]] = []

    class Raw:
        def __init__(self, *kind: int) -> None:
            assert kind == (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)

        def __enter__(self) -> Raw:
            return self

        def __exit__(self, *_: object) -> None:
            return

        def sendto(self, message: bytes, to: tuple[str, int]) -> None:
            sent.append((message, to))

    near, far = pair
    ports = near.getsockname()[1], far.getsockname()[1]
    monkeypatch.setattr(tcp_revival, "_first_unacknowledged", lambda sock: 0xFFFF0001)
    monkeypatch.setattr(socket, "socket", Raw)
    tcp_revival._unreachable(near)
    ((message, to),) = sent
    assert to == ("127.0.0.1", 0)
    assert message[:2] == bytes((3, 1)), "destination unreachable: host unreachable"
    assert tcp_revival._checksum(message) == 0
    header, segment = message[8:28], message[28:]
    assert header[0] == 0x45 and header[9] == socket.IPPROTO_TCP
    assert header[12:20] == socket.inet_aton("127.0.0.1") * 2
    assert struct.unpack("!HHI", segment) == (*ports, 0xFFFF0001)


def test_the_checksum_is_that_of_rfc_1071() -> None:
    data = bytes.fromhex("0001f203f4f5f6f7")  # the example of its section 3
    assert tcp_revival._checksum(data) == ~0xDDF2 & 0xFFFF
