from __future__ import annotations

import random
import struct
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topos.kernel import delay_relay
from topos.kernel.holding import Holding, Lateness, Line


def holding(*lines: tuple[int, int], room: int = 1 << 20, seed: int = 1) -> Holding:
    return Holding([Line(delay, jitter, room, random.Random(seed).uniform) for delay, jitter in lines])


def test_a_frame_is_held_from_its_arrival_and_not_from_when_it_was_read() -> None:
    held = holding((5000, 0))
    assert held.next_ns is None
    assert held.take(0, b"a", 100) and held.take(0, b"b", 300)
    assert held.next_ns == 5100
    assert list(held.due(5099)) == []
    assert list(held.due(5100)) == [(0, 5100, b"a")]
    assert list(held.due(9999)) == [(0, 5300, b"b")]
    assert held.next_ns is None


@given(
    arrivals=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5000)), max_size=60),
    jitter=st.integers(0, 2000),
    seed=st.integers(0, 9),
)
def test_no_frame_is_lost_or_overtakes_another_of_its_line(
    arrivals: list[tuple[int, int]], jitter: int, seed: int
) -> None:
    held, now = holding((2000, jitter), (3000, 0), seed=seed), 0
    came: list[list[bytes]] = [[], []]
    left: list[list[bytes]] = [[], []]
    dues = []
    for number, (line, passed) in enumerate(arrivals):
        now += passed
        for at, due, frame in held.due(now):
            left[at].append(frame)
            dues.append(due)
        came[line].append(bytes([number]))
        assert held.take(line, came[line][-1], now)
    for at, due, frame in held.due(now + 10_000):
        left[at].append(frame)
        dues.append(due)
    assert left == came
    assert dues == sorted(dues)


def test_jitter_is_uniform_around_the_delay() -> None:
    line = Line(10_000, 4000, 1 << 30, random.Random(7).uniform)
    for number in range(4000):
        line.take(b"", number * 100_000)
    holds = [due - number * 100_000 for number, (due, _) in enumerate(line.frames)]
    assert min(holds) >= 6000 and max(holds) <= 14_000
    assert sum(holds) / len(holds) == pytest.approx(10_000, rel=0.02)
    assert sum(hold < 8000 for hold in holds) / len(holds) == pytest.approx(0.25, abs=0.03)


def test_a_full_line_refuses_frames_until_one_has_left() -> None:
    held = holding((1000, 0), (1000, 0), room=100)
    assert held.take(0, bytes(60), 0)
    assert not held.take(0, bytes(41), 0)
    assert held.take(1, bytes(41), 0), "each line has a room of its own"
    assert len(list(held.due(1000))) == 2
    assert held.take(0, bytes(100), 2000)


def test_lateness_counts_early_frames_with_their_distance() -> None:
    late = Lateness()
    assert late.report()["late_p95_s"] is None
    for ns in [0] * 50 + [95_000] * 44 + [-205_000] * 5 + [3_000_000]:
        late.add(ns)
    late.overflowed += 2
    report = late.report()
    assert report["frames"] == 100 and report["overflowed"] == 2
    assert report["late_p50_s"] == pytest.approx(10e-6)
    assert report["late_p95_s"] == pytest.approx(210e-6)
    assert report["late_worst_s"] == pytest.approx(3e-3)


def test_no_share_of_the_frames_is_later_than_the_worst() -> None:
    late = Lateness()
    late.add(4_000)
    report = late.report()
    assert report["late_p50_s"] == report["late_p95_s"] == report["late_worst_s"] == pytest.approx(4e-6)


STAMP_NS, NOW_NS = 5_000_000_000, 9_000_000_000


class Source:
    """A packet socket with one frame, which arrived at ``STAMP_NS`` of the wall clock."""

    def __init__(self) -> None:
        self.frames = 1

    def recvmsg_into(self, buffers: Any, control_bytes: int, flags: int) -> tuple[int, list[Any], int, Any]:
        if not self.frames:
            raise BlockingIOError
        self.frames -= 1
        return 4, [(1, 35, struct.pack("=qq", *divmod(STAMP_NS, 1_000_000_000)))], 0, ("mid0a", 0, 0)


class Taken(list[int]):
    """What was taken: when each frame arrived."""

    def take(self, line: int, frame: bytes, arrived_ns: int) -> bool:
        self.append(arrived_ns)
        return True


@pytest.mark.parametrize(("age_ns", "counted_ns"), [(300_000, 300_000), (-2_000_000_000, 0), (2_000_000_000, 0)])
def test_a_step_of_the_wall_clock_moves_no_arrival(
    age_ns: int, counted_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: STAMP_NS + age_ns)
    monkeypatch.setattr(time, "monotonic_ns", lambda: NOW_NS)
    relay: Any = delay_relay._Relay.__new__(delay_relay._Relay)
    relay._buffer, relay._holding = memoryview(bytearray(8)), Taken()
    relay._read(0, Source())
    assert relay._holding == [NOW_NS - counted_ns]
