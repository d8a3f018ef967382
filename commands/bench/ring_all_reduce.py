"""Benchmark of the agents' ring all-reduce against line rate.

A "host of 50 Mb/s" sends 50 Mb/s in all: with one port in one direction of the ring, or with two ports of half the rate
in both directions. Ideal: every rank sends 2 (n - 1) / n of the buffer (Patarasuk and Yuan, JPDC 2009) at its rate,
with Ethernet, IP and TCP headers. As in nccl-tests, all-reduces run one after another, and each is measured from the
end of the one before on the last rank (result complete, all of its data acknowledged) to its own end.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from commands.bench import Measurement, NotMeasured
from commands.bench.bed import Bed
from railyard.ownership import temporary_folder
from railyard.scale import Scale, goodput_share
from railyard.timeline import Event, read_events
from topos.rails import RailTopo
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher, AgentTeam
from workloads.program import Collective, Group, Program

_SLACK = 6.0
"""Timeout of a run as a multiple of the ideal time, to which a minute is added."""


class Size(NamedTuple):
    """One all-reduce: ``hosts`` that send ``rate_mbps`` each reduce a buffer of ``bytes``, ``steps`` times.

    The first step fills the TCP windows and is not counted. ``limits`` of measured / ideal time are those with bpf and
    with other datapaths, None where there is none.
    """

    hosts: int
    rate_mbps: float
    bytes: int
    limits: tuple[float | None, float | None] = (None, None)
    steps: int = 4
    ports: int = 1


SCALING = (
    Size(8, 50.0, 8_000_000, (1.02, 1.05)),
    Size(16, 50.0, 16_000_000, (1.02, 1.05)),
    Size(32, 50.0, 16_000_000, (1.02, 1.05)),
    Size(64, 50.0, 32_000_000, (1.02, 1.05), 3),
    Size(64, 100.0, 64_000_000, (1.02, None), 3),
)
"""Chunks of 0.5 to 1 MB, which take 80 to 160 ms."""
LARGE = (
    Size(128, 10.0, 16_000_000, (1.03, 1.03), 3),
    Size(128, 50.0, 64_000_000, (1.03, None), 3),
    Size(256, 25.0, 64_000_000, (1.05, None), 2),
    Size(512, 10.0, 51_200_000, steps=2),
)
"""Chunks that take 80 to 100 ms; one step takes up to a minute and a half."""
MOST_BUSY = 0.6
"""Largest share of a core that the busiest agent may take at ``_BUSY_MBPS`` with bpf, in percent."""
_BUSY_MBPS = 50.0


def ring_program(hosts: int, size_bytes: int, ports: int) -> Program:
    """Program of one all-reduce of ``size_bytes`` over ``hosts``; two ports use both directions of the ring."""
    group = Group("dp0", "dp", tuple(range(hosts)))
    algorithm = "ring" if ports == 1 else "bidirectional-ring"
    operation = Collective(0, "all-reduce", "all_reduce", group.name, size_bytes, algorithm=algorithm)
    return Program("ring-all-reduce", ((operation,),) * hosts, {group.name: group})


def ideal_s(hosts: int, rate_mbps: float, size_bytes: int) -> float:
    """Seconds of a ring all-reduce of ``size_bytes`` at line rate, headers included."""
    sent = 2 * (hosts - 1) / hosts * size_bytes
    return sent / goodput_share() * 8 / (rate_mbps * 1e6)


def ring_all_reduce(bed: Bed, size: Size) -> list[Measurement]:
    """Measured / ideal time of an all-reduce, as the median of its steps, and the busiest agent's load; needs root."""
    times, busy = run(bed, size)
    name = f"allreduce_{size.hosts}x{size.rate_mbps:g}" + (f"_{size.ports}_ports" if size.ports > 1 else "")
    ratio = statistics.median(times) / ideal_s(size.hosts, size.rate_mbps, size.bytes)
    most = MOST_BUSY if size.rate_mbps == _BUSY_MBPS else None
    return [
        bed.at_most(f"{name}_over_ideal", ratio, "ratio", *size.limits),
        bed.at_most(f"{name}_busiest_agent", busy * 100, "% of a core", most),
    ]


def run(bed: Bed, size: Size) -> tuple[list[float], float]:
    """Seconds of each counted step, and the busiest agent's share of a core; needs root."""
    hosts, ports = size.hosts, size.ports
    topo = RailTopo(servers=hosts, gpus=1, ports=ports, fabric="electrical", rate_mbps=size.rate_mbps / ports)
    program = ring_program(hosts, size.bytes, ports)
    patience = 60 + _SLACK * size.steps * ideal_s(hosts, size.rate_mbps, size.bytes)
    with ExitStack() as stack:
        launcher = stack.enter_context(AgentLauncher.start())
        folder = stack.enter_context(temporary_folder())
        net = stack.enter_context(bed.make(topo))
        files = [folder / f"agent{rank}.jsonl" for rank in range(hosts)]
        configs = [
            AgentConfig(rank, "bench", "native", program, Scale(1.0), net.plan, str(file), steps=size.steps)
            for rank, file in enumerate(files)
        ]
        team = launcher.launch(configs, [net.netns_fd(f"g{rank}") for rank in range(hosts)])
        stack.callback(team.stop)
        team.wait_ready()
        before, start = _processor_s(team), time.monotonic()
        team.go(start + 0.05)
        team.wait_done(patience)
        used, elapsed = _processor_s(team), time.monotonic() - start
        events = [event for file in files for event in read_events(file)]
    busy = max(used[rank] - before[rank] for rank in used) / elapsed
    return [_last_end(events, step) - _last_end(events, step - 1) for step in range(1, size.steps)], busy


def _last_end(events: list[Event], step: int) -> float:
    ends = [e.end or e.t for e in events if e.kind == "communicate" and e["step"] == step]
    if not ends:
        raise NotMeasured(f"the ring all-reduce: no agent noted the end of step {step}")
    return max(ends)


def _processor_s(team: AgentTeam) -> dict[int, float]:
    """Processor seconds that each agent has used, by rank."""
    used = {}
    for rank, pid in team.pids.items():
        run_time_ns = Path(f"/proc/{pid}/schedstat").read_text().split()[0]
        used[rank] = int(run_time_ns) / 1e9
    return used
