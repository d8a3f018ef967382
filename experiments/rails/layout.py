"""Fabrics of a rail experiment, computed from its settings and its workload: rates, lanes, traffic and floors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controllers.policies.static import split_bandwidth
from experiments.rails.settings import RailSettings
from railyard.errors import ConfigError
from railyard.scale import Floors, Scale
from workloads.catalog import Workload
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective, Compute, Operation, Program, Send
from workloads.schedule import Schedule

PACKET_BYTES = 4096
"""Payload of one packet of the real fabric (the largest MTU of RoCE)."""


@dataclass(frozen=True)
class WireTransfer:
    """The smallest message that an operation sends over a rail, in bytes of the real system."""

    operation: str
    dimension: str
    bytes: float


def rail_transfers(workload: Workload) -> Iterator[WireTransfer]:
    """The smallest message of every operation on the rails."""
    for name, dimension, sizes, _ in _on_rails(workload):
        if any(sizes):
            yield WireTransfer(name, dimension, min(size for size in sizes if size))


def _on_rails(workload: Workload) -> Iterator[tuple[str, str, list[float], int]]:
    """Every operation that sends over the rails: name, dimension, bytes of its transfers, number of ranks that send."""
    program = workload.program
    for op in (op for operations in program.operations for op in operations if isinstance(op, (Collective, Send))):
        group = program.groups[op.group]
        if group.domain != "scale-out":
            continue
        if isinstance(op, Send):
            yield op.name, group.dimension, [op.bytes], 1
        else:
            plan = schedule_of(program, op)
            yield op.name, group.dimension, _transfer_bytes(plan, op.bytes), plan.n


def _transfer_bytes(plan: Schedule, size: int) -> list[float]:
    """Bytes of each transfer of a collective of ``size`` bytes; in an all-to-all that is the input of one rank."""
    whole = size * plan.n if plan.kind == "all_to_all" else size
    if not plan.weights:
        return [whole / plan.chunks] * len(plan.transfers)
    return [whole * plan.weights[t.chunk] / sum(plan.weights) for t in plan.transfers]


def smallest_transfer(workload: Workload) -> WireTransfer | None:
    """The smallest message on the rails that fills a packet; None for a job without such a message.

    A message of less than a packet in the real system (a scalar) is one packet at any scale, so it shows latency and
    not bandwidth.
    """
    return min((t for t in rail_transfers(workload) if t.bytes >= PACKET_BYTES), key=lambda t: t.bytes, default=None)


def rail_traffic(workload: Workload) -> dict[str, float]:
    """Bytes that all ranks together send over the rails in a step, by dimension (real bytes)."""
    traffic: dict[str, float] = defaultdict(float)
    for _, dimension, sizes, senders in _on_rails(workload):
        traffic[dimension] += sum(sizes) / senders
    return dict(traffic)


def step_pace(program: Program, bytes_per_s: Mapping[str, float]) -> dict[int, float]:
    """Transfers one after another in a second of a step, by the number of ranks of their group, of the busiest rank.

    ``bytes_per_s`` is what all ports of a rank carry together on each network (domain of the program); operations on
    other networks are left out. A step is taken as its operations one after another, so where they overlap the number
    is too high.
    """
    paces = (_rank_pace(program, operations, bytes_per_s) for operations in program.operations)
    return max(paces, key=lambda pace: sum(pace.values()), default={})


def _rank_pace(program: Program, operations: Sequence[Operation], bytes_per_s: Mapping[str, float]) -> dict[int, float]:
    transfers: Counter[int] = Counter()
    seconds = 0.0
    for op in operations:
        if isinstance(op, Compute):
            seconds += op.seconds
        elif (group := program.groups[op.group]).domain in bytes_per_s:
            plan = schedule_of(program, op) if isinstance(op, Collective) else None
            transfers[len(group.members)] += plan.rounds if plan else 1
            sent = sum(_transfer_bytes(plan, op.bytes)) / plan.n if plan else op.bytes
            seconds += sent / bytes_per_s[group.domain]
    return {ranks: count / seconds for ranks, count in transfers.items()} if seconds else {}


def port_gbps(settings: RailSettings, workload: Workload) -> float:
    """Real rate of one port in Gb/s: that of the experiment, or else that of the workload."""
    return settings.fabric.rate_gbps or workload.port_gbps


def check_floors(settings: RailSettings, workload: Workload, scale: Scale, floors: Floors) -> None:
    """Raise ``ConfigError`` for transfers or delays below the floors of faithful emulation.

    The error names a scale that would work.
    """
    least = smallest_transfer(workload)
    if least is not None:
        what = f"the smallest transfer of {workload.name} ({least.operation})"
        floors.check_transfer(least.bytes, what, scale, settings.fabric.mtu)
    for delay_ms in settings.delays_ms:
        floors.check_delay(delay_ms / 1e3, f"the delay of {delay_ms:g} ms", scale)
    floors.check_delay(settings.link_recovery_ms / 1e3, "link_recovery_ms", scale)
    floors.check_slot(settings.slot_ms / 1e3, f"the slot of {settings.slot_ms:g} ms", scale)


def topology_options(settings: RailSettings, workload: Workload, fabric: str, scale: Scale) -> dict[str, Any]:
    """Keyword arguments of ``topos.rails.RailTopo`` for one fabric (``ocs``, ``electrical`` or ``one-shot``).

    One-shot splits the bandwidth of a GPU's ports between data-parallel and pipeline lanes by the square root of the
    traffic. With two stages a GPU has one pipeline circuit, which gets the whole pipeline share. A lane of a dimension
    without traffic keeps a hundredth, so that its link exists.
    """
    rate_mbps = scale.emulated_mbps(port_gbps(settings, workload))
    ports = settings.fabric.ports_per_gpu
    options: dict[str, Any] = {
        "servers": workload.servers,
        "gpus": workload.gpus_per_server,
        "ports": ports,
        "rate_mbps": rate_mbps,
        "fabric": fabric,
        "mtu": settings.fabric.mtu,
        "scale_up": workload.uses_scale_up,
        "front_end": workload.uses_front_end,
    }
    if workload.uses_scale_up:
        options["scale_up_mbps"] = scale.emulated_mbps(workload.scale_up_gbps)
    if fabric == "one-shot":
        traffic = rail_traffic(workload)
        ring = sum(size for dimension, size in traffic.items() if dimension != "pp")
        if not traffic:
            raise ConfigError(f"{workload.name} has no traffic on the rails to split their bandwidth by")
        share = split_bandwidth(rate_mbps * ports, {"ring": ring, "chain": traffic.get("pp", 0.0)})
        floor = rate_mbps / 100
        chain_lanes = min(2, max(1, workload.parallelism.pp - 1))
        ring_rate, chain_rate = max(share["ring"] / 2, floor), max(share["chain"] / chain_lanes, floor)
        options["lane_rates"] = [ring_rate, ring_rate, chain_rate, chain_rate]
        del options["ports"]
    return options
