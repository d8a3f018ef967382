"""What frames in numbered streams say about a change of circuits, and the controller that asks for it."""

from __future__ import annotations

import contextlib
import math
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from commands.bench import NotMeasured, circuits
from commands.bench.bed import matching
from commands.bench.circuits import PORTS, OpenFlowPeer, Probe, followed, peers
from commands.bench.fabric import echo_request
from controllers.openflow.flows import TYPE_BARRIER_REPLY, TYPE_BARRIER_REQUEST, TYPE_ERROR, circuit_flow, header
from measure.live.probes import Frames


def test_matchings_are_perfect_and_share_no_circuit() -> None:
    even, odd = matching(PORTS, 0), matching(PORTS, 1)
    for pairs in (even, odd):
        assert sorted(port for pair in pairs for port in pair) == list(range(1, PORTS + 1))
    assert not {frozenset(pair) for pair in even} & {frozenset(pair) for pair in odd}


@pytest.mark.parametrize("shift", [0, 1])
def test_receivers_are_at_the_ends_of_the_circuits(shift: int) -> None:
    ends = {a: b for pair in matching(PORTS, shift) for a, b in (pair, pair[::-1])}
    for sender, receiver in enumerate(peers(shift)):
        assert ends[2 * sender + 1] == 2 * receiver + 2


def train(old: int, lost: int, count: int = 100) -> list[Probe]:
    """Frames 0.1 ms apart of which the first ``old`` went the way of shift 0, and the next ``lost`` nowhere."""
    ways = [peers(0)] * old + [(-1,) * 32] * lost + [peers(1)] * (count - old - lost)
    return [Probe(number * 1e-4, number % 32, way[number % 32]) for number, way in enumerate(ways)]


def test_packets_follow_from_the_first_frame_after_the_last_that_did_not() -> None:
    seen = followed(train(old=10, lost=3), 0.0, 0.00115, 1)
    assert seen.seconds == pytest.approx(0.0013)
    assert (seen.lost, seen.late) == (3, 1)


def test_frames_that_followed_at_once() -> None:
    assert followed(train(0, 0), -5e-5, 0.0, 1) == (pytest.approx(5e-5), 0, 0)


def test_frames_that_never_follow() -> None:
    with pytest.raises(NotMeasured, match="did not follow"):
        followed(train(old=100, lost=0), 0.0, 0.001, 1)
    with pytest.raises(NotMeasured, match="did not follow"):
        followed([], 0.0, 0.001, 1)


def test_a_train_is_split_at_the_requests() -> None:
    sent = [number * 0.001 for number in range(20)]
    received = {"3": [*range(5), *range(14, 20)], "5": [7, 8, 9, 10, 11]}
    parts = [part.dark_time() for part in Frames(sent, received).split([0.002, 0.010])]
    assert [(part.first_lost_t, part.up_t, part.lost) for part in parts] == [
        (pytest.approx(0.005), pytest.approx(0.007), 2),
        (pytest.approx(0.012), pytest.approx(0.014), 2),
    ]


def test_a_change_while_no_frame_was_sent_is_as_unsure_as_that_time_is_long() -> None:
    (part,) = Frames([0.0, 0.1, 0.6, 0.7], {"3": [0, 1, 2, 3]}).split([0.2])
    assert part.unsure_s(part.dark_time()) == pytest.approx(0.5)


def test_a_dark_time_is_as_sure_as_its_ends() -> None:
    sent = [0.0, 0.1, 0.2, 0.3, 0.4, 0.9, 1.0, 1.1]
    seen = (
        ([0, 1, 7], 0.2),
        ([0, 1, 2, 6, 7], 0.2),
        ([0, 1, 2, 5, 6, 7], 0.6),
        (range(8), 0.5),
        ([4], math.inf),
        ([0, 1], math.inf),
    )
    for arrived, off_s in seen:
        frames = Frames(sent, {"3": arrived})
        assert frames.unsure_s(frames.dark_time()) == pytest.approx(off_s)
    one = Frames([0.0], {"3": [0]})
    assert one.unsure_s(one.dark_time()) == math.inf


def test_the_checksum_of_an_echo_request() -> None:
    request = echo_request(0xFFF1, 319)
    assert len(request) == 64
    total = sum(struct.unpack("!32H", request))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF


# ---- the controller, with a switch that is a thread of the test ------------------------------------------------------


HELLO, ECHO_REQUEST, ECHO_REPLY = 0, 2, 3
Answer = Callable[[socket.socket, int], None]


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenFlowPeer]:
    monkeypatch.setattr(circuits, "inside", lambda _: contextlib.nullcontext())
    with OpenFlowPeer(-1, ("127.0.0.1", 0), 0.5) as made:
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
