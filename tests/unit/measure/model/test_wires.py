from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.model.wires import Wires, wire_bytes
from topos.describe import plan
from topos.rails import RailTopo
from workloads.program import Domain

# 4 hosts on one rail, 2 ports of 80 Mb/s = 1e7 bytes per second
WIRES = plan(RailTopo(servers=4, gpus=1, rate_mbps=80))
FULL = 8948
ONE_S = 9014 / 1e7
Message = tuple[tuple[int, int], tuple[int, int], int]


def play(messages: list[Message], now: float = 0.0, domain: Domain = "scale-out") -> list[tuple[float, float]]:
    """(first byte, last byte) of each message, all handed over at ``now``."""
    timers: list[tuple[float, Callable[[], None]]] = []
    wires = Wires(WIRES, lambda time, what: timers.append((time, what)))
    found: dict[int, tuple[float, float]] = {}

    for number, (src, dst, payload) in enumerate(messages):
        wires.send(now, domain, src, dst, payload, lambda began, end, n=number: found.update({n: (began, end)}))  # type: ignore[misc]
    while timers:
        timers.sort(key=lambda entry: entry[0])
        timers.pop(0)[1]()
    return [found[number] for number in range(len(messages))]


def test_headers_count_per_packet() -> None:
    assert wire_bytes(0, 9000) == 0
    assert wire_bytes(FULL, 9000) == 9014
    assert wire_bytes(FULL + 1, 9000) == 9015 + 66
    assert wire_bytes(FULL + 1, 9000, 24) == 9015 + 66 + 2 * 24


def test_a_port_sends_one_thing_after_another() -> None:
    one, two = play([((0, 1), (1, 0), 100 * FULL)] * 2, now=1.0)
    assert one == pytest.approx((1.0, 1.0 + 100 * ONE_S))
    assert two == pytest.approx((1.0 + 100 * ONE_S, 1.0 + 200 * ONE_S))


def test_ports_and_directions_are_independent() -> None:
    ways = [((0, 1), (1, 0)), ((1, 0), (0, 1)), ((0, 0), (1, 1)), ((2, 0), (3, 0))]
    assert [end for _, end in play([(src, dst, FULL) for src, dst in ways])] == pytest.approx([ONE_S] * 4)


def test_two_senders_share_a_receiving_port() -> None:
    ends = [end for _, end in play([((0, 0), (2, 0), FULL), ((1, 0), (2, 0), FULL)])]
    assert ends == pytest.approx([2 * ONE_S, 2 * ONE_S])


def test_what_a_shared_port_leaves_over_goes_to_others() -> None:
    """1 -> 3 has what 1 -> 2 does not get, since 0 -> 2 is there: half of port 1 each, then all of it."""
    shared, half, free = play([((0, 0), (2, 0), FULL), ((1, 0), (2, 0), FULL), ((1, 0), (3, 0), 2 * FULL)])
    assert shared[1] == pytest.approx(2 * ONE_S)
    assert half[1] == pytest.approx(2 * ONE_S)
    assert free[1] == pytest.approx(3 * ONE_S)


@given(n=st.integers(2, 4), turns=st.integers(1, 3))
def test_everybody_to_everybody_takes_as_long_as_one_port_needs(n: int, turns: int) -> None:
    """Direct: each port sends to all others at once, and no port has anything to spare."""
    ways = [((src, 0), (dst, 0), FULL) for src in range(n) for dst in range(n) if src != dst] * turns
    assert max(end for _, end in play(ways)) == pytest.approx(turns * (n - 1) * ONE_S)


def test_a_network_that_is_not_there_takes_no_time() -> None:
    assert play([((0, 0), (1, 0), 4)], now=3.0, domain="front-end") == [(3.0, 3.0)]
