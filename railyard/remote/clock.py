"""The monotonic clocks of two machines: how far one is ahead of the other, from four time stamps. Pure.

As in RFC 5905 (NTP), sections 8 and 10: of several exchanges the one with the least round trip counts, since it waited
least, and the offset is known to half of that round trip whatever the two directions took. All times are in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

DRIFT = 30e-6
"""Seconds by which two clocks come apart in a second at most: twice PHI, the tolerance of one clock in RFC 5905."""


class ClockSample(NamedTuple):
    """One exchange: this clock when the request was ``sent`` and its answer was ``back``, the other's in between."""

    sent: float
    received: float
    answered: float
    back: float

    @property
    def round_trip_s(self) -> float:
        return (self.back - self.sent) - (self.answered - self.received)

    @property
    def offset_s(self) -> float:
        """How far the other clock is ahead, if both directions took the same time."""
        return ((self.received - self.sent) + (self.answered - self.back)) / 2


class Offset(NamedTuple):
    """How far the other clock is ahead of this one at ``at_s`` of this clock: ``offset_s`` ± ``uncertainty_s``.

    ``uncertainty_s`` holds for any delays. ``jitter_s`` is how much the samples with short round trips differ (RFC
    5905, section 10), which tells the error where both directions take the same time.
    """

    offset_s: float
    uncertainty_s: float
    round_trip_s: float
    at_s: float
    jitter_s: float


def offset_of(samples: Sequence[ClockSample]) -> Offset:
    """The offset of the other clock, from the sample with the least round trip; ``ValueError`` without samples."""
    best, *others = sorted(samples, key=lambda sample: sample.round_trip_s)
    near = others[: max(1, len(others) // 2)]
    jitter = math.sqrt(sum((each.offset_s - best.offset_s) ** 2 for each in near) / len(near)) if near else 0.0
    apart = DRIFT * (best.back - best.sent)  # the clocks drift while the messages are under way
    uncertainty = best.round_trip_s / 2 + apart
    return Offset(best.offset_s, uncertainty, best.round_trip_s, (best.sent + best.back) / 2, jitter)


def time_here(before: Offset, after: Offset, there_s: float) -> float:
    """The time of this clock when the other showed ``there_s``, whose offset is linear between two measurements."""
    passed = after.at_s - before.at_s
    drift = (after.offset_s - before.offset_s) / passed if passed > 0 else 0.0
    return before.at_s + (there_s - before.offset_s - before.at_s) / (1 + drift)


def sampled(exchange: Callable[[], Sequence[float]], clock: Callable[[], float], times: int = 16) -> list[ClockSample]:
    """Samples of another clock: ``exchange`` asks for it and returns its time at receipt and at the answer."""
    samples = []
    for _ in range(times):
        sent = clock()
        received, answered = exchange()
        samples.append(ClockSample(sent, received, answered, clock()))
    return samples
