"""``railyard calibrate``: what this machine can emulate faithfully, which gives later runs their scale and floors."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from commands.bench.bed import Bed, laps_s, play
from commands.bench.fabric import ring, share_of_line
from experiments.experiment import Experiment
from experiments.report import Report, to_nothing
from experiments.settings import Option, Settings
from measure.live import machine_benchmark
from measure.live.calibration import (
    CALIBRATION_FILE,
    DATAPATHS,
    FORMAT,
    HEADROOM,
    Calibration,
    Capacity,
    ControlCost,
    Datapath,
    HopCost,
    TransferCost,
    load_calibration,
    save_calibration,
)
from measure.live.machine_benchmark import sample_of
from measure.live.processor import Processor
from measure.live.scale_choice import ScaleNeeds, pick_scale
from measure.metrics.checks import Limits
from measure.model.prediction import Costs, predict
from measure.results.row import ResultRow, Row
from railyard.checkout import railyard_as_root
from railyard.errors import MachineError
from railyard.scale import ROCE_MTU_BYTES, goodput_share
from railyard.timeline import Event
from railyard.validation import from_plain
from topos.kernel.emulation import Emulation
from topos.kernel.ovs import choose_datapath
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.agent.launcher import AgentLauncher
from workloads.program import Collective, Compute, Group, Program
from workloads.schedule import CollectiveKind

if TYPE_CHECKING:
    from experiments.runner import Runner

FAITHFUL_SHARE = 0.95
"""Share of its line-rate goodput that a link must reach to count as faithful."""
BUSY_SHARE = 0.15
"""Highest load of a machine that counts as idle, as a share of all processors."""
MOST_BUSY_SHARE = 0.5
"""Highest load by other work at which a machine is measured, as a share of all processors."""
HOSTS = 16
LOADS = (1.0, 0.25)
"""Loads at which the cost of transfers is measured, as shares of what a run may use."""
_TRIES = 2
"""Measurements of a rate before it counts as too high: other users of a shared machine disturb single ones."""
_START_MBPS = 1600.0
_CEILING_MBPS = 25_600.0

Say = Callable[[str], None]


def calibrate_machine(
    quick: bool = False, say: Say = lambda _: None, datapaths: Sequence[Datapath] = DATAPATHS
) -> Calibration:
    """Measure this machine, about a minute for each datapath, or 20 s when ``quick``; needs root.

    ``say`` is called with a progress line as each part starts. A datapath that this machine does not have is left out.
    ``MachineError`` when the machine is too busy, cannot bring a fabric up, or has none of ``datapaths``.
    """
    timer_s = 0.8 if quick else 4.0
    say("timers at rest")
    processor = Processor()
    timer_idle = machine_benchmark.timer_error(timer_s)
    busy_share = processor.read(timer_s).busy
    if busy_share > MOST_BUSY_SHARE:
        raise MachineError(f"other work keeps {busy_share:.0%} of the processors busy; try again when it is idle")
    if busy_share > BUSY_SHARE:
        say(f"the machine is {busy_share:.0%} busy with something else; the results describe the remaining capacity")
    say("timers with every processor busy")
    with machine_benchmark.busy_processors():
        timer_loaded = machine_benchmark.timer_error(timer_s)
    found: dict[Datapath, Capacity] = {}
    with AgentLauncher.start() as launcher:
        for name in datapaths:
            try:
                with (bed := Bed(name)).make(RailTopo(servers=2, gpus=1, ports=1, rate_mbps=100.0)):
                    pass
            except MachineError as error:
                say(f"datapath {name}: left out: {error}")
                continue
            found[name] = capacity(bed, launcher, quick, lambda text, name=name: say(f"{name}: {text}"))  # type: ignore[misc]
    if not found:
        raise MachineError(f"this machine has none of the datapaths {', '.join(datapaths)}; name another one")
    return Calibration(
        format=FORMAT,
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        quick=quick,
        kernel=platform.release(),
        cpus=os.cpu_count() or 1,
        open_vswitch=choose_datapath("auto"),
        busy_share=round(busy_share, 3),
        timer_idle=timer_idle,
        timer_loaded=timer_loaded,
        datapaths=found,
    )


def capacity(bed: Bed, launcher: AgentLauncher, quick: bool, say: Say) -> Capacity:
    say("small messages")
    with ring(bed, 2, 1000.0) as lanes:
        alpha = machine_benchmark.message_times(lanes[0].sender, lanes[0].receiver, 200 if quick else 1000)
    say("circuits")
    control = control_cost(bed, 30 if quick else 100)
    highest = _highest_rate(bed, quick, say)
    costs = []
    for load in LOADS:
        aggregate_mbps = round(highest.value * HEADROOM * load, 1)
        with bed.make(transfer_rail(HOSTS, aggregate_mbps)) as net:
            costs += transfer_costs(net, launcher, aggregate_mbps, quick)
        shown = ", ".join(f"{cost.seconds * 1e3:.2g} ms among {cost.ranks}" for cost in costs[-2:])
        say(f"a transfer at {aggregate_mbps:,.0f} Mb/s in all takes {shown} more than at line rate")
    say("messages that wait for others")
    port_mbps = min(TREE_MBPS, highest.value * HEADROOM / HOSTS)
    with bed.make(transfer_rail(HOSTS, HOSTS * port_mbps, 1)) as net:
        hops = hop_costs(net, launcher, port_mbps, quick)
    return Capacity(
        hosts=HOSTS,
        aggregate_mbps=round(highest.value, 1),
        aggregate_limited=highest.limited,
        alpha_s=alpha.p50,
        alpha_p99_s=alpha.p99,
        transfers=tuple(costs),
        control=control,
        hops=tuple(hops),
    )


def _highest_rate(bed: Bed, quick: bool, say: Say) -> machine_benchmark.HighestRate:
    """The highest sum of rates at which the slowest link of a ring is faithful."""
    warm_up_s, window_s = (0.3, 0.5) if quick else (0.5, 1.5)

    def passes(aggregate_mbps: float) -> bool:
        rate_mbps = aggregate_mbps / HOSTS
        shares: list[float] = []
        with ring(bed, HOSTS, rate_mbps) as lanes:
            while len(shares) < _TRIES and max(shares, default=0.0) < FAITHFUL_SHARE:
                goodputs = machine_benchmark.ring_goodputs(lanes, rate_mbps, warm_up_s, window_s)
                shares.append(min(share_of_line(goodputs, rate_mbps)))
        say(f"{HOSTS} links of {rate_mbps:.0f} Mb/s: the slowest reaches {max(shares):.1%} of line rate")
        return max(shares) >= FAITHFUL_SHARE

    return machine_benchmark.highest_rate(passes, _START_MBPS, _CEILING_MBPS, 1 if quick else 3)


# ---- cost of the control plane ---------------------------------------------------------------------------------------


SWAP_PORTS = 8
"""Ports of a rail of the default job. Where more ports change at once, the shortest delays last longer than asked for,
which the verdict then says."""
DELAYS_S = (0.005, 0.002, 0.001, 0.0007, 0.0005, 0.0003)
KEPT_SHARE = Limits().dark_short_share
"""Largest share of a delay by which the median dark time may differ from it, the same as in a verdict."""
_REST_S = 0.012
"""Pause before a request, in which the switch has settled after the last one."""


def control_cost(bed: Bed, count: int) -> ControlCost:
    """Measure ``count`` swaps, and dark times, on one optical rail over the whole path of a run; needs root.

    ``MachineError`` if the controller notes none.
    """
    dark: dict[float, list[float]] = {}
    with bed.rail(servers=SWAP_PORTS // 2, ports=2, rate_mbps=100.0) as rail:
        swap = sample_of([ended - began for began, ended in rail.swaps(count, _REST_S)], "swaps of circuits")
        for delay_s in DELAYS_S:
            swaps = rail.swaps(max(10, count // 4), _REST_S, delay_s)
            dark[delay_s] = [event.seconds for event in rail.changes(since=swaps[0][0])]
    return ControlCost(round(swap.p50, 6), round(swap.p99, 6), shortest_kept(dark))


def shortest_kept(dark: Mapping[float, Sequence[float]]) -> float:
    """The shortest delay that it and all longer ones were kept, from the dark times of each delay, in seconds.

    If the longest was not kept, it is a delay of which the error is the share that is allowed. Raises ``MachineError``
    for a delay without dark times.
    """
    kept = 0.0
    for delay_s in sorted(dark, reverse=True):
        off = abs(sample_of(list(dark[delay_s]), "dark times").p50 - delay_s)
        if off > KEPT_SHARE * delay_s:
            return kept or round(off / KEPT_SHARE, 6)
        kept = delay_s
    return kept


# ---- cost of a transfer ----------------------------------------------------------------------------------------------


PORTS = 2
COMPUTE_S = 0.04
TRANSFER_S = 0.016
"""Compute before each collective, and a transfer at line rate: those of a layer of the default rail job."""
TREE_MBPS, TREE_S = 50.0, 0.15
"""Rate of a port (less on a machine that carries less), and time of the bytes of an all-reduce over two trees."""
_TREE_RANKS = (4, 16)
_ALPHA_S = 2e-4
"""Cost of a hop with which the model is asked what it makes of a cycle; the model is linear in it."""
_COUNTS = {2: 10, 16: 4}
"""Numbers of ranks of a group, and how often it computes and gathers; the first is not counted."""
_PATIENCE_S = 60.0


def _cycles(
    kind: CollectiveKind, group: str, size: int, algorithm: str, count: int
) -> tuple[Compute | Collective, ...]:
    """Operations of a rank that computes and then takes part in a collective of ``kind``, ``count`` times."""
    found: list[Compute | Collective] = []
    for first in range(0, 2 * count, 2):
        found.append(Compute(first, f"compute{first}", COMPUTE_S, (first - 1,) if first else ()))
        found.append(Collective(first + 1, f"{kind}{first}", kind, group, size, (first,), algorithm))
    return tuple(found)


def program_of(hosts: int, ranks: int, port_mbps: float, cycles: int) -> Program:
    """Program of ``hosts`` in groups of ``ranks`` that compute and then all-gather, ``cycles`` times."""
    groups = {f"g{n}": Group(f"g{n}", "dp", tuple(range(n * ranks, (n + 1) * ranks))) for n in range(hosts // ranks)}
    size = round(PORTS * ranks * TRANSFER_S * port_mbps * 1e6 / 8 * goodput_share(ROCE_MTU_BYTES))
    own = [_cycles("all_gather", name, size, "bidirectional-ring", cycles) for name in groups]
    return Program("transfer-cost", tuple(own[rank // ranks] for rank in range(hosts)), groups)


def tree_program(hosts: int, ranks: int, port_mbps: float, cycles: int) -> Program:
    """Program of ``hosts``: the first ``ranks`` compute and then all-reduce over two trees, ``cycles`` times."""
    group = Group("trees", "dp", tuple(range(ranks)))
    size = round(TREE_S * port_mbps * 1e6 / 8 * goodput_share(ROCE_MTU_BYTES))
    own = _cycles("all_reduce", group.name, size, "double-binary-tree", cycles)
    return Program("hop-cost", tuple(own if rank < ranks else () for rank in range(hosts)), {group.name: group})


def hop_cost(measured_s: float, predicted_s: float, more_s: float, hop_s: float) -> float:
    """Seconds of a hop: what a cycle took beyond ``predicted_s`` without hops, by what ``hop_s`` a hop makes of it.

    ``more_s`` is the cycle predicted with ``hop_s`` for each; at least 0.
    """
    return max(0.0, (measured_s - predicted_s) / (more_s - predicted_s) * hop_s)


def cost_of(events: Iterable[Event], groups: Mapping[str, Group]) -> float:
    """Median seconds of a transfer beyond line rate, over the cycles of all groups, from agents' events; at least 0.

    The median, since other users of the machine disturb single cycles. Raises as ``laps_s``.
    """
    found = laps_s(events, groups)
    cycles = [(lap - COMPUTE_S) / (len(groups[name].members) - 1) for name in groups for lap in found[name]]
    return max(0.0, median(cycles) - TRANSFER_S)


def transfer_costs(net: Emulation, launcher: AgentLauncher, aggregate_mbps: float, quick: bool) -> list[TransferCost]:
    """Measure the costs on a fabric of ``transfer_rail`` whose rates add up to ``aggregate_mbps``."""
    hosts = net.plan.ranks
    found = []
    for ranks, cycles in _COUNTS.items():
        program = program_of(hosts, ranks, aggregate_mbps / hosts / PORTS, cycles if not quick else cycles // 2 + 1)
        cost = cost_of(play(net, launcher, program, 1, _PATIENCE_S).events, program.groups)
        found.append(TransferCost(ranks, aggregate_mbps, round(cost, 6)))
    return found


def hop_costs(net: Emulation, launcher: AgentLauncher, port_mbps: float, quick: bool) -> list[HopCost]:
    """Measure the cost of a hop at some numbers of hosts, on a ``transfer_rail`` with one port of ``port_mbps``."""
    found = []
    for ranks in _TREE_RANKS:
        program = tree_program(net.plan.ranks, ranks, port_mbps, 3 if quick else 6)
        (measured,) = laps_s(play(net, launcher, program, 1, _PATIENCE_S).events, program.groups).values()
        predicted_s, more_s = (_predicted_s(net.plan, program, alpha_s) for alpha_s in (0.0, _ALPHA_S))
        seconds = hop_cost(median(measured), predicted_s, more_s, _ALPHA_S)
        found.append(HopCost(ranks, round(seconds, 6)))
    return found


def _predicted_s(plan: FabricPlan, program: Program, alpha_s: float) -> float:
    """Median lap of a program of one group in the model."""
    events = predict(program, plan, None, "native", steps=1, costs=Costs(alpha_s)).events
    (found,) = laps_s(events, program.groups).values()
    return median(found)


def transfer_rail(hosts: int, aggregate_mbps: float, ports: int = PORTS) -> RailTopo:
    """The fabric for ``transfer_costs`` and, with one of ``ports``, for ``hop_costs``."""
    rate_mbps = aggregate_mbps / hosts / ports
    return RailTopo(servers=hosts, gpus=1, ports=ports, fabric="electrical", rate_mbps=rate_mbps, mtu=ROCE_MTU_BYTES)


# ---- the experiment --------------------------------------------------------------------------------------------------


class CalibrateSettings(Settings):
    """How carefully the machine is measured, and the example scale of the table."""

    coarse: bool = Field(default=False, description="coarser measurement, 20 seconds for each datapath")
    show: bool = Field(default=False, description="the saved result; nothing is measured")
    datapaths: Annotated[tuple[Datapath, ...], Option("--datapaths", "NAME,...")] = Field(
        default=DATAPATHS, min_length=1, description="datapaths to measure; those that the machine lacks are left out"
    )
    ports: Annotated[int, Option("--example-ports", "N")] = Field(
        default=32, ge=1, description="number of ports of the example scale"
    )
    gbps: Annotated[float, Option("--example-gbps", "GBPS")] = Field(
        default=400.0, gt=0, description="real link rate of the example scale, in Gb/s"
    )
    file: Annotated[Path, Option("--out", "FILE")] = Field(default=CALIBRATION_FILE, description="file of the result")


@dataclass(kw_only=True)
class CalibrationRow(ResultRow):
    """The result of a calibration, as in its file (``measure.live.calibration.Calibration``)."""

    calibration: Annotated[Mapping[str, Any], "all measured values"]


class Calibrate(Experiment[CalibrateSettings]):
    """Measure what this machine emulates faithfully: timers, and throughput, latency and costs of each datapath.

    Later runs take their scale and their floors from the saved result.
    """

    name = "calibrate"
    Settings = CalibrateSettings
    rows = (CalibrationRow,)
    quick: ClassVar = {"coarse": True}
    examples = (
        "              # about a minute for each datapath",
        "--quick       # about 20 seconds for each, coarser",
        "--show        # the saved result; needs no root",
    )
    packets = keeps = False

    def needs_root(self) -> bool:
        return not self.settings.show

    def points(self) -> int:
        return 1

    def run(self, runner: Runner) -> None:
        """Measure (or load) and save the calibration."""
        file = self.settings.file
        if self.settings.show:
            found = load_calibration(file)
            if found is None:
                raise MachineError(f"{file} holds no calibration of this machine; run: {railyard_as_root('calibrate')}")
        else:
            found = calibrate_machine(self.settings.coarse, runner.progress.say, self.settings.datapaths)
        runner.add(CalibrationRow(calibration=asdict(found)))
        if self.settings.show:
            runner.progress.say(f"read from {file}")
        else:
            save_calibration(found, file)
            runner.progress.say(f"saved in {file}")

    def as_json(self, rows: Sequence[Row]) -> Any:
        return rows[0]["calibration"]

    @classmethod
    def report(cls) -> Report:
        """A table of what the machine carries, with an example scale."""
        return Report(tables=lambda rows: (), findings=_findings, calibrated=to_nothing)


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    """The result as lines, with an example scale."""
    found = from_plain(Calibration, rows[0]["calibration"], "a calibration")
    timers = [_us(late.p50_s, late.p99_s, late.max_s) for late in (found.timer_idle, found.timer_loaded)]
    open_vswitch = "kernel" if found.open_vswitch == "system" else "userspace (netdev)"
    yield f"What this machine carries faithfully ({found.cpus} processors, kernel {found.kernel})"
    yield from _lines(
        {
            "timer late at rest (median / p99 / worst)": timers[0],
            "timer late, every processor busy": timers[1],
            "datapath of Open vSwitch": open_vswitch,
        }
    )
    for name, capacity in found.datapaths.items():
        yield f"Datapath {name}{', which auto takes' if name == found.takes() else ''}"
        yield from _lines(_capacity_lines(found, name, capacity, settings["ports"], settings["gbps"]))
    if found.busy_share > BUSY_SHARE:
        yield f"  other work took {found.busy_share:.0%} of the processors meanwhile; measure again"


def _capacity_lines(
    found: Calibration, name: Datapath, capacity: Capacity, ports: int, gbps: float
) -> Mapping[str, str]:
    more = "" if capacity.aggregate_limited else " or more"
    floors, control = found.floors(name), capacity.control
    scale = pick_scale(ScaleNeeds(ports, gbps), floors, capacity)
    least = (f"{seconds * 1e3:.3g}" for seconds in (floors.delay_s, floors.slot_s, floors.guard_s))
    transfers = {
        f"transfer over line rate, {cost.ranks} ranks, {cost.aggregate_mbps:,.0f} Mb/s": f"{cost.seconds * 1e3:.2g} ms"
        for cost in capacity.transfers
    }
    return {
        f"{capacity.hosts} links, each within {1 - FAITHFUL_SHARE:.0%} of line rate": f"{capacity.aggregate_mbps:,.0f} "
        f"Mb/s{more}",
        "small message, one way (median / p99)": _us(capacity.alpha_s, capacity.alpha_p99_s),
        **transfers,
        **{f"message that waits for another, {c.hosts} hosts": _us(c.seconds) for c in capacity.hops},
        "request to packets following (median / p99)": _us(control.swap_s, control.swap_p99_s),
        "shortest dark time that is kept": _us(control.shortest_dark_s),
        f"scale for {ports} ports of {gbps:g} Gb/s": f"1/{1 / scale.rate:,.0f} ({scale.emulated_mbps(gbps):.3g} Mb/s "
        "per port)",
        "shortest delay / slot / guard time": " / ".join(least) + " ms",
    }


def _us(*seconds: float) -> str:
    return " / ".join(f"{each * 1e6:,.0f}" for each in seconds) + " µs"


def _lines(values: Mapping[str, str]) -> Iterator[str]:
    yield from (f"  {name:<46} {value:>28}" for name, value in values.items())
