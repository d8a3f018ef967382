from __future__ import annotations

import os
import socket

import pytest

from railyard.remote.connection import SSHD_VARIABLE, watch_connection


@pytest.fixture
def pair() -> tuple[socket.socket, socket.socket]:
    """A listening socket and a client that is connected to it."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, socket.create_connection(listener.getsockname())


def test_the_connection_of_the_login_is_watched_by_the_kernel(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, client = pair
    monkeypatch.setenv(SSHD_VARIABLE, str(os.getpid()))
    with listener, client:
        assert watch_connection()
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 2
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 8000
    assert SSHD_VARIABLE not in os.environ


@pytest.mark.parametrize("given", [None, "", "x", "0", "-1", "4194305"])
def test_a_process_without_a_login_watches_nothing(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SSHD_VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(SSHD_VARIABLE, given)
    assert not watch_connection()
