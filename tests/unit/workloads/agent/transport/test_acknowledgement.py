"""The kernel's word that something is acknowledged, over the loopback."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from workloads.agent.transport.acknowledgement import NOTICE, allow_notices, take_notices

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
    allow_notices(near)
    near.sendmsg([b"head", bytes(10_000)], NOTICE)
    assert readable(near, PATIENCE_S)
    assert take_notices(near)
    assert not take_notices(near) and not readable(near, 0.0), "once"


def test_nobody_is_woken_who_did_not_ask(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    allow_notices(near)
    near.sendmsg([bytes(10_000)])
    assert far.recv(10_000)
    assert not readable(near, 0.05) and not take_notices(near)


def test_a_notice_is_no_data_and_data_no_notice(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    allow_notices(near)
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
    allow_notices(near)
    written = near.sendmsg([bytes(1 << 20)], NOTICE)
    assert not readable(near, 0.05), "the last byte that was written is not there"
    while written > 0:
        assert readable(far, PATIENCE_S)
        written -= len(far.recv(1 << 20))
    assert readable(near, PATIENCE_S) and take_notices(near)
