"""Calibration: the traffic that this machine can emulate faithfully, and the scale that follows from it.

``railyard calibrate`` measures and saves a ``Calibration``; a run with ``scale.rate: auto`` reads it and
takes the highest link rate that the machine carries on all ports at once.
"""

from __future__ import annotations

import json
import math
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from railyard.checkout import sudo
from railyard.errors import ConfigError, MachineError
from railyard.scale import MTU_BYTES, TCP_IP_HEADER_BYTES, Floors, Scale
from railyard.validation import from_plain

CALIBRATION_FILE = Path("/var/lib/railyard/calibration.json")
FORMAT: Final = 1
HEADROOM = 0.4
"""Share of the measured aggregate rate that a run may use.

Streams make up for a pause, but the steps of a collective cannot: with 7.6 Gb/s of streams measured on 2 processors, a
ring all-reduce stayed within 5 % of its ideal up to about 3.2 Gb/s.
"""
MOST_MBPS = 1000.0
"""Highest rate of one emulated link, Mb/s; above it one burst (64 kB) is a visible share of a transfer."""
MOST_TIME = 10.0
"""Largest time scale that ``pick_scale`` chooses by itself; a larger one must be given explicitly."""
_TIMER_MARGIN = 10
"""Least delay of a run, in multiples of the 99th percentile of the timer error."""


@dataclass(frozen=True)
class TimerError:
    """Delay with which a sleeping process wakes, in seconds: median, 99th percentile, maximum, number of sleeps."""

    p50_s: float
    p99_s: float
    max_s: float
    count: int


@dataclass(frozen=True)
class Calibration:
    """The results of the machine benchmark on one machine.

    - ``aggregate_mbps``: sum of the links' rates, one direction, up to which ``hosts`` hosts in a ring all reach 95 %
      of line-rate goodput through one bridge; ``aggregate_limited`` is False if the benchmark stopped at its ceiling;
    - ``alpha_s``: one-way time of a small message through a bridge (median), ``alpha_p99_s`` its 99th percentile;
    - ``busy_share``: processor load (0..1) of other programs during the benchmark;
    - ``timer_idle`` and ``timer_loaded``: timer errors of the idle machine and with every processor busy;
    - ``datapath``: of Open vSwitch, ``system`` or ``netdev``.

    Raises ``ValueError`` unless ``aggregate_mbps``, ``alpha_s`` and ``cpus`` are above 0.
    """

    format: Literal[1]
    measured_at: str
    quick: bool
    kernel: str
    cpus: int
    datapath: str
    hosts: int
    aggregate_mbps: float
    aggregate_limited: bool
    alpha_s: float
    alpha_p99_s: float
    busy_share: float
    timer_idle: TimerError
    timer_loaded: TimerError

    def __post_init__(self) -> None:
        if not self.aggregate_mbps > 0 or not self.alpha_s > 0 or self.cpus < 1:
            raise ValueError("aggregate_mbps, alpha_s and cpus must be above 0")

    @property
    def carries_mbps(self) -> float:
        """Aggregate rate that a run may use, Mb/s: ``HEADROOM`` times the measured one."""
        return self.aggregate_mbps * HEADROOM

    def floors(self) -> Floors:
        """Least transfer and delay of a run on this machine; the delay is well above the error of idle timers."""
        return Floors(delay_s=max(Floors().delay_s, _TIMER_MARGIN * self.timer_idle.p99_s))

    def is_of_this_machine(self) -> bool:
        """Whether this machine has the kernel and the processor count of the calibration."""
        return (self.kernel, self.cpus) == (platform.release(), os.cpu_count() or 1)


def default_calibration() -> Calibration:
    """Conservative values for a machine without calibration: half of 2 processors with the userspace datapath."""
    return Calibration(
        format=FORMAT,
        measured_at="never",
        quick=True,
        kernel=platform.release(),
        cpus=os.cpu_count() or 1,
        datapath="netdev",
        hosts=0,
        aggregate_mbps=4000.0,
        aggregate_limited=True,
        alpha_s=200e-6,
        alpha_p99_s=1e-3,
        busy_share=0.0,
        timer_idle=TimerError(100e-6, 200e-6, 2e-3, 0),
        timer_loaded=TimerError(200e-6, 4e-3, 10e-3, 0),
    )


def save_calibration(calibration: Calibration, path: Path = CALIBRATION_FILE) -> None:
    """Save a calibration, readable by all users; the file is replaced atomically."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(asdict(calibration), indent=2) + "\n")
    fresh.chmod(0o644)
    fresh.replace(path)


def load_calibration(path: Path = CALIBRATION_FILE) -> Calibration | None:
    """Load the saved calibration; None if there is none, or if kernel or processor count differ.

    Raises ``MachineError`` for a file that is not a calibration.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        calibration = from_plain(Calibration, text, "a calibration")
    except ConfigError:
        raise MachineError(
            f"{path} is not a calibration that this version reads; write a new one with {sudo('calibrate')}"
        ) from None
    return calibration if calibration.is_of_this_machine() else None


def pick_scale(
    ports: int,
    real_gbps: float,
    smallest_transfer_bytes: float,
    floors: Floors | None = None,
    *,
    calibration: Calibration | None = None,
    time: float | None = None,
    mtu_bytes: int = MTU_BYTES,
) -> Scale:
    """Choose the scale for ``ports`` links of ``real_gbps`` (real Gb/s) that may all send at once.

    ``rate`` is the highest 1/N (N of two digits and zeros) that the machine carries. ``time`` is 1 unless the smallest
    transfer (real bytes; 0 for none) would then have fewer packets than ``floors`` requires; a given ``time`` is kept.
    Defaults are ``default_calibration()`` and its floors. Raises ``ConfigError`` that says what would work.
    """
    if ports < 1 or not real_gbps > 0:
        raise ConfigError(f"needs at least one port and a rate above 0, not {ports} ports of {real_gbps:g} Gb/s")
    calibration = calibration or default_calibration()
    floors = floors or calibration.floors()
    rate = _tidy_rate(min(calibration.carries_mbps / ports, MOST_MBPS) / (real_gbps * 1000))
    need = floors.packets_per_transfer * (mtu_bytes - TCP_IP_HEADER_BYTES)
    # One byte more than needed, since Scale rounds to whole bytes.
    enough = (need + 1) / (smallest_transfer_bytes * rate) if smallest_transfer_bytes > 0 else 0.0
    if enough <= (time or 1.0) or rate * (time or 1.0) >= 1:
        return Scale(rate=rate, time=time or 1.0)
    if time is None and enough <= MOST_TIME:
        return Scale(rate=rate, time=_round_up(enough))
    raise ConfigError(_too_small(ports, real_gbps, smallest_transfer_bytes, need, enough, time), key="scale")


def _too_small(
    ports: int, real_gbps: float, smallest_bytes: float, need: int, enough: float, time: float | None
) -> str:
    limit = time or MOST_TIME
    fewer = int(ports * limit / enough)
    other = f", at most {fewer} ports sending at once" if fewer >= 1 else ""
    return (
        f"the smallest transfer ({smallest_bytes:.4g} bytes on {ports} ports of {real_gbps:g} Gb/s) would be under "
        f"{need} bytes on the emulated wire of this machine; what would work: scale.time of at least "
        f"{_round_up(enough):g}, or transfers of at least {_round_up(smallest_bytes * enough / limit):.3g} bytes{other}"
    )


def _tidy_rate(rate: float) -> float:
    """The highest 1/N up to ``rate`` with N of two digits and zeros (1/4000 rather than 1/3937)."""
    return 1.0 if rate >= 1 else 1 / _round_up(1 / rate)


def _round_up(number: float) -> float:
    """``number`` rounded up to two significant digits."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 1)
    rounded = math.ceil(round(number / unit, 6)) * unit
    return float(f"{rounded:.2g}")
