"""The ledger of the rails and the agents' account of their payload, from made-up numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scapy.layers.l2 import Ether

from measure.live import probes
from measure.live.counters import LinkCounters
from measure.live.delivery import Payload, delivery, payload
from measure.live.packets import ETHERTYPE
from measure.live.probes import Frames, arrivals, probe_frame
from railyard.errors import MachineError
from railyard.timeline import Event
from topos.describe import plan
from topos.rails import RailTopo

NOTHING = LinkCounters(0, 0, 0, 0, 0, 0)


def test_a_ledger_adds_up_what_ports_sent_and_received_in_between() -> None:
    before = {(0, 0): LinkCounters(700, 500, 0, 7, 5, 2), (1, 0): LinkCounters(500, 700, 3, 5, 7, 0)}
    after = {(0, 0): LinkCounters(900, 800, 0, 9, 8, 2), (1, 0): LinkCounters(700, 900, 3, 7, 9, 0)}
    found = delivery(before, after)
    assert (found.sent_bytes, found.received_bytes, found.lost_bytes) == (500, 400, 100)
    assert (found.sent_packets, found.received_packets, found.lost_packets) == (5, 4, 1)
    assert (found.misdelivered, found.wrong_at) == (0, ())


def test_packets_at_the_wrong_host_are_counted_with_the_place() -> None:
    before = {(0, 0): NOTHING, (1, 0): NOTHING, (2, 1): NOTHING}
    after = before | {(1, 0): replace(NOTHING, otherhost=4), (2, 1): replace(NOTHING, otherhost=1)}
    found = delivery(before, after)
    assert (found.misdelivered, found.wrong_at) == (5, ((1, 0), (2, 1)))


def test_a_kernel_that_does_not_count_them_says_nothing_of_them() -> None:
    silent = {(0, 0): replace(NOTHING, otherhost=None)}
    assert delivery(silent, silent).misdelivered is None


def test_payload_is_what_senders_put_out_and_what_receivers_took_in() -> None:
    events = [
        sent(0, op=1, group="ep0", payload_bytes=300),
        sent(1, op=1, group="ep0", payload_bytes=0),
        received(1, op=1, bytes=200),
        received(1, op=1, bytes=100),
        sent(0, op=2, group="dp0", payload_bytes=50),
        sent(1, op=2, group="dp0", payload_bytes=0),
        received(1, op=2, bytes=40),
        Event(0.0, "controller", "ack", None, {"rank": 1, "bytes": 7}),
    ]
    assert payload(events) == Payload(350, 340) and not payload(events).conserved
    assert payload(events, ["ep0"]) == Payload(300, 300) and payload(events, ["ep0"]).conserved


def sent(rank: int, **fields: Any) -> Event:
    """The end of a communication."""
    return Event(0.0, "agent", "communicate", 1.0, {"rank": rank, "step": 0, **fields})


def received(rank: int, **fields: Any) -> Event:
    """A transfer that came in."""
    return Event(0.0, "agent", "transfer", 1.0, {"rank": rank, "step": 0, **fields})


PLAN = plan(RailTopo(servers=4, gpus=1, ports=2))
A, B = PLAN.switches[0].port(1, 1), PLAN.switches[0].port(3, 0)
TOKEN = b"question"
TAPPED: Any = None


def test_a_frame_goes_to_its_mac_and_has_the_token_of_its_train_and_its_number() -> None:
    frame = Ether(probe_frame(B.mac, A.mac, TOKEN, 258))
    assert (frame.src, frame.dst, frame.type) == (A.mac, B.mac, ETHERTYPE)
    assert len(frame) >= 60, "the shortest frame of Ethernet, without its checksum"
    assert bytes(frame)[14:26] == TOKEN + bytes([0, 0, 1, 2])
    assert len(probe_frame(B.mac, A.mac, TOKEN, 0, 1250)) == 1250


def test_frames_of_other_trains_and_short_ones_have_not_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [probe_frame(B.mac, A.mac, token, 7) for token in (TOKEN, b"earlier!")] + [b"short"]

    def received(_: object, buffer: memoryview) -> Iterator[tuple[int, int, bool, str]]:
        for frame in frames:
            size = min(len(frame), len(buffer))
            buffer[:size] = frame[:size]
            yield size, time.time_ns(), False, "g1-r0"

    monkeypatch.setattr(probes, "received", received)
    monkeypatch.setattr(probes, "missed", lambda _: 0)
    number, arrived_ns = arrivals(TAPPED, TOKEN)
    assert number == 7 and arrived_ns / 1e9 == pytest.approx(time.monotonic(), abs=1.0)
    monkeypatch.setattr(probes, "missed", lambda _: 3)
    with pytest.raises(MachineError, match="no room for all"):
        arrivals(TAPPED, TOKEN)


TICK = 0.0003


def _train(count: int) -> list[float]:
    return [5.0 + n * TICK for n in range(count)]


def test_light_that_never_comes_back() -> None:
    seen = Frames(_train(10), {"old": range(4)}).dark_time("old", "new")
    assert seen.seconds == math.inf and seen.up_t is None and seen.lost == 6


def test_one_stray_loss_is_not_the_dark_time() -> None:
    arrived = [n for n in range(100) if n != 10 and not 50 <= n < 60]
    seen = Frames(_train(100), {"old": arrived}).dark_time()
    assert (seen.lost, seen.strays) == (10, 1)
    assert seen.first_lost_t == pytest.approx(5.0 + 50 * TICK)


def test_what_comes_out_at_the_old_end_after_the_change_is_misdelivered() -> None:
    received = {"old": [*range(5), 12, 15], "new": range(8, 20)}
    assert Frames(_train(20), received).dark_time("old", "new").misdelivered == 2
    assert Frames(_train(20), received).dark_time().misdelivered == 0


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 40), st.randoms())
@example(30, 40, 30, Random(1))
@example(5, 0, 5, Random(1))
def test_any_single_gap_is_found_whatever_the_order(before: int, gap: int, after: int, random: object) -> None:
    received = {"old": list(range(before)), "new": list(range(before + gap, before + gap + after))}
    for numbers in received.values():
        random.shuffle(numbers)  # type: ignore[attr-defined]
    seen = Frames(_train(before + gap + after), received).dark_time("old", "new")
    assert (seen.lost, seen.strays, seen.misdelivered) == (gap, 0, 0)
    assert seen.seconds == pytest.approx(gap * TICK)
    assert seen.first_lost_t == (pytest.approx(5.0 + before * TICK) if gap else None)
    assert seen.up_t == (pytest.approx(5.0 + (before + gap) * TICK) if gap else None)
