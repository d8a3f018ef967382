"""How a 400 Gb/s fabric fits on two cores: two numbers, stated in every result.

``rate`` is emulated link rate / real link rate, ``time`` is emulated seconds per real second. Bytes
scale by rate x time, every delay by time; so the ratios between reconfiguration, window and transfer
are those of the real system. Results are reported in real units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from railyard.errors import ConfigError

MTU_BYTES = 9000
ROCE_MTU_BYTES = 4200
"""MTU whose packets carry the largest RoCE payload, 4096 bytes, plus headers."""
ETHERNET_HEADER_BYTES = 14
"""Bytes that a token bucket on a veth counts in addition to the IP packet."""
TCP_IP_HEADER_BYTES = 52
"""IPv4 20 + TCP 20 + timestamps option 12."""


@dataclass(frozen=True)
class Scale:
    """The scale of a run: ``rate`` for link rates and ``time`` for delays.

    >>> s = Scale(rate=1 / 4000, time=1.0)
    >>> s.emulated_bytes(4_000_000)
    1000
    """

    rate: float
    time: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ConfigError(f"must be above 0 and at most 1, not {self.rate:g}", key="scale.rate")
        if not self.time > 0:
            raise ConfigError(f"must be above 0, not {self.time:g}", key="scale.time")

    def emulated_bytes(self, real_bytes: float) -> int:
        """Bytes to send on the emulated wire for ``real_bytes``: at least 1 unless ``real_bytes`` is 0."""
        scaled = round(real_bytes * self.rate * self.time)
        return max(scaled, 1) if real_bytes > 0 else 0

    def real_bytes(self, emulated_bytes: float) -> float:
        """Bytes of the real system for bytes counted on the emulated wire."""
        return emulated_bytes / (self.rate * self.time)

    def emulated_s(self, real_s: float) -> float:
        """Emulated (wall-clock) seconds for a real delay."""
        return real_s * self.time

    def real_s(self, emulated_s: float) -> float:
        return emulated_s / self.time

    def emulated_mbps(self, real_gbps: float) -> float:
        """Rate of the emulated link in Mb/s for a real link of ``real_gbps`` Gb/s."""
        return real_gbps * 1000 * self.rate


def scale_in_words(scale: Scale) -> str:
    """Both numbers of a scale as text: ``link rate 1/4000, time x1``."""
    inverse = 1 / scale.rate
    whole = abs(inverse - round(inverse)) < 1e-6 * inverse
    rate = f"1/{inverse:.0f}" if whole else f"1/{inverse:.4g}"
    return f"link rate {rate}, time x{scale.time:g}"


def goodput_share(mtu_bytes: int = MTU_BYTES, overhead_bytes: int = 0) -> float:
    """TCP payload per byte that the bucket of a link counts: full packets, and ``overhead_bytes`` more for each."""
    return (mtu_bytes - TCP_IP_HEADER_BYTES) / (mtu_bytes + ETHERNET_HEADER_BYTES + overhead_bytes)


def goodput_bytes_per_s(gbps: float, mtu_bytes: int = MTU_BYTES, overhead_bytes: int = 0) -> float:
    """TCP payload in bytes per second of a link of ``gbps`` Gb/s (full packets, no retransmission)."""
    return gbps * 1e9 / 8 * goodput_share(mtu_bytes, overhead_bytes)


MOST_TIME_SCALE = 1000.0
"""Largest time scale that a person may give."""


def round_up(number: float) -> float:
    """``number`` rounded up to two significant digits."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 1)
    rounded = math.ceil(round(number / unit, 6)) * unit
    return float(f"{rounded:.2g}")


def time_in_words(least: float) -> str | None:
    """The advice to take a time scale of at least ``least``; None for one that would be refused."""
    time = round_up(least)
    return f"scale.time of at least {time:g} (--time {time:g})" if time <= MOST_TIME_SCALE else None


BURST_S = 4e-3
"""A bucket forgets what it could have sent in a pause longer than this, and a busy machine makes pauses: with 16 hosts
of 100 Mb/s on 2 cores that had 40 to 70 other busy processes, the slowest host reached 92 % of the line rate with
buckets of 1 ms, 87 % with 2 ms, 99 % with 4 ms and 99.6 % with 8 ms (medians 97.7, 99.1, 99.5 and 99.9 %)."""


SEGMENTS_PER_S = 4000
"""Segments a second of a whole fabric up to which its buckets are no deeper than by ``BURST_S``. A bucket passes no
segment that is longer than itself, and each costs the processors the same, however long: 256 hosts of 25 Mb/s
on two cores took 1.6 times the ideal time of a ring all-reduce with segments of 17 kB, and 1.01 with 64 kB."""

_LONGEST_SEGMENT_BUCKET_BYTES = 68_300
"""Depth of a bucket that passes the longest segment of Linux, 64 kB, with its headers."""


def shared_burst_bytes(total_mbps: float) -> int:
    """Least depth of the buckets of links that carry ``total_mbps`` together, so that processors keep up with them."""
    return min(round(total_mbps * 1e6 / 8 / SEGMENTS_PER_S), _LONGEST_SEGMENT_BUCKET_BYTES)


def bucket_burst_bytes(rate_mbps: float, mtu_bytes: int = MTU_BYTES, least_bytes: int = 0) -> int:
    """Depth of the token bucket of a link: two full frames, ``BURST_S`` of the rate or ``least_bytes``: the most.

    After a pause this many bytes pass at once, so a sender that needs exact times waits until that credit is used up.
    """
    return max(2 * (mtu_bytes + ETHERNET_HEADER_BYTES), round(rate_mbps * 1e6 / 8 * BURST_S), least_bytes)


_ROUNDING = 1e-6
"""What is so little under a floor is the floor: what ``round_up`` leaves away is less."""


@dataclass(frozen=True)
class Floors:
    """Least sizes and times of an emulated run; below them it would show the emulator and not the system.

    ``delay_s`` and ``slot_s`` are wall-clock seconds of a delay and of a slot; ``guard_s`` is the guard time that this
    machine needs at the end of a slot.
    """

    packets_per_transfer: int = 24
    delay_s: float = 0.002
    slot_s: float = 0.002
    guard_s: float = 0.002

    def check_transfer(self, real_bytes: float, what: str, scale: Scale, mtu_bytes: int = MTU_BYTES) -> None:
        """Raise ``ConfigError`` for a transfer of too few packets, naming a scale that would carry it.

        Unscaled transfers (rate x time of at least 1) are never refused.
        """
        if scale.rate * scale.time >= 1 - _ROUNDING:
            return
        need = self.packets_per_transfer * (mtu_bytes - TCP_IP_HEADER_BYTES)
        emulated_bytes = scale.emulated_bytes(real_bytes)
        if emulated_bytes < need:
            # One byte more than needed, since a scale rounds to whole bytes.
            product = min(1.0, round_up((need + 1) / real_bytes))
            time = time_in_words(product / scale.rate)
            at_rate = f": at this rate {time}" if time else ""
            raise ConfigError(
                f"{what} is {emulated_bytes} bytes on the emulated wire, under the floor of "
                f"{self.packets_per_transfer} packets ({need} bytes); rate x time of at least {product:.2g} would "
                f"carry it{at_rate}",
                key="scale",
            )

    def check_delay(self, real_s: float, what: str, scale: Scale) -> None:
        """Raise ``ConfigError`` for a delay that the timers of this machine cannot keep; 0 is always allowed."""
        _check_time(real_s, self.delay_s, what, scale)

    def check_slot(self, real_s: float, what: str, scale: Scale) -> None:
        """Raise ``ConfigError`` for a slot that is too short for this machine; 0 (no fixed length) is allowed."""
        _check_time(real_s, self.slot_s, what, scale)


def _check_time(real_s: float, least_s: float, what: str, scale: Scale) -> None:
    emulated = scale.emulated_s(real_s)
    if 0 < emulated < least_s * (1 - _ROUNDING):
        time = time_in_words(least_s / real_s)
        raise ConfigError(
            f"{what} is {emulated * 1e3:.3g} ms of wall-clock time, under the floor of {least_s * 1e3:.3g} ms; "
            f"{f'{time} would carry it, or ask the model' if time else 'ask the model'} (--predict)",
            key="scale.time",
        )
