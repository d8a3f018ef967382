"""Calibration of this machine: its timers, and for each datapath throughput, latency, cost of transfers and of control.

``railyard calibrate`` saves the result; later runs take their scale and their floors from it.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone

from commands.calibrate import control, transfers
from measure.live import machine_benchmark
from measure.live.calibration import DATAPATHS, FORMAT, HEADROOM, Calibration, Capacity, Datapath
from measure.live.processor import Processor
from railyard.errors import MachineError
from railyard.scale import goodput_share
from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import HostEnd
from topos.kernel.ovs import choose_datapath
from topos.rails import RailTopo
from workloads.agent.launcher import AgentLauncher

FAITHFUL_SHARE = 0.95
"""Share of its line-rate goodput that a link must reach to count as faithful."""
BUSY_SHARE = 0.15
"""Highest load of a machine that counts as idle, as a share of all processors."""
HOSTS = 16
LOADS = (1.0, 0.25)
"""Loads at which the cost of transfers is measured, as shares of what a run may use."""
_TRIES = 2
"""Measurements of a rate before it counts as too high: other users of a shared machine disturb single ones."""
_START_MBPS = 1600.0
_CEILING_MBPS = 25_600.0

Say = Callable[[str], None]


@contextmanager
def ring(hosts: int, rate_mbps: float, datapath: Datapath = "ovs") -> Iterator[list[machine_benchmark.SocketPair]]:
    """Context manager: ``hosts`` on one electrical bridge, with a TCP connection from each host to the next."""
    topo = RailTopo(servers=hosts, gpus=1, ports=1, fabric="electrical", rate_mbps=rate_mbps)
    with Emulation(topo, datapath=datapath, openflow=None) as net:
        ports = net.plan.rail_of(0).ports
        ends = [HostEnd(net.netns_fd(port.host), port.interface, port.ip) for port in ports]
        with machine_benchmark.connected_ring(ends) as lanes:
            yield lanes


def calibrate_machine(
    quick: bool = False, say: Say = lambda _: None, datapaths: Sequence[Datapath] = DATAPATHS
) -> Calibration:
    """Measure this machine, about a minute for each datapath, or 20 s when ``quick``; needs root.

    ``say`` is called with a progress line as each part starts. A datapath that this machine does not have is left out.
    ``MachineError`` when the machine cannot bring a fabric up, or has none of ``datapaths``.
    """
    timer_s = 0.8 if quick else 4.0
    say("timers at rest")
    processor = Processor()
    timer_idle = machine_benchmark.timer_error(timer_s)
    busy_share = processor.read(timer_s).busy
    if busy_share > BUSY_SHARE:
        say(f"the machine is {busy_share:.0%} busy with something else; the results describe the remaining capacity")
    say("timers with every processor busy")
    with machine_benchmark.busy_processors():
        timer_loaded = machine_benchmark.timer_error(timer_s)
    found: dict[Datapath, Capacity] = {}
    with AgentLauncher.start() as launcher:
        for name in datapaths:
            try:
                with Emulation(control.rail(), datapath=name, openflow=None):
                    pass
            except MachineError as error:
                say(f"datapath {name}: left out: {error}")
                continue
            found[name] = capacity(name, launcher, quick, lambda text, name=name: say(f"{name}: {text}"))  # type: ignore[misc]
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


def capacity(name: Datapath, launcher: AgentLauncher, quick: bool, say: Say) -> Capacity:
    """Measure what one datapath carries."""
    say("small messages")
    with ring(2, 1000.0, name) as lanes:
        alpha = machine_benchmark.message_times(lanes[0].sender, lanes[0].receiver, 200 if quick else 1000)
    say("circuits")
    with Emulation(control.rail(), datapath=name, packet_ins=False) as net:
        control_cost = control.control_cost(net, 30 if quick else 100)
    highest = _highest_rate(name, quick, say)
    costs = []
    for load in LOADS:
        aggregate_mbps = round(highest.value * HEADROOM * load, 1)
        with Emulation(transfers.rail(HOSTS, aggregate_mbps), datapath=name, openflow=None) as net:
            costs += transfers.transfer_costs(net, launcher, aggregate_mbps, quick)
        shown = ", ".join(f"{cost.seconds * 1e3:.2g} ms among {cost.ranks}" for cost in costs[-2:])
        say(f"a transfer at {aggregate_mbps:,.0f} Mb/s in all takes {shown} more than at line rate")
    say("messages that wait for others")
    port_mbps = min(transfers.TREE_MBPS, highest.value * HEADROOM / HOSTS)
    with Emulation(transfers.rail(HOSTS, HOSTS * port_mbps, 1), datapath=name, openflow=None) as net:
        hops = transfers.hop_costs(net, launcher, port_mbps, quick)
    return Capacity(
        hosts=HOSTS,
        aggregate_mbps=round(highest.value, 1),
        aggregate_limited=highest.limited,
        alpha_s=alpha.p50,
        alpha_p99_s=alpha.p99,
        transfers=tuple(costs),
        control=control_cost,
        hops=tuple(hops),
    )


def _highest_rate(name: Datapath, quick: bool, say: Say) -> machine_benchmark.HighestRate:
    """The highest sum of rates at which the slowest link of a ring is faithful."""
    warm_up_s, window_s = (0.3, 0.5) if quick else (0.5, 1.5)

    def passes(aggregate_mbps: float) -> bool:
        rate_mbps = aggregate_mbps / HOSTS
        shares: list[float] = []
        with ring(HOSTS, rate_mbps, name) as lanes:
            while len(shares) < _TRIES and max(shares, default=0.0) < FAITHFUL_SHARE:
                goodputs = machine_benchmark.ring_goodputs(lanes, rate_mbps, warm_up_s, window_s)
                shares.append(min(goodputs) / (rate_mbps * goodput_share()))
        say(f"{HOSTS} links of {rate_mbps:.0f} Mb/s: the slowest reaches {max(shares):.1%} of line rate")
        return max(shares) >= FAITHFUL_SHARE

    return machine_benchmark.highest_rate(passes, _START_MBPS, _CEILING_MBPS, 1 if quick else 3)
