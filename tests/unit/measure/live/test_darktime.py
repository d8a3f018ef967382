from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from measure.live.darktime import MAGIC, PAYLOAD, Probe, Received, dark_time, read_probes

TICK = 0.0003


def _train(count: int) -> list[Probe]:
    return [Probe(n, 5.0 + n * TICK) for n in range(count)]


def _arrive(numbers: range, at: str) -> list[Received]:
    return [Received(n, at) for n in numbers]


def test_a_rewired_circuit() -> None:
    seen = dark_time(_train(100), _arrive(range(30), "old") + _arrive(range(70, 100), "new"), "old", "new")
    assert seen.seconds == pytest.approx(40 * TICK)
    assert seen.first_lost_t == pytest.approx(5.0 + 30 * TICK)
    assert seen.up_t == pytest.approx(5.0 + 70 * TICK)
    assert (seen.lost, seen.strays, seen.misdelivered) == (40, 0, 0)


def test_a_swap_that_loses_nothing() -> None:
    seen = dark_time(_train(10), _arrive(range(5), "old") + _arrive(range(5, 10), "new"), "old", "new")
    assert (seen.first_lost_t, seen.up_t, seen.seconds, seen.lost) == (None, None, 0.0, 0)


def test_light_that_never_comes_back() -> None:
    seen = dark_time(_train(10), _arrive(range(4), "old"), "old", "new")
    assert seen.seconds == math.inf and seen.up_t is None and seen.lost == 6


def test_one_stray_loss_is_not_the_dark_time() -> None:
    arrived = [n for n in range(100) if n != 10 and not 50 <= n < 60]
    seen = dark_time(_train(100), [Received(n, "old") for n in arrived])
    assert (seen.lost, seen.strays) == (10, 1)
    assert seen.first_lost_t == pytest.approx(5.0 + 50 * TICK)


def test_what_comes_out_at_the_old_end_after_the_change_is_misdelivered() -> None:
    received = [*_arrive(range(5), "old"), *_arrive(range(8, 20), "new"), Received(12, "old"), Received(15, "old")]
    assert dark_time(_train(20), received, "old", "new").misdelivered == 2
    assert dark_time(_train(20), received).misdelivered == 0


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 40), st.randoms())
def test_any_single_gap_is_found_whatever_the_order(before: int, gap: int, after: int, random: object) -> None:
    received = _arrive(range(before), "old") + _arrive(range(before + gap, before + gap + after), "new")
    random.shuffle(received)  # type: ignore[attr-defined]
    seen = dark_time(_train(before + gap + after), received, "old", "new")
    assert seen.lost == gap and seen.misdelivered == 0
    assert seen.seconds == pytest.approx(gap * TICK)


def test_probes_are_read_from_a_capture_among_other_packets(tmp_path: Path) -> None:
    ip = Ether() / IP(src="10.0.0.1", dst="10.0.0.2")
    packets = [
        ip / UDP(dport=7667) / PAYLOAD.pack(MAGIC, 3, 17),
        ip / UDP(dport=7667) / b"something else",
        ip / UDP(dport=7667) / b"",
        ip / TCP(dport=80) / PAYLOAD.pack(MAGIC, 9, 17),
        ip / UDP(dport=7667) / PAYLOAD.pack(MAGIC, 4, 18),
    ]
    wrpcap(str(tmp_path / "a.pcap"), packets)
    assert read_probes(tmp_path / "a.pcap", "x") == [Received(3, "x"), Received(4, "x")]
