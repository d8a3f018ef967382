"""Measures what each GPU, message and port of a large fabric costs the head, the controller and a machine.

    sudo scripts/_venv.py tests/cluster/measure_head.py [controller] [heartbeats] [events] [memory] [orders]
                                                        [tunnels] [--results FOLDER]

Not a test: it takes a minute or two, and needs a machine that does nothing else. ``controller``: its processor time for
each message of a readiness barrier, and for each port of a rewiring. ``heartbeats``: the head's
processor time for each. ``events``: events of a rank in a step of ``llama3-8b-16``, by a short run or from the results
``FOLDER`` of one. ``memory``: what an agent of that run shares with no other process. ``orders``: the longest line that
brings up a part on one of 16 machines. ``tunnels``: the time to make VXLAN devices.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from commands.bench import circuits  # noqa: E402
from commands.bench.bed import Bed  # noqa: E402
from controllers.engine.jobs import Job  # noqa: E402
from experiments.spread.machines import Machine  # noqa: E402
from experiments.spread.parts import UDP_PORT, part_to_plain, parts, topology_to_plain  # noqa: E402  # noqa: E402
from measure.live.processor import Processor  # noqa: E402
from measure.results.results import Results  # noqa: E402
from railyard.errors import MachineError  # noqa: E402
from railyard.process.connection import Connection  # noqa: E402
from railyard.remote.ssh import RemoteProcess  # noqa: E402
from railyard.signals import stop_on_signals  # noqa: E402
from tests.campaign.soak import own_memory  # noqa: E402
from topos.describe import plan  # noqa: E402
from topos.kernel import namespaces  # noqa: E402
from topos.kernel.netlink import Netlink, Tunnel, VethEnd, tunnel  # noqa: E402
from topos.placement import placed  # noqa: E402
from topos.rails import RailTopo  # noqa: E402
from workloads.agent.launcher import AgentLauncher, AgentTeam  # noqa: E402
from workloads.program import Group  # noqa: E402

JOB = ["run", "rails", "--workload", "llama3-8b-16", "--modes", "on-demand", "--delays", "50", "--steps", "1"]
RUN = [sys.executable, "-m", "commands.main", *JOB, "--repeats", "1", "--attempts", "1", "--out"]
HEARTBEATS = """
import sys
from railyard.process.connection import Connection

fd, count, ranks = map(int, sys.argv[1:])
connection = Connection(fd, fd, "head")
for number in range(count):
    connection.tell("agent", message={"team": 0, "rank": number % ranks, "said": {"alive": number, "every_s": 0.4}})
"""


def main() -> None:
    """Measure the parts that the command line names, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", nargs="*")
    parser.add_argument("--results", type=Path, help="a results folder, for the events")
    given = parser.parse_args()
    stop_on_signals()
    with tempfile.TemporaryDirectory() as folder:
        known: dict[str, Callable[[], None]]
        known = {each.__name__: each for each in (controller, heartbeats, orders, tunnels)}
        known["events"] = lambda: events(given.results or run_job(Path(folder))[0])
        known["memory"] = lambda: memory(run_job(Path(folder))[1])
        for name in given.part or known:
            known[name]()


def processor_s(processor: Processor) -> float:
    """Processor seconds of the process that ``processor`` watches, since the last reading."""
    return processor.read(1.0).processes or 0.0


def controller() -> None:
    """The controller's processor time for messages of barriers (with connections and check-in), and for rewirings."""
    for hosts in (64, 256):
        group = Group("ring", "dp", tuple(range(hosts)))
        with Bed().rail(servers=hosts, ports=2) as rail:
            rail.client.register(Job("barrier", (group,), "on-demand"), "opus")
            processor = Processor([rail.controller.pid])
            circuits.barriers(rail.controller.files.channel, group)  # a check-in, then requests and releases
            each_s = processor_s(processor) / hosts / (2 * circuits.BARRIERS + 1)
            rail.client.call("finish", job="barrier")
            rail.swap()
            processor_s(processor)
            rail.swaps(circuits.REWIRES)
            port_s = processor_s(processor) / circuits.REWIRES / (2 * hosts)
        print(f"controller, {hosts} hosts: {each_s * 1e6:.1f} us a message, {port_s * 1e6:.1f} us a port of a rewiring")


def started(stack: ExitStack, code: str, *arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """A Python that runs ``code`` and ends with ``stack``."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = stack.enter_context(subprocess.Popen(command, cwd=ROOT, **options))
    stack.callback(process.kill)
    return process


def heartbeats() -> None:
    """The head's processor time for a heartbeat of an agent on another machine."""
    count, ranks = 40_000, 1024
    with ExitStack() as stack:
        here, there = socket.socketpair()
        with there:
            process = started(stack, HEARTBEATS, there.fileno(), count, ranks, pass_fds=[there.fileno()])
        connection = Connection(here.fileno(), here.detach(), "b")
        stack.callback(connection.close)
        machine = Machine("b", cast(RemoteProcess, SimpleNamespace(connection=connection)))
        launcher = stack.enter_context(AgentLauncher({"b": machine}))
        launcher._teams[0] = AgentTeam(launcher, 0, dict.fromkeys(range(ranks), 0))
        began = time.thread_time()
        with suppress(MachineError):  # the connection ends, after all that was sent has been taken
            while launcher.listen(30.0):
                time.sleep(0.01)  # as many come at once as some thousand agents send
        each_s = (time.thread_time() - began) / count
        assert process.wait() == 0, "not all heartbeats were sent"
    print(f"heartbeats: {each_s * 1e6:.1f} us each at the head")


@cache
def run_job(folder: Path) -> tuple[Path, list[int]]:
    """Run a step of the job: its results, and the bytes of memory that each of its agents has for itself."""
    largest = dict[int, int]()
    with subprocess.Popen([*RUN, str(folder / "results")], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                with suppress(OSError):  # of a process that has just ended
                    for agent in (each for child in children(process.pid) for each in children(child)):
                        if Path(f"/proc/{agent}/comm").read_text().startswith("railyard-g"):
                            largest[agent] = max(largest.get(agent, 0), own_memory(agent))
                time.sleep(0.2)
        finally:
            process.terminate()
    assert process.returncode in (0, 8), f"the run ended with status {process.returncode}"
    return folder / "results", list(largest.values())


def children(pid: int) -> list[int]:
    """The processes that the main thread of process ``pid`` has started and that still run."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def events(results: Path) -> None:
    """The events of agents, for each rank and step, and the memory that an event takes where it is read."""
    tracemalloc.start()
    found = Results(results).events()
    each_kb = tracemalloc.get_traced_memory()[0] / len(found) / 1e3
    tracemalloc.stop()
    own = [event for event in found if event.source == "agent"]
    steps, kb = sum(event.kind == "step" for event in own), sum(len(event.to_line()) + 1 for event in own) / 1e3
    print(f"events: {len(own) / steps:.0f} a rank and step, {kb / steps:.1f} kB; {each_kb:.2f} kB of memory each")


def memory(own: list[int]) -> None:
    """What each agent has of memory for itself at most."""
    print(f"memory: {len(own)} agents, {sum(own) / len(own) / 1e6:.1f} MB each, {max(own) / 1e6:.1f} at most")


def orders() -> None:
    """The longest of the lines that bring up the parts of a fabric with 8 rails on 16 machines."""
    machines = [f"machine{number}" for number in range(16)]
    for gpus in (1024, 4096):
        topo = RailTopo(servers=gpus // 8, gpus=8, ports=2, rate_mbps=50, fabric="ocs")
        described = plan(topo)
        own = parts(placed(described, machines), dict.fromkeys(machines, "10.0.0.1"), 1)
        shared = {"topology": topology_to_plain(topo), "plan": asdict(described)}
        size = max(len(json.dumps({**shared, "part": part_to_plain(part)})) for part in own.values())
        print(f"orders: {gpus} GPUs: {size / 2**20:.1f} MiB for a machine")


def tunnels() -> None:
    """The time that VXLAN devices take to make, in a namespace that ends with this."""
    ends = [Tunnel(number, "127.0.0.1", "127.0.0.1", UDP_PORT) for number in range(1, 1001)]
    requests = [tunnel(VethEnd(f"cut{to.number}", 1000 + to.number), to, 4200) for to in ends]
    with ExitStack() as stack:
        (fd,) = namespaces.make(1)
        stack.callback(os.close, fd)
        kernel = stack.enter_context(Netlink(fd))
        began = time.monotonic()
        kernel.run(requests)
        print(f"tunnels: {len(requests)} VXLAN devices in {time.monotonic() - began:.2f} s")


if __name__ == "__main__":
    main()
