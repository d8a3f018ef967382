"""The choice of a scale: the fastest run that this machine carries and whose expected error is small. Pure.

Each transfer of an emulated run takes some time more than its bytes at line rate (``calibration.TransferCost``): agents
wake up, messages are matched, timers are late. In real units this cost is divided by the time scale, so a slower run
has a smaller error. Its share of a step is the expected error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from measure.live.calibration import Capacity
from railyard.errors import ConfigError
from railyard.scale import MTU_BYTES, TCP_IP_HEADER_BYTES, Floors, Scale, round_up, time_in_words

TARGET_ERROR = 0.02
"""Expected error of a step up to which the fastest scale is taken: half of what a step may differ from others."""
MOST_MBPS = 1000.0
"""Highest rate of one emulated link, Mb/s; above it one burst (64 kB) is a visible share of a transfer."""
MOST_TIME = 10.0
"""Largest time scale that is chosen so that transfers fill enough packets; a larger one must be given explicitly."""
MOST_STRETCH = 1.3
"""Largest time scale that is chosen for a smaller expected error; ``--quick`` then stays under two minutes."""

Pace = Mapping[int, float]
"""Transfers one after another in a real second of a step, by the number of ranks of the collective."""


@dataclass(frozen=True)
class ScaleNeeds:
    """Demands of a job on the scale.

    ``ports`` links of ``real_gbps`` (real Gb/s) may all send at once; ``smallest_bytes`` is its smallest transfer (real
    bytes; 0: none), ``pace`` how often transfers follow each other (empty: unknown).
    """

    ports: int
    real_gbps: float
    smallest_bytes: float = 0.0
    pace: Pace | None = None
    mtu_bytes: int = MTU_BYTES


def expected_error(needs: ScaleNeeds, capacity: Capacity, scale: Scale) -> float | None:
    """Share by which a step is expected to take longer than on ideal links; None if the pace is unknown."""
    if needs.pace is None:
        return None
    load = needs.ports * scale.emulated_mbps(needs.real_gbps)
    return sum(often * capacity.transfer_s(ranks, load) for ranks, often in needs.pace.items()) / scale.time


def pick_scale(needs: ScaleNeeds, floors: Floors, capacity: Capacity, time: float | None = None) -> Scale:
    """Choose the scale of a job with these ``needs`` on this machine.

    ``rate`` is 1/N (N of two digits and zeros), at most what the machine carries on all ports at once. ``time`` is 1,
    or what the smallest transfer needs to have as many packets as ``floors`` requires, or what brings the expected
    error down to ``TARGET_ERROR``, up to ``MOST_STRETCH``; a given ``time`` is kept. Of the rates at which the cost
    of a transfer is known, the one with the fastest run within the target is taken, else that with the smallest error.
    Raises ``ConfigError`` that says what would work.
    """
    if needs.ports < 1 or not needs.real_gbps > 0:
        raise ConfigError(
            f"needs at least one port and a rate above 0, not {needs.ports} ports of {needs.real_gbps:g} Gb/s"
        )
    loads = [min(load, capacity.carries_mbps) for load in capacity.loads_mbps]
    fitting, refused = [], None
    for load in dict.fromkeys(loads):
        rate = _tidy_rate(min(load / needs.ports, MOST_MBPS) / (needs.real_gbps * 1000))
        try:
            fitting.append(_at_rate(needs, floors, capacity, rate, time))
        except ConfigError as error:
            refused = refused or error
    if refused is not None and not fitting:
        raise refused

    def order(scale: Scale) -> tuple[float, float, float]:
        error = expected_error(needs, capacity, scale) or 0.0
        return max(error, TARGET_ERROR * (1 + 1e-9)), scale.time, -scale.rate

    return min(fitting, key=order)


def check_carried(needs: ScaleNeeds, capacity: Capacity, scale: Scale, *, guessed: bool) -> None:
    """Raise ``ConfigError`` if all links together are faster than what this machine carries, or is ``guessed`` to."""
    load = needs.ports * scale.emulated_mbps(needs.real_gbps)
    if capacity.aggregate_limited and load > capacity.aggregate_mbps:
        works = _tidy_rate(capacity.carries_mbps / needs.ports / (needs.real_gbps * 1000))
        carries = "a machine that was not calibrated is taken to carry" if guessed else "this machine carries"
        raise ConfigError(
            f"{needs.ports} links of {scale.emulated_mbps(needs.real_gbps):.3g} Mb/s are {load / 1e3:.3g} Gb/s, and "
            f"{carries} {capacity.aggregate_mbps / 1e3:.3g} Gb/s (railyard calibrate); use --rate "
            f"1/{1 / works:.0f} or leave it away",
            key="scale.rate",
        )


def _at_rate(needs: ScaleNeeds, floors: Floors, capacity: Capacity, rate: float, time: float | None) -> Scale:
    """The scale with ``rate``; ``ConfigError`` if its transfers would be too small with any time."""
    least = floors.packets_per_transfer * (needs.mtu_bytes - TCP_IP_HEADER_BYTES)
    limit = time or MOST_TIME
    # One byte more than needed, since Scale rounds to whole bytes; with rate x time of 1 nothing is too small.
    enough = min((least + 1) / (needs.smallest_bytes * rate), 1 / rate) if needs.smallest_bytes > 0 else 0.0
    if enough > limit * (1 + 1e-9):
        raise ConfigError(_too_small(needs, least, rate, enough, limit), key="scale")
    if time is not None:
        return Scale(rate=rate, time=time)
    off = (expected_error(needs, capacity, Scale(rate)) or 0.0) / TARGET_ERROR
    stretch = max(min(off, MOST_STRETCH), enough)
    return Scale(rate=rate, time=round_up(stretch) if stretch > 1 else 1.0)


def _too_small(needs: ScaleNeeds, least: int, rate: float, enough: float, limit: float) -> str:
    fewer = int(needs.ports * limit / enough)
    works = [
        time_in_words(enough),
        f"transfers of at least {round_up((least + 1) / (rate * limit)):,.0f} bytes",
        f"at most {fewer} port{'s' if fewer > 1 else ''} sending at once" if fewer >= 1 else None,
    ]
    return (
        f"the smallest transfer ({needs.smallest_bytes:,.0f} bytes on {needs.ports} ports of {needs.real_gbps:g} Gb/s) "
        f"would be under {least:,} bytes on the emulated wire of this machine; what would work: "
        f"{', or '.join(filter(None, works))}"
    )


def _tidy_rate(rate: float) -> float:
    """The highest 1/N up to ``rate`` with N of two digits and zeros (1/4000 rather than 1/3937)."""
    return 1.0 if rate >= 1 else 1 / round_up(1 / rate)
