"""Calibration of this machine: timer error, message latency and the highest faithful throughput of small fabrics.

``scripts/calibrate.py`` saves the result; later runs choose their scale from it.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from measure.live import machine_benchmark
from measure.live.calibration import FORMAT, Calibration
from measure.live.processor import Processor
from railyard.scale import goodput_share
from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import HostEnd
from topos.rails import RailTopo

FAITHFUL_SHARE = 0.95
"""Share of its line-rate goodput that a link must reach to count as faithful."""
BUSY_SHARE = 0.15
"""Highest load of a machine that counts as idle, as a share of all processors."""
HOSTS = 16
_TRIES = 2
"""Measurements of a rate before it counts as too high: other users of a shared machine disturb single ones."""
_START_MBPS = 1600.0
_CEILING_MBPS = 25_600.0

Say = Callable[[str], None]


@contextmanager
def ring(hosts: int, rate_mbps: float) -> Iterator[tuple[list[machine_benchmark.Lane], str]]:
    """Context manager: ``hosts`` on one electrical bridge, with a TCP connection from each host to the next.

    Yields the connections and the name of the datapath in use (``system`` or ``netdev``).
    """
    topo = RailTopo(servers=hosts, gpus=1, ports=1, fabric="electrical", rate_mbps=rate_mbps)
    with Emulation(topo, openflow=None) as net:
        ports = net.plan.rail_of(0).ports
        ends = [HostEnd(net.netns_fd(port.host), port.interface, port.ip) for port in ports]
        with machine_benchmark.connected_ring(ends) as lanes:
            yield lanes, net.yard.datapath


def calibrate_machine(quick: bool = False, say: Say = lambda _: None) -> Calibration:
    """Measure this machine, in under 60 s, or under 20 s when ``quick``; needs root.

    ``say`` is called with a progress line as each part starts. ``MachineError`` when the machine cannot bring a fabric
    up.
    """
    timer_s, warm_up_s, window_s = (0.8, 0.3, 0.5) if quick else (4.0, 0.5, 1.5)
    say("timers at rest")
    processor = Processor()
    timer_idle = machine_benchmark.timer_error(timer_s)
    busy_share = processor.read(timer_s).busy
    if busy_share > BUSY_SHARE:
        say(f"the machine is {busy_share:.0%} busy with something else; the results describe the remaining capacity")
    say("timers with every processor busy")
    with machine_benchmark.busy_processors():
        timer_loaded = machine_benchmark.timer_error(timer_s)
    say("small messages")
    with ring(2, 1000.0) as (lanes, datapath):
        alpha = machine_benchmark.message_times(lanes[0].sender, lanes[0].receiver, 200 if quick else 1000)

    def passes(aggregate_mbps: float) -> bool:
        rate_mbps = aggregate_mbps / HOSTS
        shares: list[float] = []
        with ring(HOSTS, rate_mbps) as (lanes, _):
            while len(shares) < _TRIES and max(shares, default=0.0) < FAITHFUL_SHARE:
                goodputs = machine_benchmark.ring_goodputs(lanes, rate_mbps, warm_up_s, window_s)
                shares.append(min(goodputs) / (rate_mbps * goodput_share()))
        say(f"{HOSTS} links of {rate_mbps:.0f} Mb/s: the slowest reaches {max(shares):.1%} of line rate")
        return max(shares) >= FAITHFUL_SHARE

    found = machine_benchmark.highest_rate(passes, _START_MBPS, _CEILING_MBPS, 1 if quick else 3)
    return Calibration(
        format=FORMAT,
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        quick=quick,
        kernel=platform.release(),
        cpus=os.cpu_count() or 1,
        datapath=datapath,
        hosts=HOSTS,
        aggregate_mbps=round(found.value, 1),
        aggregate_limited=found.limited,
        alpha_s=alpha.p50,
        alpha_p99_s=alpha.p99,
        busy_share=round(busy_share, 3),
        timer_idle=timer_idle,
        timer_loaded=timer_loaded,
    )
