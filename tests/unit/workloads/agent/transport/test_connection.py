"""One connection without a network: what goes out while a circuit has light, and what waits to be taken in."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railyard.errors import AgentError
from railyard.scale import goodput_share
from topos.plan import FabricPlan, HostPort, SwitchLink, SwitchPlan
from workloads.agent.checkpoint import Store, fetch
from workloads.agent.transport import connection as connection_module
from workloads.agent.transport.connection import PeerConnection, Transport
from workloads.agent.transport.message import HEADER_BYTES, Header, Outgoing
from workloads.agent.transport.pacing import Bucket, UpWindow
from workloads.rank.flows import Flow
from workloads.rank.paths import PeerKey
from workloads.rank.slot_sender import LATE_S

KEY: PeerKey = ("scale-out", 0, 1, 0)
FLOW = Flow(0, 0, 0)
MTU = 9000


class FakeSocket:
    """Takes up to ``most`` bytes at a time and remembers them."""

    def __init__(self, most: int = 1 << 30) -> None:
        self.most, self.taken = most, bytearray()
        self.noticed: list[bool] = []
        self.ended: list[bool] = []
        """Whether each write had the flag MSG_EOR."""

    def setsockopt(self, *_: object) -> None:
        return

    def sendmsg(self, parts: list[Any], ancillary: object = (), flags: int = 0) -> int:
        self.noticed.append(bool(ancillary))
        self.ended.append(bool(flags & socket.MSG_EOR))
        before = len(self.taken)
        self.taken += b"".join(bytes(part) for part in parts)[: self.most]
        return len(self.taken) - before


@pytest.fixture(autouse=True)
def _everything_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    for question in ("unacknowledged", "unsent"):
        monkeypatch.setattr(connection_module, question, lambda sock: 0)


@dataclass
class Inbox:
    """Takes what is of a flow that was opened; remembers everything."""

    open: set[Flow] = field(default_factory=lambda: {FLOW})
    written_: list[object] = field(default_factory=list)
    arrived_: list[tuple[int, bytes]] = field(default_factory=list)
    asked: int = 0
    _into: bytearray = field(default_factory=bytearray)

    def may_receive(self, connection: PeerConnection, header: Header) -> bool:
        self.asked += 1
        return header.flow in self.open

    def expect(self, connection: PeerConnection, header: Header) -> memoryview | None:
        assert header.flow in self.open
        self._into = bytearray(header.payload_bytes)
        return memoryview(self._into)

    def arrived(self, connection: PeerConnection, header: Header) -> None:
        self.arrived_.append((header.transfer, bytes(self._into)))

    def written(self, connection: PeerConnection, token: object) -> None:
        self.written_.append(token)


def outgoing(most: int = 1 << 30, rate_mbps: float = 50.0) -> tuple[PeerConnection, FakeSocket, Inbox, Bucket]:
    """A connection that is connected, what its socket took, and the mirror of its port's bucket."""
    sock, inbox, bucket = FakeSocket(most), Inbox(), Bucket(rate_mbps, MTU)
    return PeerConnection(cast(socket.socket, sock), KEY, bucket, inbox, connected=True, mtu=MTU), sock, inbox, bucket


def message(size: int, token: object = None) -> Outgoing:
    head = Header("data", FLOW, 0, size).pack()
    return Outgoing(head, memoryview(bytes(index % 251 for index in range(size))), token=token)


def goodput(bucket: Bucket) -> float:
    return bucket.bytes_per_s * goodput_share(MTU)


# ---- light -----------------------------------------------------------------------------------------------------------


def test_the_kernel_is_asked_for_a_notice_only_where_somebody_waits_for_it() -> None:
    connection, sock, _, _ = outgoing(most=1000)
    for notice in (False, True):
        connection.send(Outgoing(b"head", memoryview(bytes(1996)), notice=notice))
    connection.flush(1.0)
    assert sock.noticed == [False, False, True, True]


def test_a_message_that_fits_into_the_light_goes_in_it() -> None:
    connection, sock, inbox, bucket = outgoing()
    bucket.sent(0.9, 2 * bucket.burst_s * bucket.bytes_per_s)  # nothing saved up
    fits = int((0.1 - LATE_S) * goodput(bucket)) - HEADER_BYTES
    connection.send(message(fits, "a"))
    connection.allow_until(UpWindow(1.0, 1.1))
    connection.flush(1.0)
    assert inbox.written_ == ["a"] and len(sock.taken) == fits + HEADER_BYTES


def test_what_is_left_goes_in_the_next_light_and_not_before() -> None:
    connection, sock, inbox, bucket = outgoing()
    connection.send(message(2_000_000, "a"))
    connection.allow_until(UpWindow(1.0, 1.1))
    connection.flush(1.0)
    first = len(sock.taken)
    assert 0.9 < first / (0.1 * goodput(bucket)) <= 1.0 and inbox.written_ == []
    for now in (1.01, 1.09, 1.2, 1.9):
        assert connection.sends_at > now and connection.events == select.EPOLLIN
        connection.flush(now)
    assert len(sock.taken) == first and connection.sends_at == float("inf")
    connection.allow_until(UpWindow(2.0, 2.1))
    assert connection.sends_at <= 2.0
    connection.flush(2.0)
    assert len(sock.taken) == pytest.approx(2 * first, abs=2)
    connection.allow_until(UpWindow(3.0, 4.0))
    connection.flush(3.0)
    assert inbox.written_ == ["a"] and sock.ended == [False, False, True]
    assert bytes(sock.taken[HEADER_BYTES:]) == bytes(message(2_000_000).payload)


def test_a_light_that_ended_since_somebody_looked_at_the_clock_carries_nothing() -> None:
    sock, late = FakeSocket(), iter((1.0, 1.05, 1.2))
    connection = PeerConnection(
        cast(socket.socket, sock), KEY, Bucket(50.0, MTU), Inbox(), connected=True, mtu=MTU, clock=late.__next__
    )
    connection.send(message(20_000))
    connection.allow_until(UpWindow(1.0, 1.1))
    connection.flush(1.0)
    assert len(sock.taken) == 20_000 + HEADER_BYTES
    connection.send(message(100))
    connection.send(message(100))
    connection.flush(1.0)
    assert len(sock.taken) == 20_100 + 2 * HEADER_BYTES


def test_a_light_without_an_end_carries_what_a_short_one_left() -> None:
    connection, sock, inbox, _ = outgoing()
    connection.send(message(2_000_000, "a"))
    connection.allow_until(UpWindow(1.0, 1.1))
    connection.flush(1.0)
    assert inbox.written_ == []
    connection.allow_until(None)
    assert connection.sends_at <= 5.0
    connection.flush(5.0)
    assert inbox.written_ == ["a"] and len(sock.taken) == 2_000_000 + HEADER_BYTES


def test_a_rest_too_short_for_a_write_is_left() -> None:
    connection, sock, _, bucket = outgoing()
    connection.send(message(100_000))
    connection.allow_until(UpWindow(1.0, 1.0 + LATE_S + 4000 / goodput(bucket)))
    connection.flush(1.0)
    assert not sock.taken
    connection.send(message(100))
    connection.allow_until(UpWindow(2.0, 2.0 + LATE_S + 4200 / goodput(bucket)))
    connection.flush(2.0)
    assert 0 < len(sock.taken) <= 4200


@settings(deadline=None)
@given(
    rate_mbps=st.floats(5, 500),
    sizes=st.lists(st.integers(1, 400_000), min_size=1, max_size=6),
    most=st.integers(1000, 1 << 20),
    lights=st.lists(st.tuples(st.floats(0, 0.05), st.floats(0.001, 0.3)), min_size=1, max_size=6),
    looks=st.lists(st.floats(-0.01, 1.1), min_size=1, max_size=5),
)
def test_never_more_than_the_light_carries_and_nothing_is_lost(
    rate_mbps: float, sizes: list[int], most: int, lights: list[tuple[float, float]], looks: list[float]
) -> None:
    connection, sock, inbox, bucket = outgoing(most, rate_mbps)
    messages = [message(size, number) for number, size in enumerate(sizes)]
    for one in messages:
        connection.send(one)
    wanted = b"".join(one.head + bytes(one.payload) for one in messages)
    now = 10.0
    for dark, length in lights:
        began = now + dark
        connection.allow_until(UpWindow(began, began + length))
        before = len(sock.taken)
        for look in sorted(looks):
            now = began + max(0.0, look) * length
            taken = len(sock.taken)
            connection.flush(now)
            if len(sock.taken) > taken:
                assert now + bucket.backlog_s(now) <= began + length + 1e-6, "on the wire before the end"
        assert len(sock.taken) - before <= length * goodput(bucket)
        now = began + max(length, now - began)
    assert bytes(sock.taken) == wanted[: len(sock.taken)]
    assert inbox.written_ == list(range(len(inbox.written_)))
    connection.allow_until(UpWindow(now + 10.0, now + 10_000.0))
    for _ in range(len(wanted) // most + len(sizes) + 1):
        connection.flush(now + 10.0)
    assert bytes(sock.taken) == wanted and inbox.written_ == list(range(len(sizes)))


# ---- calls -----------------------------------------------------------------------------------------------------------


def test_a_call_is_answered_when_the_kernel_says_so_and_not_when_somebody_looks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as sock:
        sock.setblocking(False)
        connection = PeerConnection(sock, KEY, Bucket(1000.0), Inbox(), connected=False, mtu=MTU)
        assert not connection.answered
        sock.connect_ex(listener.getsockname())
        listener.accept()[0].close()
        assert connection.answered and not connection.connected, "it would be wrong to call again"
        connection.check_connected()
        assert connection.connected


# ---- what waits to be taken in ---------------------------------------------------------------------------------------


PATIENCE_S = 10.0


@pytest.fixture
def wires() -> Iterator[tuple[PeerConnection, Inbox, socket.socket]]:
    """A connection, who its messages are for, and the other end."""
    with far_end() as found:
        yield found


def write(sock: socket.socket, content: bytes) -> int:
    """Send what the kernel takes at once; returns the number of bytes."""
    try:
        return sock.send(content, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return 0


@contextmanager
def far_end() -> Iterator[tuple[PeerConnection, Inbox, socket.socket]]:
    """A connection, who its messages are for, and the other end."""
    listener = socket.create_server(("127.0.0.1", 0))
    far = socket.create_connection(listener.getsockname())
    near, _ = listener.accept()
    near.setblocking(False)
    inbox = Inbox()
    yield PeerConnection(near, KEY, Bucket(1000.0), inbox, connected=True, mtu=MTU), inbox, far
    for sock in (near, far, listener):
        sock.close()


def data(transfer: int, content: bytes, flow: Flow = FLOW) -> bytes:
    return Header("data", flow, transfer, len(content)).pack() + content


def receive(connection: PeerConnection, until: int, inbox: Inbox) -> None:
    """Read until so many messages are here (loopback delivers at once, but not in one piece)."""
    for now in range(1000):
        connection.receive(float(now))
        if len(inbox.arrived_) >= until:
            return


def test_a_message_that_nobody_awaits_yet_waits_with_all_behind_it(
    wires: tuple[PeerConnection, Inbox, socket.socket],
) -> None:
    connection, inbox, far = wires
    later = Flow(0, 1, 0)
    far.sendall(data(1, b"one") + data(2, b"two", later) + data(3, b"three"))
    receive(connection, 1, inbox)
    assert inbox.arrived_ == [(1, b"one")]
    assert connection.events == 0, "the kernel keeps the rest"
    asked = inbox.asked
    connection.receive(5.0)
    assert inbox.asked == asked
    connection.resume(6.0)
    assert len(inbox.arrived_) == 1 and connection.events == 0, "not yet"
    inbox.open.add(later)
    connection.resume(7.0)
    receive(connection, 3, inbox)
    assert inbox.arrived_ == [(1, b"one"), (2, b"two"), (3, b"three")]
    assert connection.events == select.EPOLLIN and connection.last_progress >= 7.0


def test_a_message_of_no_bytes_may_wait_too(wires: tuple[PeerConnection, Inbox, socket.socket]) -> None:
    connection, inbox, far = wires
    later = Flow(0, 1, 0)
    far.sendall(data(1, b"", later) + data(2, b"two"))
    for now in range(10):
        connection.receive(float(now))
    assert connection.events == 0 and not inbox.arrived_
    inbox.open.add(later)
    connection.resume(10.0)
    receive(connection, 2, inbox)
    assert inbox.arrived_ == [(1, b""), (2, b"two")]


@settings(deadline=None, max_examples=30)
@given(sizes=st.lists(st.integers(0, 3 << 20), min_size=1, max_size=4), pieces=st.lists(st.integers(1, 1 << 21)))
def test_whatever_is_missing_the_last_byte_of_a_message_wakes_its_receiver(sizes: list[int], pieces: list[int]) -> None:
    with far_end() as (connection, inbox, far):
        stream = b"".join(data(number, bytes(size)) for number, size in enumerate(sizes))
        ends = list(accumulate(HEADER_BYTES + size for size in sizes))
        cuts = sorted({*ends, *(cut for cut in accumulate(pieces) if cut < ends[-1])})
        sent = 0
        for cut in cuts:
            while sent < cut:
                sent += write(far, stream[sent:cut])
                while select.select([connection], [], [], 0.0)[0]:
                    connection.receive(1.0)
            if cut in ends:
                while len(inbox.arrived_) <= ends.index(cut):
                    assert select.select([connection], [], [], PATIENCE_S)[0], "it sleeps though all is here"
                    connection.receive(1.0)
        assert [(number, len(content)) for number, content in inbox.arrived_] == list(enumerate(sizes))


def test_to_resume_what_does_not_wait_changes_nothing(wires: tuple[PeerConnection, Inbox, socket.socket]) -> None:
    connection, inbox, far = wires
    connection.resume(1.0)
    head = data(1, b"content")
    far.sendall(head[:10])
    connection.receive(2.0)
    connection.resume(3.0)
    far.sendall(head[10:])
    receive(connection, 1, inbox)
    assert inbox.arrived_ == [(1, b"content")]


def switch(rank: int) -> SwitchPlan:
    port = HostPort(1, f"g{rank}", rank, 0, "nowhere0", f"02:00:00:00:00:{rank:02x}", f"10.0.0.{rank + 1}/24", 50.0)
    return SwitchPlan(f"n{rank}", 0x40000 + rank, "electrical", "rail", (port,))


def plan(links: tuple[SwitchLink, ...]) -> FabricPlan:
    return FabricPlan("electrical-torus", 3, 1, 1, 9000, tuple(switch(r) for r in range(3)), links)


def connect(fabric: FabricPlan) -> str:
    """What becomes of a connection to a rank behind another switch (the interface does not exist)."""
    try:
        Transport(fabric, 0, Inbox()).connection(("scale-out", 0, 2, 0), 0.0)
    except (AgentError, OSError) as error:
        return str(error)
    return ""


def test_ranks_behind_other_switches_are_reached_where_links_join_them() -> None:
    assert "which this fabric does not have" in connect(plan(()))
    joined = connect(plan((SwitchLink("n0", 2, "n1", 3, 50.0),)))
    assert joined and "which this fabric does not have" not in joined, "only the interface is missing"


def test_a_copy_needs_a_front_end(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="rank 0 is to copy a checkpoint over the front-end network, but the fabric"):
        fetch(plan(()), 0, 1, Store(tmp_path, "job"), "job", 4, 0.1)
