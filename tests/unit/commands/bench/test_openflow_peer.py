"""The controller of the benchmark of swaps, with a switch that is a thread of the test."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from commands.bench import NotMeasured, openflow_peer
from commands.bench.openflow_peer import OpenFlowPeer
from controllers.openflow.flows import TYPE_BARRIER_REPLY, TYPE_BARRIER_REQUEST, TYPE_ERROR, circuit_flow, header

HELLO, ECHO_REQUEST, ECHO_REPLY = 0, 2, 3
Answer = Callable[[socket.socket, int], None]


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenFlowPeer]:
    monkeypatch.setattr(openflow_peer, "inside", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(openflow_peer, "_PATIENCE_S", 0.5)
    with OpenFlowPeer(-1, ("127.0.0.1", 0)) as made:
        yield made


def switch(address: tuple[str, int], answer: Answer) -> list[int]:
    """Greet, read up to a barrier request, and answer it; returns the types of all messages read."""
    with socket.create_connection(address) as sock, sock.makefile("rb") as stream:
        sock.sendall(header(HELLO, 0, 0))
        kinds: list[int] = []
        while True:
            head = stream.read(8)
            if not head:
                return kinds
            kinds.append(head[1])
            stream.read(int.from_bytes(head[2:4], "big") - 8)
            if head[1] == TYPE_BARRIER_REQUEST:
                answer(sock, int.from_bytes(head[4:8], "big"))


def changed(peer: OpenFlowPeer, answer: Answer) -> tuple[tuple[float, float], list[int]]:
    with ThreadPoolExecutor() as pool:
        read = pool.submit(switch, peer.address, answer)
        try:
            peer.wait()
            times = peer.change([circuit_flow(1, 2), circuit_flow(2, 1)])
        finally:
            peer.close()
        return times, read.result(10)


def test_the_reply_to_the_last_barrier_ends_a_change(peer: OpenFlowPeer) -> None:
    def answer(sock: socket.socket, xid: int) -> None:
        sock.sendall(header(TYPE_BARRIER_REPLY, xid - 1, 0) + header(ECHO_REQUEST, 99, 0))
        reply = header(TYPE_BARRIER_REPLY, xid, 0)
        sock.sendall(reply[:3])
        sock.sendall(reply[3:])

    (began, replied), kinds = changed(peer, answer)
    assert began < replied
    assert (kinds[0], kinds[-1]) == (HELLO, ECHO_REPLY)
    assert kinds[1:6] == [33, 34, 34, 33, TYPE_BARRIER_REQUEST], "one bundle of two flows, then the barrier"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda sock, xid: sock.sendall(header(TYPE_ERROR, xid, 4) + bytes([0, 17, 0, 8])), "with error 00110008"),
        (lambda sock, xid: None, "did not answer a change within"),
        (lambda sock, xid: sock.shutdown(socket.SHUT_RDWR), "closed the connection"),
    ],
)
def test_a_change_without_a_reply_is_not_measured(peer: OpenFlowPeer, answer: Answer, why: str) -> None:
    with pytest.raises(NotMeasured, match=why):
        changed(peer, answer)


def test_a_switch_that_never_comes(peer: OpenFlowPeer) -> None:
    with pytest.raises(NotMeasured, match="no switch connected"):
        peer.wait()
