"""A datapath to measure, and what runs on it: nets, rails whose circuits change, programs, experiments."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from mininet.topo import Topo

from commands.bench import Datapath, Measurement, at_most
from controllers.northbound.client import ChannelClient
from controllers.openflow import app
from experiments.controller_process import ControllerFiles, ControllerProcess
from experiments.experiment import Experiment
from experiments.runner import Runner
from experiments.settings import RepeatedSettings
from measure.results.row import Row
from railyard.errors import MachineError
from railyard.ownership import temporary_folder
from railyard.scale import Scale
from railyard.timeline import Event, read_events
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher
from workloads.program import Program

_START_AFTER_S = 0.2


class Played(NamedTuple):
    """The events of the agents of a program, and the shares of a core of each.

    Also how long they took until they were ready, and the memory that their processes had then.
    """

    events: list[Event]
    shares: list[float]
    ready_s: float
    memory_bytes: int


def matching(ports: int, shift: int) -> list[tuple[int, int]]:
    """A perfect matching of ``ports`` ports; those of even and odd ``shift`` share no circuit."""
    return [(port, port % ports + 1) for port in range(1 + shift % 2, ports + 1, 2)]


@dataclass
class Rail:
    """A rail fabric and its controller, which is ready; ``shift`` counts the changes of all circuits of rail 0."""

    net: Emulation
    controller: ControllerProcess
    client: ChannelClient
    shift: int = 0

    def swap(self, delay_s: float = 0.0) -> tuple[float, float]:
        """Change to the matching of ``shift``; when that was asked for, and answered (monotonic s)."""
        pairs = matching(len(self.net.plan.switches[0].ports), self.shift)
        began = time.monotonic()
        self.client.rewire("rail0", pairs, "overwrite", delay_s=delay_s)
        ended = time.monotonic()
        self.shift += 1
        return began, ended

    def swaps(self, count: int, rest_s: float = 0.0, delay_s: float = 0.0) -> list[tuple[float, float]]:
        """As ``swap``, of ``count`` changes, each after a pause of ``rest_s``."""
        found = []
        for _ in range(count):
            time.sleep(rest_s)
            found.append(self.swap(delay_s))
        return found

    def changes(self, since: float = 0.0) -> list[Event]:
        """The changes that the controller noted, each to the barrier reply of the switch or the end of its delay."""
        events = read_events(self.controller.files.events)
        return [e for e in events if e.kind == "reconfigure" and e.end is not None and e.t >= since]


@dataclass
class Bed:
    """A datapath, by the name that the user gave: all that a benchmark has to know.

    ``stock`` keeps what stock Mininet reached, also if it failed, for all datapaths of a run; ``runs`` are those of
    ``quick``, ``parts`` and ``repeats`` those of ``model``, ``agents_per_process`` that of all-reduces.
    """

    datapath: Datapath = "auto"
    stock: dict[str, dict[str, Any] | MachineError] = field(default_factory=dict)
    runs: int = 20
    parts: Sequence[str] | None = None
    repeats: int = 1
    agents_per_process: int = 0

    def make(self, topo: Topo, **options: Any) -> Emulation:
        """A net on this datapath, not yet started; without ``openflow`` among the ``options`` it has no controller."""
        return Emulation(topo, datapath=self.datapath, **{"openflow": None} | options)

    @contextmanager
    def rail(self, **shape: Any) -> Iterator[Rail]:
        """A rail fabric of this ``shape`` (see ``RailTopo``) under its controller."""
        topo = RailTopo(**{"gpus": 1, "rate_mbps": 10, "fabric": "ocs"} | shape)
        with Emulation(topo, datapath=self.datapath, packet_ins=False) as net, temporary_folder() as data:
            files = ControllerFiles.written(Path(net.yard.run_dir), net.plan, data)
            exact = net.datapath != "ovs"
            with ControllerProcess(files, app.DEFAULT, net.yard.netns_fd, exact_barriers=exact) as controller:
                controller.wait_ready()
                with ChannelClient(files.channel) as client:
                    yield Rail(net, controller, client)

    @cached_property
    def used(self) -> str:
        """The datapath that is in use: ``auto`` is resolved by a net of two hosts."""
        if self.datapath != "auto":
            return self.datapath
        with self.make(RailTopo(servers=2, gpus=1, ports=1, rate_mbps=10)) as net:
            return str(net.datapath)

    def limit(self, bpf: float | None, others: float | None = None) -> float | None:
        """The limit of a value on this datapath; None where there is none."""
        return bpf if self.used == "bpf" else others

    def at_most(
        self, name: str, value: float, unit: str, bpf: float | None, others: float | None = None
    ) -> Measurement:
        """A measurement with the largest value that is good, by datapath."""
        return at_most(name, value, unit, self.limit(bpf, others))

    def at_least(
        self, name: str, value: float, unit: str, bpf: float | None, others: float | None = None
    ) -> Measurement:
        """A measurement with the smallest value that is good, by datapath."""
        limit = self.limit(bpf, others)
        return Measurement(name, value, unit, limit=limit, ok=None if limit is None else value >= limit)


def rows_of(experiment: Experiment[Any], repeats: int = 1) -> list[Row]:
    """Run ``experiment`` without leaving a results folder, and return its rows; needs root.

    Nothing is measured again if it is not faithful: a bench counts what is not.
    """
    if isinstance(experiment.settings, RepeatedSettings):
        experiment.settings = experiment.settings.model_copy(update={"repeats": repeats, "attempts": 1})
    with temporary_folder() as folder:
        with Runner(experiment, folder / "results") as runner:
            experiment.check()
            experiment.run(runner)
        return runner.rows


def play(
    net: Emulation,
    launcher: AgentLauncher,
    program: Program,
    steps: int,
    patience_s: float,
    agents_per_process: int = 0,
) -> Played:
    """Run ``program`` with an agent on every host of ``net``; ``MachineError`` if it takes over ``patience_s``."""
    with temporary_folder() as folder:
        files = [folder / f"agent{rank}.jsonl" for rank in range(program.ranks)]
        configs = [
            AgentConfig(
                rank,
                "bench",
                "native",
                program,
                Scale(1.0),
                net.plan,
                str(file),
                steps=steps,
                agents_per_process=agents_per_process,
            )
            for rank, file in enumerate(files)
        ]
        launched = time.monotonic()
        team = launcher.launch(configs, [net.netns_fd(host) for host in net.plan.hosts])
        try:
            team.wait_ready()
            ready_s, memory = time.monotonic() - launched, sum(map(_memory_bytes, set(team.pids.values())))
            start = time.monotonic() + _START_AFTER_S
            team.go(start)
            team.wait_done(patience_s)
            elapsed = time.monotonic() - start
        finally:
            team.stop()
        events = [event for file in files for event in read_events(file)]
    shares = [event["processor_s"] / elapsed for event in events if event.kind == "sockets"]
    return Played(events, shares, ready_s, memory)


def _memory_bytes(pid: int) -> int:
    """The memory of a process, of pages that it shares its part."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def laps_s(events: Iterable[Event], groups: Iterable[str]) -> dict[str, list[float]]:
    """Seconds from the end of each collective of every group on its last rank to the end of the next one.

    From events of agents or of the model. Raises ``MachineError`` for a group without two collectives.
    """
    ends: dict[str, dict[tuple[int, int], float]] = {name: defaultdict(float) for name in groups}
    for event in events:
        if event.kind == "communicate" and event.end is not None:
            of_group, key = ends[event["group"]], (event["step"], event["op"])
            of_group[key] = max(of_group[key], event.end)
    for name, of_group in ends.items():
        if len(of_group) < 2:
            raise MachineError(f"the agents noted the ends of {len(of_group)} collectives of {name}; try again")
    return {
        name: [after - before for before, after in pairwise(sorted(of_group.values()))]
        for name, of_group in ends.items()
    }
