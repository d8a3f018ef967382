"""What wakes an agent: its sockets, and times to the microsecond or about."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator

import pytest

from workloads.agent.transport.loop import Poller

IN, OUT = select.EPOLLIN, select.EPOLLOUT
LONG_S = 10.0


class Owner:
    """Something that has a socket, and may get another one."""

    def __init__(self) -> None:
        self.sock, self.far = socket.socketpair()

    def fileno(self) -> int:
        return self.sock.fileno()

    def renew(self) -> None:
        """Take another socket, which gets the number of the closed one."""
        self.close()
        self.sock, self.far = socket.socketpair()

    def close(self) -> None:
        self.sock.close()
        self.far.close()


@pytest.fixture
def poller() -> Iterator[Poller]:
    poller = Poller()
    yield poller
    poller.close()


@pytest.fixture
def one() -> Iterator[Owner]:
    one = Owner()
    yield one
    one.close()


@pytest.fixture
def other() -> Iterator[Owner]:
    other = Owner()
    yield other
    other.close()


def test_only_what_is_watched_is_reported(poller: Poller, one: Owner, other: Owner) -> None:
    poller.watch(one, IN)
    poller.watch(other, OUT)
    one.far.send(b"x")
    assert dict(poller.wait(0.0)) == {one: IN, other: OUT}
    poller.watch(other, IN)
    poller.watch(one, 0)
    one.far.close()
    assert poller.wait(0.0) == [], "not even that the other end is gone"
    poller.watch(one, IN)
    assert [owner for owner, _ in poller.wait(0.0)] == [one]


def test_an_owner_may_get_another_socket_of_the_same_number(poller: Poller, one: Owner) -> None:
    poller.watch(one, IN)
    number = one.fileno()
    one.renew()
    assert one.fileno() == number and poller.wait(0.0) == [], "the kernel has forgotten the first"
    poller.watch(one, OUT)
    assert poller.wait(0.0) == [(one, OUT)]


def test_an_owner_may_get_another_number_and_the_first_one_again(poller: Poller, one: Owner) -> None:
    numbers = []
    for _ in range(3):
        numbers.append(one.fileno())
        poller.watch(one, OUT)
        assert poller.wait(0.0) == [(one, OUT)]
        before = one.sock, one.far
        one.sock, one.far = socket.socketpair()
        for sock in before:
            sock.close()
    assert numbers[0] == numbers[2] != numbers[1]


def test_a_former_socket_is_not_waited_for(poller: Poller, one: Owner, other: Owner) -> None:
    poller.watch(one, OUT)
    one.sock, spare = other.sock, one.sock
    poller.watch(one, OUT)
    assert poller.wait(0.0) == [(one, OUT)], "although the first socket is open"
    one.sock = spare


def test_a_number_may_get_another_owner(poller: Poller, one: Owner) -> None:
    poller.watch(one, IN)
    number = one.fileno()
    one.close()
    other = Owner()
    assert other.fileno() == number
    poller.watch(other, IN)
    other.far.send(b"x")
    assert poller.wait(0.0) == [(other, IN)]
    other.close()


@pytest.mark.parametrize("about", [float("inf"), LONG_S])
def test_a_precise_time_is_kept(poller: Poller, one: Owner, about: float) -> None:
    poller.watch(one, IN)
    now = time.monotonic()
    assert poller.wait(now + 0.0203, now + about) == []
    assert now + 0.0203 <= time.monotonic() < now + LONG_S


def test_an_event_ends_the_wait_for_a_time(poller: Poller, one: Owner) -> None:
    poller.watch(one, IN)
    one.far.send(b"x")
    now = time.monotonic()
    for at, about in ((now + LONG_S, float("inf")), (float("inf"), now + LONG_S), (now + 2 * LONG_S, now + LONG_S)):
        assert poller.wait(at, about) == [(one, IN)]
    assert time.monotonic() < now + LONG_S


def test_about_a_time_is_not_before_it(poller: Poller) -> None:
    about = time.monotonic() + 0.0105
    assert poller.wait(float("inf"), about) == []
    assert time.monotonic() >= about
