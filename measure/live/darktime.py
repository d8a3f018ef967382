"""In-band dark time: what a train of probes says about how long a circuit was dark. Pure, but for reading captures.

A probe is a UDP packet with a number and its send time. A port that is dark swallows probes; the first one that comes
out again says that light is back. Seen from send times, so a queue on the way does not blur it: the error is one
interval of the train at most on each side.
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
"""What a probe carries: ``MAGIC``, its number, its send time (CLOCK_MONOTONIC, nanoseconds)."""
MAGIC = b"RYpb"


@dataclass(frozen=True)
class Probe:
    """One probe: its number in the train and when it was sent (monotonic seconds)."""

    number: int
    t: float


@dataclass(frozen=True)
class Received:
    """A probe that came out at receiver ``at``."""

    number: int
    at: str


@dataclass(frozen=True)
class DarkTime:
    """What a train saw. Times are send times of probes, monotonic seconds.

    ``first_lost_t`` is None (and ``seconds`` 0) if no probe was lost; ``lit_t`` is None (and ``seconds`` infinite)
    if light never came back within the train. ``lost`` counts the probes of the dark interval, ``strays`` those lost
    at other times, ``misdelivered`` those that came out at the old receiver once the new one was lit, or at both.
    """

    first_lost_t: float | None
    lit_t: float | None
    seconds: float
    lost: int
    strays: int = 0
    misdelivered: int = 0


def dark_time(sent: Sequence[Probe], received: Iterable[Received], old: str = "", new: str = "") -> DarkTime:
    """The dark interval of a train: the longest run of probes that arrived nowhere.

    ``old`` and ``new`` name the receivers before and after the change (the same, or empty, if the circuit comes back
    to where it was): then nothing is misdelivered.
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
    lit = train[after].t if after < len(train) else None
    seconds = math.inf if lit is None else lit - train[first].t
    return DarkTime(train[first].t, lit, seconds, length, lost_in_all - length, wrong)


def _longest_gap(arrived: Sequence[bool]) -> tuple[int, int]:
    """Start and length of the longest run of False; the first of equals."""
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
    """The probes in a capture (pcap or pcapng), as received at ``at``; other packets are passed over."""
    found = []
    with PcapReader(str(capture)) as packets:
        for packet in packets:
            if UDP not in packet:
                continue
            payload = bytes(packet[UDP].payload)
            if len(payload) >= PAYLOAD.size and payload.startswith(MAGIC):
                found.append(Received(PAYLOAD.unpack_from(payload)[1], at))
    return found
