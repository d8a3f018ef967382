"""Benchmark of the agents' ring all-reduce against line rate.

A "host of 50 Mb/s" sends 50 Mb/s in all: with one port in one direction of the ring, or with two ports of half the rate
in both directions. Ideal: every rank sends 2 (n - 1) / n of the buffer (Patarasuk and Yuan, JPDC 2009) at its rate,
with Ethernet, IP and TCP headers. As in nccl-tests, all-reduces run one after another, and each is measured from the
end of the one before on the last rank (result complete, all of its data acknowledged) to its own end.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from experiments.bench import Measurement, NotMeasured, at_most
from railyard.scale import Scale, goodput_share
from railyard.timeline import Event, read_events
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher, AgentTeam
from workloads.program import Collective, Group, Program

STEPS = 4
"""Steps of a run; the first one fills the TCP windows and is not counted."""
LIMIT = 1.05
_SLACK = 6.0
"""Timeout of a run as a multiple of the ideal time, to which a minute is added."""


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


def ring_all_reduce(
    hosts: int,
    rate_mbps: float,
    bytes: int,
    limit: float = LIMIT,
    launcher: AgentLauncher | None = None,
    ports: int = 1,
) -> list[Measurement]:
    """Measure an all-reduce of a buffer of ``bytes`` over ``hosts`` that send ``rate_mbps`` each over ``ports`` ports.

    Returns measured / ideal time (median over steps), and the busiest agent's share of a processor core. Needs root.
    """
    with nullcontext(launcher) if launcher else AgentLauncher.start() as agent_launcher:
        times, busy = _run(agent_launcher, hosts, rate_mbps, bytes, ports)
    name = f"ring all-reduce, {hosts} hosts x {rate_mbps:g} Mb/s, {bytes / 1e6:g} MB"
    name += "" if ports == 1 else f", {ports} ports"
    ideal = ideal_s(hosts, rate_mbps, bytes)
    ratio = statistics.median(times) / ideal
    return [
        at_most(f"{name}: measured / line rate", ratio, "ratio", limit),
        Measurement(f"{name}: busiest agent", busy * 100, "% of a core"),
    ]


SCALING = ((8, 50.0, 8_000_000, 1.05), (16, 50.0, 16_000_000, 1.05), (32, 50.0, 16_000_000, 1.05),
           (64, 50.0, 32_000_000, 1.05), (128, 10.0, 16_000_000, 1.03))  # fmt: skip
"""Hosts, Mb/s per host, bytes of the buffer, limit of the ratio: chunks of 0.5 to 1 MB, and of 125 kB at 128 hosts."""


def ring_scaling() -> list[Measurement]:
    """Measure the ring all-reduce at 8 to 128 hosts; needs root."""
    with AgentLauncher.start() as launcher:
        found = [ring_all_reduce(hosts, rate, size, limit, launcher) for hosts, rate, size, limit in SCALING]
    return [one for some in found for one in some]


def highest_aggregate(hosts: int = 64, limit: float = LIMIT, start_mbps: float = 25.0) -> list[Measurement]:
    """The highest sum of the hosts' rates at which an all-reduce stays within ``limit`` of the ideal time, to 10 %.

    The rate per host is raised by half until a run exceeds the limit, then the gap is halved; a step takes about a
    second. Needs root.
    """
    with AgentLauncher.start() as launcher:

        def holds(rate: float) -> bool:
            size = round(hosts * rate * 1e6 / 8 * 0.16)  # 80 ms per chunk
            return bool(ring_all_reduce(hosts, rate, size, limit, launcher)[0].ok)

        good, bad = 0.0, start_mbps
        while holds(bad):
            good, bad = bad, bad * 1.5
        while bad - good > 0.1 * bad and bad > 1:
            middle = (good + bad) / 2
            good, bad = (middle, bad) if holds(middle) else (good, middle)
    if not good:
        raise NotMeasured(f"the highest aggregate rate: {hosts} hosts were not within {limit:g} at {bad:.3g} Mb/s each")
    aggregate = good * hosts
    return [Measurement(f"highest aggregate rate within {limit:g} of line rate ({hosts} hosts)", aggregate, "Mb/s")]


def _run(
    launcher: AgentLauncher, hosts: int, rate_mbps: float, size_bytes: int, ports: int
) -> tuple[list[float], float]:
    """Seconds of each counted step, and the busiest agent's share of a core."""
    topo = RailTopo(servers=hosts, gpus=1, ports=ports, fabric="electrical", rate_mbps=rate_mbps / ports)
    program = ring_program(hosts, size_bytes, ports)
    patience = 60 + _SLACK * STEPS * ideal_s(hosts, rate_mbps, size_bytes)
    with tempfile.TemporaryDirectory(prefix="railyard-bench-") as folder, Emulation(topo, openflow=None) as net:
        files = [Path(folder) / f"agent{rank}.jsonl" for rank in range(hosts)]
        configs = [
            AgentConfig(rank, "bench", "native", program, Scale(1.0), net.plan, str(file), steps=STEPS)
            for rank, file in enumerate(files)
        ]
        with _team(launcher, configs, [net.netns_fd(f"g{rank}") for rank in range(hosts)]) as team:
            team.wait_ready()
            before, start = _processor_s(team), time.monotonic()
            team.go(start + 0.05)
            team.wait_done(patience)
            used, elapsed = _processor_s(team), time.monotonic() - start
        events = [event for file in files for event in read_events(file)]
    busy = max(used[rank] - before[rank] for rank in used) / elapsed
    return [_last_end(events, step) - _last_end(events, step - 1) for step in range(1, STEPS)], busy


@contextmanager
def _team(launcher: AgentLauncher, configs: list[AgentConfig], netns_fds: list[int]) -> Iterator[AgentTeam]:
    team = launcher.launch(configs, netns_fds)
    try:
        yield team
    finally:
        team.stop()


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
