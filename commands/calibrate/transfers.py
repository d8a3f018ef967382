"""Cost of a transfer: how much longer than at line rate agents take that compute and gather in turn.

The agents are those of a run, on one electrical rail with two ports for each rank. All groups of a program work at the
same time, so all links carry bytes together. The cost holds all that a training step pays: late timers, the start of a
collective, messages between its rounds.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import median

from measure.live.calibration import HopCost, TransferCost
from measure.model.prediction import Costs, predict
from railyard.errors import MachineError
from railyard.ownership import temporary_folder
from railyard.scale import ROCE_MTU_BYTES, Scale, goodput_share
from railyard.timeline import Event, read_events
from topos.kernel.emulation import Emulation
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher
from workloads.program import Collective, Compute, Group, Program

PORTS = 2
COMPUTE_S = 0.04
TRANSFER_S = 0.016
"""Compute before each collective, and a transfer at line rate: those of a layer of the default rail job."""
TREE_MBPS, TREE_S = 50.0, 0.15
"""Rate of a port (less on a machine that carries less), and time of the bytes of an all-reduce over two trees."""
_TREE_RANKS = (4, 16)
_ALPHA_S = 2e-4
"""Cost of a hop with which the model is asked what it makes of a cycle; the model is linear in it."""
_CYCLES = {2: 10, 16: 4}
"""Numbers of ranks of a group, and how often it computes and gathers; the first is not counted."""
_PATIENCE_S = 60.0
_START_AFTER_S = 0.2


def program_of(hosts: int, ranks: int, port_mbps: float, cycles: int) -> Program:
    """Program of ``hosts`` in groups of ``ranks`` that compute and then all-gather, ``cycles`` times."""
    groups = {f"g{n}": Group(f"g{n}", "dp", tuple(range(n * ranks, (n + 1) * ranks))) for n in range(hosts // ranks)}
    size = round(PORTS * ranks * TRANSFER_S * port_mbps * 1e6 / 8 * goodput_share(ROCE_MTU_BYTES))

    def operations(group: str) -> Iterable[Compute | Collective]:
        for cycle in range(cycles):
            first = 2 * cycle
            yield Compute(first, f"compute{cycle}", COMPUTE_S, (first - 1,) if cycle else ())
            yield Collective(first + 1, f"gather{cycle}", "all_gather", group, size, (first,), "bidirectional-ring")

    by_group = {name: tuple(operations(name)) for name in groups}
    return Program("transfer-cost", tuple(by_group[f"g{rank // ranks}"] for rank in range(hosts)), groups)


def tree_program(hosts: int, ranks: int, port_mbps: float, cycles: int) -> Program:
    """Program of ``hosts``: the first ``ranks`` compute and then all-reduce over two trees, ``cycles`` times."""
    group = Group("trees", "dp", tuple(range(ranks)))
    size = round(TREE_S * port_mbps * 1e6 / 8 * goodput_share(ROCE_MTU_BYTES))

    def operations() -> Iterable[Compute | Collective]:
        for first in range(0, 2 * cycles, 2):
            yield Compute(first, f"compute{first}", COMPUTE_S, (first - 1,) if first else ())
            yield Collective(first + 1, f"reduce{first}", "all_reduce", "trees", size, (first,), "double-binary-tree")

    own = tuple(operations())
    return Program("hop-cost", tuple(own if rank < ranks else () for rank in range(hosts)), {"trees": group})


def hop_cost(measured_s: float, predicted_s: float, more_s: float, hop_s: float) -> float:
    """Seconds of a hop: what a cycle took beyond ``predicted_s`` without hops, by what ``hop_s`` a hop makes of it.

    ``more_s`` is the cycle predicted with ``hop_s`` for each; at least 0.
    """
    return max(0.0, (measured_s - predicted_s) / (more_s - predicted_s) * hop_s)


def cycles_s(events: Iterable[Event], groups: Mapping[str, Group]) -> dict[str, list[float]]:
    """Seconds of each cycle but the first of every group, without its compute, from events of agents or of the model.

    A cycle is counted from the end of a group's collective on its last rank to the end of the next one. Raises
    ``MachineError`` for a group without two collectives.
    """
    ends: dict[str, dict[int, float]] = {name: defaultdict(float) for name in groups}
    for event in events:
        if event.kind == "communicate" and event.end is not None:
            ends[event["group"]][event["op"]] = max(ends[event["group"]][event["op"]], event.end)
    found = {}
    for name in groups:
        times = sorted(ends[name].values())
        if len(times) < 2:
            raise MachineError(f"measuring the cost of transfers gave {len(times)} collectives of {name}; try again")
        found[name] = [after - before - COMPUTE_S for before, after in pairwise(times)]
    return found


def cost_of(events: Iterable[Event], groups: Mapping[str, Group]) -> float:
    """Median seconds of a transfer beyond line rate, over the cycles of all groups, from agents' events; at least 0.

    The median, since other users of the machine disturb single cycles. Raises as ``cycles_s``.
    """
    rounds = {name: len(group.members) - 1 for name, group in groups.items()}
    found = cycles_s(events, groups)
    return max(0.0, median(cycle / rounds[name] - TRANSFER_S for name in groups for cycle in found[name]))


def transfer_costs(net: Emulation, launcher: AgentLauncher, aggregate_mbps: float, quick: bool) -> list[TransferCost]:
    """Measure the costs on a fabric of ``rail`` whose rates add up to ``aggregate_mbps``."""
    hosts = net.plan.ranks
    found = []
    for ranks, cycles in _CYCLES.items():
        program = program_of(hosts, ranks, aggregate_mbps / hosts / PORTS, cycles if not quick else cycles // 2 + 1)
        cost = cost_of(_play(net, launcher, program), program.groups)
        found.append(TransferCost(ranks, aggregate_mbps, round(cost, 6)))
    return found


def hop_costs(net: Emulation, launcher: AgentLauncher, port_mbps: float, quick: bool) -> list[HopCost]:
    """Measure the cost of a hop at some numbers of hosts, on a fabric of ``rail`` with one port of ``port_mbps``."""
    found = []
    for ranks in _TREE_RANKS:
        program = tree_program(net.plan.ranks, ranks, port_mbps, 3 if quick else 6)
        (measured,) = cycles_s(_play(net, launcher, program), program.groups).values()
        predicted_s, more_s = (_predicted_s(net.plan, program, alpha_s) for alpha_s in (0.0, _ALPHA_S))
        seconds = hop_cost(median(measured), predicted_s, more_s, _ALPHA_S)
        found.append(HopCost(ranks, round(seconds, 6)))
    return found


def _predicted_s(plan: FabricPlan, program: Program, alpha_s: float) -> float:
    """Median cycle of a program of one group in the model."""
    events = predict(program, plan, None, "native", steps=1, costs=Costs(alpha_s)).events
    (found,) = cycles_s(events, program.groups).values()
    return median(found)


def rail(hosts: int, aggregate_mbps: float, ports: int = PORTS) -> RailTopo:
    """The fabric for ``transfer_costs`` and, with one of ``ports``, for ``hop_costs``."""
    rate_mbps = aggregate_mbps / hosts / ports
    return RailTopo(servers=hosts, gpus=1, ports=ports, fabric="electrical", rate_mbps=rate_mbps, mtu=ROCE_MTU_BYTES)


def _play(net: Emulation, launcher: AgentLauncher, program: Program) -> list[Event]:
    """Run ``program`` once with an agent on every host, and return the events of the agents."""
    with temporary_folder() as folder:
        files = [folder / f"agent{rank}.jsonl" for rank in range(program.ranks)]
        configs = [
            AgentConfig(rank, "calibrate", "native", program, Scale(1.0), net.plan, str(file), steps=1)
            for rank, file in enumerate(files)
        ]
        team = launcher.launch(configs, [net.netns_fd(host) for host in net.plan.hosts])
        try:
            team.wait_ready()
            team.go(time.monotonic() + _START_AFTER_S)
            team.wait_done(_PATIENCE_S)
        finally:
            team.stop()
        return [event for file in files for event in read_events(file)]
