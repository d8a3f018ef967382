"""What wakes an agent: its sockets, and times to the microsecond or about."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from workloads.agent.transport.connection import PeerConnection
from workloads.agent.transport.loop import Poller, Timers

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


class Wire:
    """A connection that says how much has left and is acknowledged, and when to look again."""

    def __init__(self, again_s: float = 0.1) -> None:
        self.left = self.acknowledged = 0
        self.again_s = again_s
        self.looks = 0

    def left_s(self, mark: int, *, acknowledged: bool) -> float:
        self.looks += 1
        return 0.0 if mark <= (self.acknowledged if acknowledged else self.left) else self.again_s


def watch(timers: Timers, wire: Wire, mark: int, acknowledged: bool, said: list[Any], what: object) -> None:
    timers.watch(cast(PeerConnection, wire), mark, acknowledged, lambda: said.append(what))


def play(timers: Timers, until: float) -> None:
    while timers.next_time <= until:
        timers.now = timers.next_time
        timers.run_due()
    timers.now = until


def test_calls_come_at_their_time_and_in_order() -> None:
    timers, said = Timers(), list[str]()
    timers.at(0.3, lambda: said.append("third"))
    timers.later(0.2, lambda: said.append("second"))
    timers.soon(lambda: said.append("first"))
    play(timers, 0.25)
    assert said == ["first", "second"] and timers.next_time == 0.3
    play(timers, 1.0)
    assert said == ["first", "second", "third"] and timers.next_time == float("inf")


def test_what_is_there_already_is_said_at_once() -> None:
    timers, wire, said = Timers(), Wire(), list[str]()
    wire.left, wire.acknowledged = 10, 5
    watch(timers, wire, 10, False, said, "left")
    watch(timers, wire, 5, True, said, "acknowledged")
    assert said == ["left", "acknowledged"] and timers.next_time == float("inf")


def test_without_a_word_it_is_looked_at_again() -> None:
    timers, wire, said = Timers(), Wire(), list[str]()
    watch(timers, wire, 10, True, said, "all")
    play(timers, 0.25)
    assert said == [] and wire.looks == 3
    wire.acknowledged = 10
    play(timers, 0.35)
    assert said == ["all"]


def test_a_word_brings_forward_what_it_is_about_and_nothing_else() -> None:
    timers, wire, other, said = Timers(), Wire(), Wire(), list[str]()
    watch(timers, wire, 5, True, said, "half")
    watch(timers, wire, 10, True, said, "all")
    watch(timers, wire, 5, False, said, "left")
    watch(timers, other, 5, True, said, "other")
    wire.acknowledged = other.acknowledged = 7
    timers.acknowledged(cast(PeerConnection, wire))
    assert said == ["half"]
    timers.acknowledged(cast(PeerConnection, other))
    assert said == ["half", "other"]
    wire.acknowledged = wire.left = 10
    timers.acknowledged(cast(PeerConnection, wire))
    play(timers, 1.0)
    assert said == ["half", "other", "all", "left"], "each once"


def test_who_is_told_may_watch_again() -> None:
    timers, wire, said = Timers(), Wire(), list[str]()

    def then() -> None:
        said.append("first")
        watch(timers, wire, 20, True, said, "second")

    timers.watch(cast(PeerConnection, wire), 10, True, then)
    wire.acknowledged = 20
    timers.acknowledged(cast(PeerConnection, wire))
    assert said == ["first", "second"]
