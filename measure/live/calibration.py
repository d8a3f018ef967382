"""Calibration: the traffic that this machine can emulate faithfully over each datapath.

``railyard calibrate`` measures and saves a ``Calibration``; runs take their scale (``measure.live.scale_choice``),
their floors and the costs of their model from it.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from math import log
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from railyard.checkout import railyard_as_root
from railyard.errors import ConfigError, MachineError
from railyard.ownership import replace_file
from railyard.scale import Floors
from railyard.validation import Seconds, from_plain

CALIBRATION_FILE = Path("/var/lib/railyard/calibration.json")
FORMAT: Final = 3
NEVER = "never"
"""``measured_at`` of values that were not measured on this machine."""
HEADROOM = 0.4
"""Share of the measured aggregate rate that a run may use.

Streams make up for a pause, but the steps of a collective cannot: with 7.6 Gb/s of streams measured on 2 processors, a
ring all-reduce stayed within 5 % of its ideal up to about 3.2 Gb/s.
"""
Datapath = Literal["bpf", "ovs"]
DATAPATHS: tuple[Datapath, ...] = get_args(Datapath)
"""What forwards packets, in the order in which ``auto`` takes them."""
_TIMER_MARGIN = 2
"""Least guard time in multiples of the 99th percentile of the timer error: a late sender loses packets, and each loss
may cost many slots, since TCP repeats a packet when its time-out ends and not when its circuit is up."""
_SLOT_MARGIN = 4
"""Least slot in multiples of such a guard time: in a shorter one more than a quarter is guard."""

Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class TimerError:
    """Delay with which a sleeping process wakes, in seconds: median, 99th percentile, maximum, number of sleeps."""

    p50_s: float
    p99_s: float
    max_s: float
    count: int


@dataclass(frozen=True)
class TransferCost:
    """Seconds that a transfer of a collective takes beyond its bytes at line rate.

    The median with agents that compute, then gather within groups of ``ranks`` of them, while the rates of all links in
    one direction add up to ``aggregate_mbps``.
    """

    ranks: Annotated[int, Field(ge=2)]
    aggregate_mbps: Positive
    seconds: Seconds


@dataclass(frozen=True)
class HopCost:
    """Seconds that a message takes beyond its bytes at line rate where each waits for another.

    What ``hosts`` agents that all-reduce over two trees take longer than the model, as seconds of each message on the
    critical path (median of the all-reduces, at least 0); it holds the start and the end of the all-reduce too.
    """

    hosts: Annotated[int, Field(ge=2)]
    seconds: Seconds


@dataclass(frozen=True)
class ControlCost:
    """Seconds of the control plane.

    - ``swap_s``: from a request to packets following, if circuits change without delay (median), ``swap_p99_s`` its
      99th percentile;
    - ``shortest_dark_s``: the shortest delay that dark times keep to a fifth (median).
    """

    swap_s: Seconds
    swap_p99_s: Seconds
    shortest_dark_s: Seconds


@dataclass(frozen=True)
class Capacity:
    """The capacity of this machine over one datapath.

    - ``aggregate_mbps``: sum of the links' rates, one direction, up to which ``hosts`` hosts in a ring all reach 95 %
      of line-rate goodput through one bridge; ``aggregate_limited`` is False if the benchmark stopped at its ceiling;
    - ``alpha_s``: one-way time of a small message through a bridge (median), ``alpha_p99_s`` its 99th percentile;
    - ``transfers``: cost of a transfer at some numbers of ranks and loads (none: not measured);
    - ``control``: of the control plane;
    - ``hops``: what a message costs that waits for another, at some numbers of hosts (none: not measured).
    """

    hosts: int
    aggregate_mbps: Positive
    aggregate_limited: bool
    alpha_s: Positive
    alpha_p99_s: Seconds
    transfers: tuple[TransferCost, ...]
    control: ControlCost
    hops: tuple[HopCost, ...] = ()

    @property
    def carries_mbps(self) -> float:
        """Aggregate rate that a run may use, Mb/s: ``HEADROOM`` times the measured one."""
        return self.aggregate_mbps * HEADROOM

    @property
    def loads_mbps(self) -> tuple[float, ...]:
        """The aggregate rates at which the cost of a transfer is known, highest first; at least ``carries_mbps``."""
        return tuple(sorted({cost.aggregate_mbps for cost in self.transfers}, reverse=True)) or (self.carries_mbps,)

    def transfer_s(self, ranks: int, aggregate_mbps: float) -> float:
        """Seconds beyond line rate of a transfer among ``ranks`` at this load; ``alpha_s`` where nothing was measured.

        Of the loads measured the lowest that is not below the given one counts (none: the highest), of the numbers of
        ranks the nearest.
        """
        if not self.transfers:
            return self.alpha_s
        enough = [load for load in self.loads_mbps if load >= aggregate_mbps * (1 - 1e-6)]
        load = min(enough, default=self.loads_mbps[0])
        at_load = [cost for cost in self.transfers if cost.aggregate_mbps == load]
        return min(at_load, key=lambda cost: abs(log(cost.ranks / ranks))).seconds

    def hop_s(self, hosts: int) -> float:
        """Cost of a message that waits for another, where ``hosts`` are at work: of the nearest number measured.

        ``alpha_s`` where nothing was measured.
        """
        return min(self.hops, key=lambda cost: abs(log(cost.hosts / hosts))).seconds if self.hops else self.alpha_s


_NO_FASTPATH = Capacity(
    hosts=0,
    aggregate_mbps=4000.0,
    aggregate_limited=True,
    alpha_s=200e-6,
    alpha_p99_s=1e-3,
    transfers=(TransferCost(2, 1600.0, 3.5e-3), TransferCost(16, 1600.0, 2e-3)),
    control=ControlCost(9e-3, 12e-3, 2e-3),
)
_FASTPATH = Capacity(
    hosts=0,
    aggregate_mbps=6000.0,
    aggregate_limited=True,
    alpha_s=150e-6,
    alpha_p99_s=1e-3,
    transfers=(TransferCost(2, 2400.0, 2.5e-3), TransferCost(16, 2400.0, 1e-3)),
    control=ControlCost(3e-3, 8e-3, 1e-3),
)
UNCALIBRATED: Mapping[Datapath, Capacity] = {"bpf": _FASTPATH, "ovs": _NO_FASTPATH}
"""Values for a datapath that was not measured: about half of what 2 processors carried, and costs as measured there."""
LEAST: Mapping[Datapath, Floors] = {
    "bpf": Floors(delay_s=0.0003, guard_s=0.0003, slot_s=0.001),
    "ovs": Floors(),
}
"""Floors on the best of machines. Caches of Open vSwitch follow a change up to 2 ms later, unseen by the
controller."""
UNTIMED: Mapping[Datapath, Floors] = {
    "bpf": Floors(delay_s=0.001, guard_s=0.001, slot_s=0.002),
    "ovs": Floors(),
}
"""Floors on a machine whose timers, or whose dark times over the datapath, were not measured."""


@dataclass(frozen=True)
class Calibration:
    """The results of the machine benchmark on one machine.

    - ``open_vswitch``: datapath of Open vSwitch itself, ``system`` (kernel) or ``netdev`` (userspace);
    - ``busy_share``: processor load (0..1) of other programs during the benchmark;
    - ``timer_idle`` and ``timer_loaded``: timer errors of the idle machine and with every processor busy; a ``count``
      of 0: not measured;
    - ``datapaths``: what was measured over each datapath that works here;
    - ``spared_share``: the part of the processors (0..1) that a run leaves to others (``beside``).
    """

    format: Literal[3]
    measured_at: str
    quick: bool
    kernel: str
    cpus: Annotated[int, Field(ge=1)]
    open_vswitch: str
    busy_share: float
    timer_idle: TimerError
    timer_loaded: TimerError
    datapaths: Mapping[Datapath, Capacity] = field(default_factory=dict)
    spared_share: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @property
    def guessed(self) -> bool:
        """Whether this machine was never measured, so that the values are those of another one."""
        return self.measured_at == NEVER

    def takes(self, asked: str = "auto") -> Datapath:
        """The datapath of a run that asks for ``asked``: with ``auto`` the first that the machine has, or else ovs."""
        if asked in DATAPATHS:
            return asked
        return next((name for name in DATAPATHS if name in self.datapaths), "ovs")

    def of(self, asked: str = "auto") -> Capacity:
        """The capacity of the datapath that a run takes with ``asked``; conservative values if it was not measured."""
        name = self.takes(asked)
        capacity = self.datapaths.get(name, UNCALIBRATED[name])
        return replace(capacity, aggregate_mbps=capacity.aggregate_mbps * (1 - self.spared_share))

    def floors(self, asked: str = "auto") -> Floors:
        """Least transfer, delay, slot and guard time of a run on this machine."""
        name = self.takes(asked)
        measured, least = self.datapaths.get(name), LEAST[name]
        if measured is None or not self.timer_idle.count:
            return UNTIMED[name]
        late_s = _TIMER_MARGIN * self.timer_idle.p99_s
        return Floors(
            delay_s=max(least.delay_s, measured.control.shortest_dark_s),
            guard_s=max(least.guard_s, late_s),
            slot_s=max(least.slot_s, _SLOT_MARGIN * late_s),
        )

    def beside(self, share: float) -> Calibration:
        """The calibration with less traffic by ``share`` (0..1): the part of the processors that others keep busy."""
        return replace(self, spared_share=share)

    def is_of_this_machine(self) -> bool:
        """Whether this machine has the kernel and the processor count of the calibration."""
        return (self.kernel, self.cpus) == (platform.release(), os.cpu_count() or 1)


def default_calibration(datapaths: Iterable[Datapath] = ()) -> Calibration:
    """Conservative values for a machine without calibration, which has ``datapaths``."""
    return Calibration(
        format=FORMAT,
        measured_at=NEVER,
        quick=True,
        kernel=platform.release(),
        cpus=os.cpu_count() or 1,
        open_vswitch="",
        busy_share=0.0,
        timer_idle=TimerError(100e-6, 200e-6, 2e-3, 0),
        timer_loaded=TimerError(200e-6, 4e-3, 10e-3, 0),
        datapaths={name: UNCALIBRATED[name] for name in datapaths},
    )


def save_calibration(calibration: Calibration, path: Path = CALIBRATION_FILE) -> None:
    """Save a calibration; that of the machine, which runs of root take, stays root's."""
    callers = path != CALIBRATION_FILE
    if not callers:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    replace_file(path, json.dumps(asdict(calibration), indent=2) + "\n", links=True, permissions=0o644, callers=callers)


def load_calibration(path: Path = CALIBRATION_FILE) -> Calibration | None:
    """Load the saved calibration; None if there is none, or if kernel or processor count differ.

    Raises ``MachineError`` for a file of another version, and for one that is not a calibration.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        calibration = from_plain(Calibration, text, "a calibration")
    except ConfigError as error:
        why = (
            f"the calibration in {path} is of another version" if error.key == "format" else f"{path} is no calibration"
        )
        raise MachineError(f"{why}; measure again with: {railyard_as_root('calibrate')}") from None
    return calibration if calibration.is_of_this_machine() else None


def this_machine() -> Calibration:
    """The saved calibration; without one, conservative values for the datapaths that the kernel has.

    ``MachineError`` for a file that this version does not read.
    """
    return load_calibration() or default_calibration(_available())


@cache
def _available() -> tuple[Datapath, ...]:
    """The datapath that ``auto`` takes here, and ovs; without root that of most kernels, which cannot be asked."""
    if os.geteuid() != 0:
        return "bpf", "ovs"
    from topos.kernel.fastpath.bpf_forwarder import BpfForwarder

    try:
        BpfForwarder(-1, ports=1).close()
    except MachineError:
        return ("ovs",)
    return "bpf", "ovs"
