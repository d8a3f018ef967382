"""Notices of acknowledgements over the loopback, and telling TCP that its path is back (as far as not root sees it)."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from workloads.agent.transport import sockets
from workloads.agent.transport.sockets import NOTICE, STAMP_BYTES, ask_for_times, receive_time, take_notices

PATIENCE_S = 5.0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        far, _ = listener.accept()
        with far:
            yield near, far


def readable(sock: socket.socket, seconds: float) -> bool:
    return bool(select.select([sock], [], [], seconds)[0])


def test_an_acknowledgement_wakes_who_asked_for_the_notice(pair: tuple[socket.socket, socket.socket]) -> None:
    near, _ = pair
    ask_for_times(near)
    near.sendmsg([b"head", bytes(10_000)], NOTICE)
    assert readable(near, PATIENCE_S)
    assert take_notices(near)
    assert not take_notices(near) and not readable(near, 0.0), "once"


def test_nobody_is_woken_who_did_not_ask(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    ask_for_times(near)
    near.sendmsg([bytes(10_000)])
    assert far.recv(10_000)
    assert not readable(near, 0.05) and not take_notices(near)


def test_a_notice_is_no_data_and_data_no_notice(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    ask_for_times(near)
    near.sendmsg([bytes(100)], NOTICE)
    assert readable(near, PATIENCE_S) and take_notices(near)
    far.sendall(b"answer")
    assert readable(near, PATIENCE_S)
    assert not take_notices(near)
    assert near.recv(100) == b"answer"


def test_a_peer_that_does_not_read_acknowledges_what_has_room(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    near.setblocking(False)
    ask_for_times(near)
    written = near.sendmsg([bytes(1 << 20)], NOTICE)
    assert not readable(near, 0.05), "the last byte that was written is not there"
    while written > 0:
        assert readable(far, PATIENCE_S)
        written -= len(far.recv(1 << 20))
    assert readable(near, PATIENCE_S) and take_notices(near)


def stamped(near: socket.socket, far: socket.socket, unread_s: float) -> tuple[float, float | None, float]:
    """The times before bytes are sent, of their arrival, and after; they are read so much later."""
    before = time.monotonic()
    far.sendall(b"bytes")
    assert readable(near, PATIENCE_S)
    after = time.monotonic()
    time.sleep(unread_s)
    _, control, _, _ = near.recvmsg(100, STAMP_BYTES)
    return before, receive_time(control), after


def test_the_time_of_arrival_is_not_known_where_nobody_asked_for_it(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    assert stamped(near, far, 0.0)[1] is None
    ask_for_times(far)
    assert stamped(near, far, 0.0)[1] is None
    no_time = struct.pack("6q", *[0] * 6)
    assert receive_time([(socket.SOL_SOCKET, sockets._SO_TIMESTAMPING, no_time)]) is None


def test_a_connection_that_waits_for_nothing_is_left_alone(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[socket.socket] = []
    monkeypatch.setattr(sockets, "_unreachable", told.append)
    pair[0].sendall(b"x" * 1000)
    sockets.revive(pair[0])
    assert not told


def test_one_word_for_each_doubling_until_it_has_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    doublings, told = [4], list[object]()

    def unreachable(sock: object) -> None:
        told.append(sock)
        doublings[0] = 0 if len(told) == 3 else doublings[0] - 1

    monkeypatch.setattr(sockets, "_doublings", lambda sock: doublings[0])
    monkeypatch.setattr(sockets, "_unreachable", unreachable)
    sockets.revive("a socket")  # type: ignore[arg-type]
    assert len(told) == 3


def test_what_is_not_acknowledged_is_counted(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    assert sockets.unacknowledged(near) == 0 and sockets._doublings(near) == 0
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    near.setblocking(False)
    sent = near.send(b"x" * (8 << 20))
    assert 0 < sockets.unacknowledged(near) <= sent, "the other end does not read"


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
    monkeypatch.setattr(sockets, "_first_unacknowledged", lambda sock: 0xFFFF0001)
    monkeypatch.setattr(socket, "socket", Raw)
    sockets._unreachable(near)
    ((message, to),) = sent
    assert to == ("127.0.0.1", 0)
    assert message[:2] == bytes((3, 1)), "destination unreachable: host unreachable"
    assert sockets._checksum(message) == 0
    header, segment = message[8:28], message[28:]
    assert header[0] == 0x45 and header[9] == socket.IPPROTO_TCP
    assert header[12:20] == socket.inet_aton("127.0.0.1") * 2
    assert struct.unpack("!HHI", segment) == (*ports, 0xFFFF0001)


def test_the_checksum_is_that_of_rfc_1071() -> None:
    data = bytes.fromhex("0001f203f4f5f6f7")  # the example of its section 3
    assert sockets._checksum(data) == ~0xDDF2 & 0xFFFF
