"""TCP whose data was lost in the dark: told that its path is back it sends at once, and else sleeps on for long."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress

import pytest

from experiments.session import Session
from experiments.settings import PacketSettings
from topos.kernel.namespaces import inside
from topos.plan import HostPort
from topos.rails import RailTopo
from workloads.agent.transport.sockets import revive

pytestmark = pytest.mark.root

DOUBLINGS = 4
"""Of a time-out of some 50 ms (``topos.kernel.tuning.rto_min_ms``): the next attempt is 0.8 s away."""
SLEEPS_S = 0.3
"""At least so much sooner comes what was told."""
_TCP_INFO_BACKOFF = 4
PAYLOAD = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(PacketSettings(), RailTopo(servers=2, gpus=1, ports=1, rate_mbps=100, fabric="ocs")) as running:
        yield running


def light(session: Session, on: bool) -> None:
    """The circuit between the two hosts, or none."""
    session.call("rewire", switch="rail0", circuits=[[1, 2]] if on else [], update="overwrite", delay_s=0.0)


def connections(
    session: Session, stack: ExitStack, count: int, room_bytes: int = 0
) -> list[tuple[socket.socket, socket.socket]]:
    """Connected sockets of the first host, bound to its port as those of agents are, and their far ends, which hold
    ``room_bytes`` until they are read (0: as much as others).
    """
    ports: list[HostPort] = [session.plan.rail_of(rank).port(rank, 0) for rank in (0, 1)]
    here, there = session.netns_fds()
    with inside(there):
        listener = stack.enter_context(socket.create_server((address(ports[1]), 0)))
    if room_bytes:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room_bytes)
    pairs = []
    for _ in range(count):
        with inside(here):
            near = stack.enter_context(socket.socket())
        near.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, ports[0].interface.encode())
        near.settimeout(5)
        near.connect(listener.getsockname())
        far, _ = listener.accept()
        far.settimeout(10)
        pairs.append((near, stack.enter_context(far)))
    return pairs


def address(port: HostPort) -> str:
    return port.ip.split("/")[0]


def backoff(sock: socket.socket) -> int:
    """How often TCP has doubled its time-out."""
    return int(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[_TCP_INFO_BACKOFF])


def read_all(sock: socket.socket) -> bytes:
    data = b""
    while len(data) < len(PAYLOAD):
        data += sock.recv(1 << 16)
    return data


@pytest.mark.timed(late_ms=20)
def test_what_was_lost_in_the_dark_comes_with_the_light_and_not_after_the_next_time_out(session: Session) -> None:
    with ExitStack() as stack:
        light(session, True)
        (told, told_far), (left, left_far) = connections(session, stack, 2)
        light(session, False)
        for sock in (told, left):
            sock.sendall(PAYLOAD)
        fall_asleep([told, left])
        time.sleep(0.2)
        light(session, True)
        began = time.monotonic()
        with inside(session.netns_fds()[0]):
            revive(told)
        assert read_all(told_far) == PAYLOAD
        came_s = time.monotonic() - began
        assert read_all(left_far) == PAYLOAD
        slept_s = time.monotonic() - began
    assert came_s < 0.1, "one time-out that is not doubled, at most"
    assert slept_s > came_s + SLEEPS_S


@pytest.mark.beside
def test_nothing_passes_once_a_circuit_was_taken_down_by_hand(session: Session) -> None:
    near, far = (session.plan.rail_of(rank).port(rank, 0) for rank in (0, 1))
    here, there = session.netns_fds()
    with inside(there):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inside(here):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender, receiver:
        receiver.bind((address(far), 0))
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, near.interface.encode())
        sender.connect(receiver.getsockname())
        for _ in range(10):
            light(session, True)
            receiver.settimeout(5)
            sender.send(b"lit")
            assert receiver.recv(10) == b"lit"
            light(session, False)
            receiver.settimeout(0.02)
            sender.send(b"dark")
            with pytest.raises(TimeoutError):
                receiver.recv(10)


def fall_asleep(socks: Sequence[socket.socket], doublings: int = DOUBLINGS) -> None:
    """Return when all have just tried again in vain, and will for long not do so."""
    end = time.monotonic() + 10
    while min(map(backoff, socks)) < doublings:
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.timed(late_ms=20)
def test_room_that_nobody_heard_of_in_the_dark_is_asked_for_in_the_light(session: Session) -> None:
    with ExitStack() as stack:
        light(session, True)
        (told, told_far), (left, left_far) = connections(session, stack, 2, room_bytes=1 << 16)
        for sock in (told, left):
            sock.setblocking(False)
            sock.send(bytes(4 << 20))
        fall_asleep([told, left], doublings=2)
        light(session, False)
        for sock in (told_far, left_far):
            sock.setblocking(False)
            drain(sock)
        light(session, True)
        began = time.monotonic()
        with inside(session.netns_fds()[0]):
            revive(told)
        came_s = wait_for_data(told_far) - began
        slept_s = wait_for_data(left_far) - began
    assert came_s < 0.1
    assert slept_s > came_s + SLEEPS_S


def drain(sock: socket.socket) -> None:
    """Take all that is there, which makes room."""
    with suppress(BlockingIOError):
        while sock.recv(1 << 20):
            pass


def wait_for_data(sock: socket.socket) -> float:
    """When something came in."""
    assert select.select([sock], [], [], 10)[0]
    return time.monotonic()
