"""Cost of the control plane: swaps of circuits, and how exactly dark times are kept.

Measured on one optical rail with Railyard's controller, over the whole path of a run: job channel, engine, OpenFlow to
Open vSwitch and back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from controllers.northbound.client import ChannelClient
from controllers.openflow import app
from experiments.controller_process import ControllerFiles, ControllerProcess
from measure.live.calibration import ControlCost
from measure.live.machine_benchmark import sample_of
from measure.metrics.checks import Limits
from railyard.ownership import temporary_folder
from railyard.timeline import read_events
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo

SERVERS = 4
PORTS = 2 * SERVERS
"""Those of a rail of the default job. Where more ports change at once, the shortest delays last longer than asked for,
which the verdict then says."""
DELAYS_S = (0.005, 0.002, 0.001, 0.0007, 0.0005, 0.0003)
KEPT_SHARE = Limits().dark_short_share
"""Largest share of a delay by which the median dark time may differ from it, the same as in a verdict."""
_REST_S = 0.012
"""Pause before a request, in which the switch has settled after the last one."""


def circuits(shift: int) -> list[tuple[int, int]]:
    """One of two perfect matchings of the ports that have no circuit in common, by whether ``shift`` is even."""
    first = 1 + shift % 2
    return [(port, port % PORTS + 1) for port in range(first, PORTS + 1, 2)]


def rail() -> RailTopo:
    """The fabric for ``control_cost``."""
    return RailTopo(servers=SERVERS, gpus=1, ports=2, fabric="ocs", rate_mbps=100.0)


def control_cost(net: Emulation, count: int) -> ControlCost:
    """Measure ``count`` swaps, and dark times, on a net of ``rail``; ``MachineError`` if the controller notes none."""
    dark: dict[float, list[float]] = {}
    exact = net.datapath != "ovs"
    with ExitStack() as stack:
        data = stack.enter_context(temporary_folder())
        files = ControllerFiles.written(Path(net.yard.run_dir), net.plan, data)
        controller = stack.enter_context(ControllerProcess(files, app.DEFAULT, net.yard.netns_fd, exact_barriers=exact))
        controller.wait_ready()
        with ChannelClient(files.channel) as client:
            swap = sample_of([_rewire(client, shift, 0.0) for shift in range(count)], "swaps of circuits")
            for delay_s in DELAYS_S:
                began = time.monotonic()
                for shift in range(max(10, count // 4)):
                    _rewire(client, count + shift, delay_s)
                events = [e for e in read_events(files.events) if e.kind == "reconfigure" and e.t >= began]
                dark[delay_s] = [event.seconds for event in events if event.end is not None]
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


def _rewire(client: ChannelClient, shift: int, delay_s: float) -> float:
    """Seconds from the request to the answer of one rewiring, after which packets follow."""
    time.sleep(_REST_S)
    began = time.monotonic()
    client.rewire("rail0", circuits(shift), "overwrite", delay_s=delay_s)
    return time.monotonic() - began
