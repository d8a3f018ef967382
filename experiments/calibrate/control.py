"""Cost of the control plane: swaps of circuits, and how exactly dark times are kept.

Measured on one optical rail with Railyard's controller, over the whole path of a run: job channel, engine, OpenFlow to
Open vSwitch and back.
"""

from __future__ import annotations

import time
from pathlib import Path

from controllers.northbound.client import ChannelClient
from controllers.openflow import app
from experiments.controller_process import ControllerFiles, ControllerProcess
from measure.live.calibration import ControlCost
from measure.live.machine_benchmark import sample_of
from railyard.timeline import read_events
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo

SERVERS = 16
PORTS = 2 * SERVERS
DELAY_S = 0.005
"""The configured dark time; its error does not depend on its length."""
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
    """Measure ``count`` swaps and dark times on a net of ``rail``; ``MachineError`` if the controller stops."""
    files = ControllerFiles.written(Path(net.yard.run_dir), net.plan)
    with ControllerProcess(files, app.DEFAULT, net.yard.netns_fd, exact_barriers=net.datapath != "ovs") as controller:
        controller.wait_ready()
        with ChannelClient(files.channel) as client:
            swaps = [_rewire(client, shift, 0.0) for shift in range(count)]
            began = time.monotonic()
            for shift in range(count, 2 * count):
                _rewire(client, shift, DELAY_S)
    events = [e for e in read_events(files.events) if e.kind == "reconfigure" and e.end is not None and e.t >= began]
    swap = sample_of(swaps, "swaps of circuits")
    dark = sample_of([abs(event.seconds - DELAY_S) for event in events], "dark times")
    return ControlCost(*(round(value, 6) for value in (swap.p50, swap.p99, dark.p50, dark.p99)))


def _rewire(client: ChannelClient, shift: int, delay_s: float) -> float:
    """Seconds from the request to the answer of one rewiring, after which packets follow."""
    time.sleep(_REST_S)
    began = time.monotonic()
    client.rewire("rail0", circuits(shift), "overwrite", delay_s=delay_s)
    return time.monotonic() - began
