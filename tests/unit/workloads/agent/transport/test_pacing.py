from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.scale import bucket_burst_bytes
from workloads.agent.transport.pacing import FORGIVEN_S, Bucket


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
