from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.live import machine_benchmark
from railyard.errors import MachineError

PATIENCE_S = 60.0
BUSY_S = 0.1
"""CPU time that each process must use while it is watched."""


@given(limit=st.floats(200, 50_000), halvings=st.integers(0, 5))
def test_the_highest_rate_is_under_the_limit_and_close_to_it(limit: float, halvings: int) -> None:
    found = machine_benchmark.highest_rate(lambda value: value <= limit, 800, 25_600, halvings)
    assert found.value <= limit
    if found.limited:
        assert limit < found.value * 2 ** (0.5**halvings) * (1 + 1e-9)
    else:
        assert found.value == 25_600


def test_a_machine_that_carries_nothing_is_an_error() -> None:
    with pytest.raises(MachineError, match="does not carry"):
        machine_benchmark.highest_rate(lambda _: False, 800, 25_600, 3)


def test_timers_are_late_never_early() -> None:
    late = machine_benchmark.timer_error(0.1)
    assert 0 <= late.p50_s <= late.p99_s <= late.max_s
    assert late.count > 5


@pytest.fixture
def lanes() -> Iterator[list[machine_benchmark.SocketPair]]:
    """Two connections over the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        senders = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        made = [machine_benchmark.SocketPair(sender, listener.accept()[0]) for sender in senders]
    yield made
    for one in made:
        one.sender.close()
        one.receiver.close()


def test_messages_and_streams_over_the_loopback(lanes: list[machine_benchmark.SocketPair]) -> None:
    times = machine_benchmark.message_times(lanes[0].sender, lanes[0].receiver, 20)
    assert times.count == 20
    assert 0 < times.p50 < 0.1
    goodputs = machine_benchmark.ring_goodputs(lanes, 1000, 0.05, 0.2)
    assert len(goodputs) == 2
    assert min(goodputs) > 1


def test_a_host_whose_process_ends_early_is_named(lanes: list[machine_benchmark.SocketPair]) -> None:
    lanes[1].sender.shutdown(socket.SHUT_WR)
    with pytest.raises(MachineError, match="the goodput of host 0 ended without a result"):
        machine_benchmark.ring_goodputs(lanes, 1000, 0.05, 0.2)


def test_processors_are_busy_only_within_the_block() -> None:
    before = psutil.Process().children()
    with machine_benchmark.busy_processors():
        spinners = [child for child in psutil.Process().children() if child not in before]
        assert len(spinners) == (os.cpu_count() or 1)
        end = time.monotonic() + PATIENCE_S
        for spinner in spinners:
            used_s = sum(spinner.cpu_times()[:2])
            while sum(spinner.cpu_times()[:2]) < used_s + BUSY_S:
                assert time.monotonic() < end, f"process {spinner.pid} does not use its processor"
                time.sleep(0.01)
    assert not any(spinner.is_running() for spinner in spinners)
