from __future__ import annotations

import socket
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from railyard.scale import bucket_burst_bytes
from workloads.agent.transport.pacing import AHEAD_S, FORGIVEN_S, LAST_LOOK_S, Bucket, SendAllowance, UpWindow
from workloads.agent.transport.sockets import left_port
from workloads.rank.slot_sender import LATE_S


class Tbf:
    """A token bucket as the kernel's: what it lets through, byte by byte."""

    def __init__(self, bytes_per_s: float, burst: float) -> None:
        self.rate, self.burst, self.tokens, self.at = bytes_per_s, burst, burst, 0.0

    def send(self, now: float, size: float) -> float:
        """Time at which the last of ``size`` bytes has passed."""
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if size <= self.tokens:
            self.tokens -= size
            return now
        end = now + (size - self.tokens) / self.rate
        self.tokens, self.at = 0.0, end
        return end


@given(st.floats(5, 1000), st.floats(20_000, 5e6), st.floats(0.05, 10))
def test_a_transfer_after_a_long_pause_takes_size_over_rate(rate_mbps: float, size: float, pause: float) -> None:
    bucket = Bucket(rate_mbps)
    tbf = Tbf(bucket.bytes_per_s, bucket_burst_bytes(rate_mbps))
    now = 1.0
    for _ in range(3):
        start = now + pause
        wait = bucket.wait_s(start, size)
        assert bucket.wait_s(start + wait, size) < 1e-9
        bucket.sent(start + wait, size)
        now = tbf.send(start + wait, size)
        assert abs((now - start) - size / bucket.bytes_per_s) < 1e-6


def test_a_few_bytes_wait_no_longer_than_they_take() -> None:
    bucket = Bucket(50)
    assert bucket.wait_s(10.0, 100) == 100 / bucket.bytes_per_s


@given(
    st.floats(5, 1000),
    st.lists(st.tuples(st.floats(1, 5e6), st.floats(1e-6, 2), st.floats(0, 1)), min_size=1, max_size=5),
)
def test_a_late_message_ends_when_it_would_have_ended_without_the_lateness(
    rate_mbps: float, messages: list[tuple[float, float, float]]
) -> None:
    bucket = Bucket(rate_mbps)
    tbf = Tbf(bucket.bytes_per_s, bucket_burst_bytes(rate_mbps))
    end = 1.0
    for size, more_than_forgiven_s, late_share in messages:
        since = end + FORGIVEN_S + more_than_forgiven_s
        now = since + late_share * min(bucket.burst_s, size / bucket.bytes_per_s)
        wait = bucket.wait_s(now, size, since)
        bucket.sent(now + wait, size)
        end = tbf.send(now + wait, size)
        assert end == pytest.approx(since + size / bucket.bytes_per_s, abs=1e-6)


def after_a_transfer() -> tuple[Bucket, float]:
    """A bucket, and the time at which the port has sent all that it got."""
    bucket = Bucket(50)
    wait = bucket.wait_s(1.0, 1e6)
    bucket.sent(1.0 + wait, 1e6)
    return bucket, 1.0 + wait + bucket.backlog_s(1.0 + wait)


def test_short_pauses_are_forgiven() -> None:
    bucket, end = after_a_transfer()
    for late_s in (0.0, FORGIVEN_S):
        assert bucket.wait_s(end + FORGIVEN_S / 2 + late_s, 1e6, since=end + FORGIVEN_S / 2) == 0


def test_of_an_unknown_beginning_all_that_the_bucket_can_catch_up_is_forgiven() -> None:
    bucket, end = after_a_transfer()
    assert bucket.wait_s(end + 0.99 * bucket.burst_s, 1e6) == 0
    assert bucket.wait_s(end + 1.01 * bucket.burst_s, 1e6) == bucket.burst_s


def test_a_message_that_could_begin_while_the_port_was_busy_does_not_wait() -> None:
    bucket, end = after_a_transfer()
    assert bucket.wait_s(end + 0.5, 1e6, since=end - 0.5) == 0


def test_control_bytes_do_not_end_an_idle_time() -> None:
    bucket, touched = Bucket(50), Bucket(50)
    touched.sent(4.9999, 28, control=True)
    assert touched.wait_s(5.0, 1e6) == bucket.wait_s(5.0, 1e6) == bucket.burst_s


def test_what_has_passed_since_the_system_would_have_begun_is_not_waited_for_again() -> None:
    waits = [Bucket(50).wait_s(10.0 + late, 1e6, since=10.0) for late in (0.0, 0.001, 0.5)]
    burst_s = Bucket(50).burst_s
    assert waits == [burst_s, pytest.approx(burst_s - 0.001), 0.0]


def test_a_beginning_that_is_still_to_come_makes_no_wait_longer() -> None:
    assert Bucket(50).wait_s(10.0, 1e6, since=11.0) == Bucket(50).burst_s


def test_a_wait_that_was_begun_is_kept_to() -> None:
    bucket = Bucket(50)
    wait = bucket.wait_s(10.0, 1e6, since=9.999)
    assert bucket.wait_s(10.0 + wait / 2, 1e6, since=9.999) == pytest.approx(wait / 2)
    assert bucket.wait_s(10.0 + wait, 1e6, since=9.999) == pytest.approx(0)
    bucket.sent(10.0 + wait, 1e6)
    assert bucket.wait_s(10.0 + wait, 1e6) == 0, "nothing is saved up"


SHARE = 0.98
LEAST = 4096


@dataclass
class Port:
    """A port that sends ``rate`` bytes per second of what it was handed, some of it at once (``saved``)."""

    rate: float
    saved: float = 0.0
    now: float = 0.0
    waiting: float = 0.0
    left: float = 1e6
    """Since it exists: something has left it before."""

    def hand(self, size: float) -> None:
        self.waiting += size
        self.pass_on(min(self.saved, self.waiting))
        self.saved = 0.0

    def pass_on(self, size: float) -> None:
        self.waiting -= size
        self.left += size

    def go_on(self, now: float) -> None:
        self.pass_on(min(self.waiting, (now - self.now) * self.rate))
        self.now = now

    def count(self) -> int:
        return int(self.left)


def play(
    light: UpWindow,
    begin: float,
    *,
    slow: float = 0.0,
    rate_mbps: float = 50.0,
    size: float = float("inf"),
    known: bool = True,
) -> tuple[float, float, Port]:
    """Hand over as much as may be of ``size`` from ``begin`` on: payload that was, when the last has left, the port."""
    bucket = Bucket(rate_mbps)
    port = Port(bucket.bytes_per_s * (1 - slow), bucket.burst_s * bucket.bytes_per_s, begin)
    spell = SendAllowance(light, bucket, SHARE, port.count if known else None)
    now, handed = begin, 0.0
    while now < float("inf") and size - handed >= 1:
        port.go_on(now)
        room = min(spell.room(now), size - handed)
        if room < min(LEAST, size - handed):
            again = spell.look_again(now, min(LEAST, size - handed))
            assert again > now
            now = again
            continue
        spell.handed(int(room))
        bucket.sent(now, int(room) / SHARE)
        port.hand(int(room) / SHARE)
        handed += int(room)
    return handed, port.now + port.waiting / port.rate, port


@pytest.mark.parametrize("length", [0.02, 0.1, 0.5, 3.0])
def test_a_port_that_keeps_its_rate_is_given_all_that_it_carries(length: float) -> None:
    handed, end, _ = play(UpWindow(10.0, 10.0 + length), 10.0)
    budget = (length - LATE_S) * 50e6 / 8 * SHARE
    assert budget - LEAST - 0.001 * budget <= handed <= budget
    assert end <= 10.0 + length


@settings(deadline=None)
@example(length=0.015, late=0.0, slow=0.0, rate_mbps=15.0, size=27195.0)
@given(
    length=st.floats(0.005, 2.0),
    late=st.floats(0, 1),
    slow=st.floats(0, 0.015),
    rate_mbps=st.floats(10, 200),
    size=st.floats(100, 5e6),
)
def test_what_is_handed_to_a_slow_port_has_left_it_in_time(
    length: float, late: float, slow: float, rate_mbps: float, size: float
) -> None:
    light = UpWindow(10.0, 10.0 + length)
    handed, end, _ = play(light, 10.0 + late * length, slow=slow, rate_mbps=rate_mbps, size=size)
    assert handed <= max(0.0, (length - LATE_S)) * rate_mbps * 1e6 / 8 * SHARE + 1e-6  # rounding
    last_share_s = LAST_LOOK_S * slow / (1 - slow)  # what was handed over last could not be looked at any more
    piece_s = Bucket(rate_mbps).burst_s / 2
    assert handed == 0 or end <= light.until + last_share_s + piece_s + 1e-4


def test_of_a_slow_port_more_would_come_out_too_late_if_nobody_looked() -> None:
    light = UpWindow(10.0, 11.0)
    blind, seeing = (play(light, 10.0, slow=0.015, known=known)[1] for known in (False, True))
    assert blind > light.until and seeing < blind


def test_without_a_count_everything_goes_at_once() -> None:
    spell = SendAllowance(UpWindow(1.0, 1.5), Bucket(50), SHARE)
    budget = (0.5 - LATE_S) * 50e6 / 8 * SHARE
    assert spell.room(1.0) == pytest.approx(budget)
    spell.handed(int(budget))
    assert spell.room(1.0) < 1 and spell.look_again(1.0, 1) == float("inf")


def test_after_its_end_and_beyond_its_budget_there_is_no_room() -> None:
    spell = SendAllowance(UpWindow(1.0, 1.5), Bucket(50), SHARE)
    assert spell.room(1.6) == 0 and spell.look_again(1.6, 1) == float("inf")
    assert spell.room(1.5 - LATE_S / 2) == 0, "whatever the bucket has saved: it would come out too late"
    assert spell.room(1.5 - 2 * LATE_S) > 1000
    assert SendAllowance(UpWindow(1.0, 1.0 + LATE_S / 2), Bucket(50), SHARE).room(1.0) == 0


def test_it_is_looked_again_while_the_port_still_has_something() -> None:
    port, bucket = Port(0.0), Bucket(50)
    spell = SendAllowance(UpWindow(1.0, 1.5), bucket, SHARE, port.count)
    first = spell.room(1.0)
    assert first < (0.5 - LATE_S) * bucket.bytes_per_s * SHARE, "some of it is held back"
    spell.handed(int(first))
    bucket.sent(1.0, first / SHARE)
    again = spell.look_again(1.0, LEAST)
    assert 1.4 < again < 1.5 - AHEAD_S


def test_the_kernel_counts_what_leaves_a_port() -> None:
    before = left_port("lo")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x" * 1000, ("127.0.0.1", 9))
    assert left_port("lo") >= before + 1000
    with pytest.raises(OSError, match="there is no interface nowhere0"):
        left_port("nowhere0")
