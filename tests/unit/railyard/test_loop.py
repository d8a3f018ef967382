"""What wakes a process: its sockets, and times to the microsecond or about."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator

import pytest
from fake_clock import play

from railyard.loop import Loop, Poller, Timers

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


def test_a_forgotten_owner_may_be_closed_already(poller: Poller, one: Owner, other: Owner) -> None:
    poller.watch(one, IN)
    poller.watch(other.fileno(), OUT)
    one.close()
    poller.forget(one)
    poller.forget(one)
    assert poller.wait(0.0) == [(other.fileno(), OUT)], "an owner may be a plain descriptor"


def test_calls_come_at_their_time_and_in_order() -> None:
    timers, said = Timers(), list[str]()
    timers.at(0.3, lambda: said.append("third"))
    timers.later(0.2, lambda: said.append("second"))
    timers.soon(lambda: said.append("first"))
    play(timers, 0.25)
    assert said == ["first", "second"] and timers.next_time == 0.3
    play(timers, 1.0)
    assert said == ["first", "second", "third"] and timers.next_time == float("inf")


def test_a_step_makes_one_call_and_never_turns_time_back() -> None:
    timers, calls = Timers(), list[tuple[str, float]]()
    timers.now = 1.0
    timers.at(0.5, lambda: calls.append(("late", timers.now)))
    timers.at(2.0, lambda: calls.append(("due", timers.now)))
    timers.step()
    assert calls == [("late", 1.0)] and timers.next_time == 2.0
    timers.step()
    assert calls == [("late", 1.0), ("due", 2.0)] and timers.now == 2.0


def test_a_loop_ends_when_it_is_told_and_forgets_files(one: Owner) -> None:
    loop, calls = Loop(), list[int]()

    def ready(events: int) -> None:
        calls.append(events)
        loop.forget(one)
        loop.forget(one)
        loop.ended = True

    loop.watch(one, ready)
    one.far.send(b"x")
    loop.run()
    assert calls == [IN] and not loop.watched
    loop.close()


def test_who_was_forgotten_in_the_same_turn_is_not_called(one: Owner, other: Owner) -> None:
    loop, calls = Loop(), list[Owner]()

    def only_one(me: Owner, neighbour: Owner) -> None:
        calls.append(me)
        loop.forget(neighbour)

    loop.watch(one, lambda _: only_one(one, other))
    loop.watch(other, lambda _: only_one(other, one))
    for owner in (one, other):
        owner.far.send(b"x")
    loop.turn()
    assert len(calls) == 1 and list(loop.watched) == calls
    loop.close()


def test_timers_of_a_loop_are_called_in_order_and_in_time(one: Owner) -> None:
    loop, calls = Loop(), list[tuple[float, float]]()
    loop.watch(one, print)
    start = time.monotonic()
    for after in (0.02, 0.0, 0.01):
        loop.at(start + after, lambda after=after: calls.append((after, time.monotonic() - start)))  # type: ignore[misc]
    loop.at(start + 0.03, lambda: setattr(loop, "ended", True))
    loop.run()
    assert [after for after, _ in calls] == [0.0, 0.01, 0.02]
    assert all(after <= took < after + 0.5 for after, took in calls), "half a second is for a busy machine"
    loop.close()
