"""Flows that last for a given time in the kernel: how long, which ones, and what ends it early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topos.kernel.fastpath.lasting import Lasting, Lasts, NotBefore, decode, encode

DARK, OTHER = (20, b"port 1"), (20, b"port 2")


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.floats(0, 1000))
def test_a_request_survives_the_wire(xid: int, cookie: int, seconds: float) -> None:
    found = decode(encode(Lasts(xid, cookie, seconds)))
    assert isinstance(found, Lasts) and found[:2] == (xid, cookie) and found.seconds == pytest.approx(seconds, abs=1e-9)


@given(st.integers(0, 2**32 - 1), st.floats(0, 1e8))
def test_a_time_survives_the_wire(xid: int, at: float) -> None:
    found = decode(encode(NotBefore(xid, at)))
    assert isinstance(found, NotBefore) and found.xid == xid and found.at == pytest.approx(at, abs=1e-7)


@pytest.mark.parametrize("message", [b"", b"\x05\x04\x00\x20" + bytes(28), encode(Lasts(1, 2, 3))[:-1]])
def test_other_messages_are_left_alone(message: bytes) -> None:
    assert decode(message) is None


@pytest.fixture
def begun() -> Lasting:
    """Flows with cookie 7 that the kernel holds since 100 s."""
    lasting = Lasting()
    lasting.added(7)
    lasting.committed(100.0)
    return lasting


def test_a_flow_lasts_from_when_the_kernel_held_it(begun: Lasting) -> None:
    begun.ask(7, 0.5, 100.3)
    assert begun.keep(DARK, 7) and begun.keep(OTHER, 7)
    assert begun.next_end() == 100.5 and begun.has(7)
    assert begun.end(100.49) == []
    assert begun.end(100.5) == [DARK, OTHER] and not begun.has(7) and begun.next_end() is None
    assert not begun.keep(DARK, 7), "the request is over with its flows"


def test_later_flows_of_a_cookie_do_not_move_its_beginning(begun: Lasting) -> None:
    begun.added(7)
    begun.committed(101.0)
    begun.ask(7, 0.5, 100.3)
    assert begun.keep(DARK, 7) and begun.next_end() == 100.5


@pytest.mark.parametrize("cookie", [6, 7])
def test_nothing_lasts_that_was_not_asked_for_or_has_not_begun(begun: Lasting, cookie: int) -> None:
    begun.ask(6, 0.5, 100.3)
    assert not begun.keep(DARK, cookie)


def test_flows_that_come_and_go_in_one_change_last_too() -> None:
    """The end of a short dark time is ordered together with its beginning."""
    lasting = Lasting()
    lasting.ask(7, 0.0005, 99.9)
    assert not lasting.keep(DARK, 7), "no flow of this cookie is there"
    lasting.added(7)
    assert lasting.keep(DARK, 7) and lasting.next_end() is None and lasting.end(200.0) == []
    lasting.committed(100.0)
    assert lasting.next_end() == pytest.approx(100.0005) and lasting.has(7)
    assert lasting.end(100.001) == [DARK] and not lasting.has(7)


def test_no_request_keeps_a_flow_for_ever(begun: Lasting) -> None:
    begun.ask(7, 1e6, 100.3)
    assert begun.keep(DARK, 7) and begun.next_end() == pytest.approx(101.3)


def test_a_flow_in_its_place_ends_it(begun: Lasting) -> None:
    begun.ask(7, 0.5, 100.3)
    assert begun.keep(DARK, 7) and begun.replace(DARK)
    assert not begun.replace(DARK) and not begun.has(7)
