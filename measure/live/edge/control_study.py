"""How many check-ins the control plane takes, and whether accepts in a rush stay within demands; by real sockets."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from controllers.edge.processes import EdgeProcesses
from controllers.edge.run import CONTROL_PORT, EdgeRun
from measure.live.counters import Counters
from measure.live.edge.control_load import LoadClient, LoadSettings
from measure.live.processor import Processor
from measure.results.folder import new_folder
from railyard.child import Child
from railyard.errors import MachineError
from topos.edge_plan import CONTROL, ROOT
from workloads.edge.attributes import Attributes
from workloads.edge.control_client import JobClient

Kind = Literal["check-ins", "accepts"]

_WITHIN_S = 120.0
"""Longest time to connect all clients, and longest time of a load."""
_NO_END = 10**6
"""A demand that no study reaches."""


@dataclass(frozen=True)
class ControlLoad:
    """Check-ins in a closed loop of ``clients`` clients, each with one request under way at a time.

    ``bytes_per_check_in`` are bytes on the links of the control plane's host, headers and acks of TCP included, both
    directions together; None if the clients were ``near``, on the control plane's own host, so that no switch takes
    part. ``cores``: processor seconds per second of ``control``, ``managers`` and ``load``.
    """

    managers: int
    clients: int
    near: bool
    check_ins_per_s: float
    p50_ms: float
    p99_ms: float
    bytes_per_check_in: float | None
    cores: dict[str, float]


@dataclass(frozen=True)
class AcceptRush:
    """Accepts at the same moment. By number of the job: its demand, and its clients as the job manager noted them.

    ``granted`` is what the clients were answered, ``seconds`` the time from the first accept to the last answer.
    """

    accepts: int
    demands: dict[int, int]
    bound: dict[int, int]
    granted: dict[int, int]
    refused: int
    failed: int
    seconds: float

    @property
    def exceeds(self) -> bool:
        """Whether a job got more clients than it asked for, or a client was told something else than was noted."""
        return self.bound != self.granted or any(count > self.demands[job] for job, count in self.bound.items())


def accept_rush(run: EdgeRun, accepts: int = 10_000, generators: int = 4) -> AcceptRush:
    """Let ``accepts`` clients of ``generators`` processes accept at the same moment, and count who is bound.

    The jobs of ``run`` ask for their first rounds. Raises ``MachineError`` if not all clients can connect.
    """
    with _control_plane(run) as processes, ExitStack() as stack:
        demands = asyncio.run(_open_rounds(run, [job.selected for job in run.jobs]))
        loads = [stack.enter_context(child) for child in _loads(run, "accepts", accepts, generators)]
        _connected(loads)
        answers = _answers(loads)
        events = processes.events()
    outcomes: Counter[tuple[str, int]] = Counter()
    for answer in answers:
        outcomes.update({(what, job): count for what, job, count in answer["outcomes"]})
    return AcceptRush(
        accepts,
        demands,
        dict(sorted(Counter(event["job"] for event in events if event.kind == "bound").items())),
        {job: count for (what, job), count in sorted(outcomes.items()) if what == "bound"},
        sum(count for (what, _), count in outcomes.items() if what == "refused"),
        sum(count for (what, _), count in outcomes.items() if what in ("failed", "not offered")),
        max(answer["ended"] for answer in answers) - min(answer["began"] for answer in answers),
    )


def control_load(
    run: EdgeRun,
    clients: Sequence[int] = (1, 8, 64, 256),
    seconds: float = 2.0,
    generators: int = 2,
    near: bool = False,
) -> list[ControlLoad]:
    """The check-ins that ``run.managers`` client managers take from each number of ``clients`` in a closed loop.

    Each job of ``run`` has a round open all the time. The clients check in over the network, or, if they are ``near``,
    from the control plane's own host, which shows what the managers take where switches are not the limit.
    """
    found = []
    with _control_plane(run) as processes:
        asyncio.run(_open_rounds(run, [_NO_END for _ in run.jobs]))
        for count in clients:
            with ExitStack() as stack:
                children = _loads(run, "check-ins", count, min(generators, count), seconds, near)
                loads = [stack.enter_context(child) for child in children]
                _connected(loads)
                found.append(_one_load(run, processes, loads, count, near))
    return found


def _one_load(run: EdgeRun, processes: EdgeProcesses, loads: Sequence[Child], clients: int, near: bool) -> ControlLoad:
    """Run the closed loops of ``loads``, which are connected."""
    pids = {"control": [processes.pids["control"]], "load": [load.pid for load in loads]}
    pids["managers"] = [pid for name, pid in processes.pids.items() if name.startswith("manager")]
    meters = {name: Processor(group) for name, group in pids.items()}
    with Counters(run.netns_fds[CONTROL]) as counters:
        before, began = _bytes(counters), time.monotonic()
        answers = _answers(loads)
        moved, lasted = _bytes(counters) - before, time.monotonic() - began
    cores = {name: round(meter.read(lasted).processes or 0.0, 3) for name, meter in meters.items()}
    taken = np.array([second for answer in answers for second in answer["latencies"]])
    if not taken.size:
        raise MachineError(f"no check-in of {clients} clients was answered; let the closed loop last longer")
    return ControlLoad(
        managers=run.managers,
        clients=clients,
        near=near,
        check_ins_per_s=taken.size / answers[0]["lasted"],
        p50_ms=1e3 * float(np.percentile(taken, 50)),
        p99_ms=1e3 * float(np.percentile(taken, 99)),
        bytes_per_check_in=None if near else moved / sum(answer["check_ins"] for answer in answers),
        cores=cores,
    )


def _bytes(counters: Counters) -> int:
    """Bytes sent and received on the links of the host until now."""
    return sum(link.rx_bytes + link.tx_bytes for name, link in counters.links().items() if name != "lo")


@contextmanager
def _control_plane(run: EdgeRun) -> Iterator[EdgeProcesses]:
    """The control plane of ``run`` without servers, clients and jobs, in a new folder inside the run's."""
    run = replace(run, folder=new_folder(run.folder, "control"))
    names = [name for name in run.names if name.startswith(("control", "manager"))]
    with EdgeProcesses(run, names) as processes:
        yield processes


async def _open_rounds(run: EdgeRun, demands: Sequence[int]) -> dict[int, int]:
    """Register the jobs and open a round of each for as many clients as ``demands`` says; demand by number."""
    manager = JobClient(run.netns_fds[ROOT], (run.plan.control_ip, CONTROL_PORT))
    asked = {}
    for job, demand in zip(run.jobs, demands, strict=True):
        number = await manager.register(job)
        await manager.request(number, 0, demand, 0)
        asked[number] = demand
    await manager.close()
    return asked


def _loads(
    run: EdgeRun, kind: Kind, clients: int, generators: int, seconds: float = 0.0, near: bool = False
) -> Iterator[Child]:
    """Processes that share ``clients`` clients; more of them than the run has share the namespaces of the run's."""
    everyone = [_load_client(run, number, kind, near) for number in range(clients)]
    for index in range(generators):
        mine = tuple(everyone[index::generators])
        settings = asdict(LoadSettings(kind, mine, seconds, seconds / 4))
        fds = {client.netns_fd for client in mine if client.netns_fd is not None}
        yield Child("measure.live.edge.control_load", settings, fds, "a load on the control plane", patience_s=2.0)


def _load_client(run: EdgeRun, number: int, kind: Kind, near: bool) -> LoadClient:
    """Client ``number`` of a load; those that accept are eligible for all jobs."""
    profile = run.clients[number % len(run.clients)]
    region = run.plan.regions[run.plan.region_of(profile.number)]
    fd = run.netns_fds[run.plan.client_rank(profile.number)]
    best = Attributes(*(max(values) for values in zip(*(job.bounds for job in run.jobs), strict=True)))
    attributes = best if kind == "accepts" else profile.attributes
    if near:
        return LoadClient(number, run.netns_fds[CONTROL], ("127.0.0.1", CONTROL_PORT), attributes)
    return LoadClient(number, fd, (region.control_ip, CONTROL_PORT), attributes)


def _connected(loads: Sequence[Child]) -> None:
    """Wait until all clients have checked in."""
    for load in loads:
        if load.line(_WITHIN_S) != "connected\n":
            raise MachineError(f"not all clients of a load have checked in within {_WITHIN_S:g} s; take fewer")


def _answers(loads: Sequence[Child]) -> list[dict[str, Any]]:
    """Start the loads and wait for what each found."""
    for load in loads:
        load.tell("go")
    lines = [load.line(_WITHIN_S) for load in loads]
    if "" in lines:
        raise MachineError("a load on the control plane ended without a result; its message is above")
    return [json.loads(line) for line in lines]
