from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from topos.kernel import delay_relay

STAMP_NS, NOW_NS = 5_000_000_000, 9_000_000_000


class Source:
    """A packet socket with one frame, which arrived at ``STAMP_NS`` of the wall clock."""

    def __init__(self) -> None:
        self.frames = 1

    def recvmsg_into(self, buffers: Any, control_bytes: int) -> tuple[int, list[Any], int, None]:
        if not self.frames:
            raise BlockingIOError
        self.frames -= 1
        return 4, [(1, 35, struct.pack("=qq", *divmod(STAMP_NS, 1_000_000_000)))], 0, None


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
    relay._buffer, relay._holding = bytearray(8), Taken()
    relay._read(0, Source())
    assert relay._holding == [NOW_NS - counted_ns]
