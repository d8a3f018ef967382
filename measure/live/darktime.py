"""In-band dark time: computes from a train of probes how long a circuit was dark. Pure, but for reading captures.

A probe is a UDP packet with a number and its send time. A dark port drops probes; the first one to be received again
shows that the circuit is up. The dark time is measured by send times, so queues on the path do not affect it: the error
is at most one interval of the train on each side.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scapy.layers.inet import UDP
from scapy.utils import PcapReader

PAYLOAD = struct.Struct("!4sIQ")
"""Payload of a probe: ``MAGIC``, its number, its send time (CLOCK_MONOTONIC, nanoseconds)."""
MAGIC = b"RYpb"


@dataclass(frozen=True)
class Probe:
    """One probe: its number in the train and its send time (monotonic seconds)."""

    number: int
    t: float


@dataclass(frozen=True)
class Received:
    """A probe, by its number, that was received at ``at``."""

    number: int
    at: str


@dataclass(frozen=True)
class DarkTime:
    """The dark time that a train measured. Times are send times of probes, monotonic seconds.

    ``first_lost_t`` is None (and ``seconds`` 0) if no probe was lost; ``up_t`` is None (and ``seconds`` infinite) if no
    circuit came up within the train. ``lost`` counts the probes of the dark interval, ``strays`` those lost at other
    times, ``misdelivered`` those received at the old receiver after the new one had received a probe, or at both.
    """

    first_lost_t: float | None
    up_t: float | None
    seconds: float
    lost: int
    strays: int = 0
    misdelivered: int = 0


def dark_time(sent: Sequence[Probe], received: Iterable[Received], old: str = "", new: str = "") -> DarkTime:
    """The dark interval of a train: the longest sequence of consecutive probes that no receiver got.

    ``old`` and ``new`` name the receivers before and after the change. If they are equal or empty (the circuit returns
    to the same port), no probe counts as misdelivered.
    """
    places: dict[int, set[str]] = {}
    for one in received:
        places.setdefault(one.number, set()).add(one.at)
    train = sorted(sent, key=lambda p: p.number)
    first, length = _longest_gap([p.number in places for p in train])
    lost_in_all = sum(p.number not in places for p in train)
    wrong = _misdelivered(train, places, old, new)
    if not length:
        return DarkTime(None, None, 0.0, 0, 0, wrong)
    after = first + length
    up_t = train[after].t if after < len(train) else None
    seconds = math.inf if up_t is None else up_t - train[first].t
    return DarkTime(train[first].t, up_t, seconds, length, lost_in_all - length, wrong)


def _longest_gap(arrived: Sequence[bool]) -> tuple[int, int]:
    """Start and length of the longest sequence of False; the first of several equally long ones."""
    best, start, length = (0, 0), 0, 0
    for place, here in enumerate(arrived):
        if here:
            length = 0
            continue
        start = place if length == 0 else start
        length += 1
        best = (start, length) if length > best[1] else best
    return best


def _misdelivered(train: Sequence[Probe], places: Mapping[int, set[str]], old: str, new: str) -> int:
    if not old or not new or old == new:
        return 0
    moved = next((p.number for p in train if new in places.get(p.number, ())), None)
    return sum(
        old in places.get(p.number, ()) and (new in places[p.number] or (moved is not None and p.number > moved))
        for p in train
    )


def read_probes(capture: Path, at: str) -> list[Received]:
    """The probes in a capture (pcap or pcapng) that was taken at ``at``; other packets are skipped."""
    found = []
    with PcapReader(str(capture)) as packets:
        for packet in packets:
            if UDP not in packet:
                continue
            payload = bytes(packet[UDP].payload)
            if len(payload) >= PAYLOAD.size and payload.startswith(MAGIC):
                found.append(Received(PAYLOAD.unpack_from(payload)[1], at))
    return found
