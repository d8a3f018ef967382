"""The job of a rail experiment: its workload, its fabric and program in each mode, and the points to measure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controllers.circuits.rotation import Cycle
from controllers.policies.static import split_bandwidth
from experiments.job_point import Fabric, JobPoint
from experiments.rails.settings import MODES, OWN_POLICY, Mode, RailSettings
from experiments.rails.traffic import traffic_of
from experiments.settings import SpreadSettings
from measure.live.calibration import Calibration, default_calibration
from measure.live.scale_choice import ScaleNeeds, check_carried, pick_scale
from railyard.errors import ConfigError
from railyard.scale import Floors, Scale, goodput_bytes_per_s
from topos.options import MOST_MBPS
from topos.rails import RailTopo
from workloads.catalog import Workload, load_workload, make_workload
from workloads.collectives.catalog import schedule_of
from workloads.collectives.circuits import follow_circuits
from workloads.collectives.four_lanes import on_four_lanes
from workloads.program import Collective, Compute, Operation, Program, Send
from workloads.schedule import Schedule
from workloads.stragglers.injection import LateRank, inject, parse_late_rank
from workloads.training.expert_parallel import ep_demand, hops_algorithm, with_ep_algorithm
from workloads.training.recipe import Recipe

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
            times = program.repeats.get(op.group, 1.0)
            yield op.name, group.dimension, [times * size for size in _transfer_bytes(plan, op.bytes)], plan.n


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
    """Keyword arguments of ``topos.rails.RailTopo`` for one fabric (``RailSettings.fabric_of``).

    One-shot splits the bandwidth of a GPU's ports between data-parallel and pipeline lanes by the square root of the
    traffic, and so does four-lane. With two stages a GPU of one-shot has one pipeline circuit, which gets the whole
    pipeline share, and one of four-lane has two. A lane of a dimension without traffic keeps a hundredth, so that its
    link exists.
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
        "overhead": settings.fabric.overhead,
        "scale_up": workload.uses_scale_up,
        "front_end": workload.uses_front_end or workload.front_end_gbps is not None,
    }
    if workload.front_end_gbps is not None:
        options["front_end_mbps"] = scale.emulated_mbps(workload.front_end_gbps)
    if workload.uses_scale_up:
        options["scale_up_mbps"] = scale.emulated_mbps(workload.scale_up_gbps)
    if fabric in SPLIT:
        traffic = rail_traffic(workload)
        ring = sum(size for dimension, size in traffic.items() if dimension != "pp")
        if not traffic:
            raise ConfigError(f"{workload.name} has no traffic on the rails to split their bandwidth by")
        share = split_bandwidth(rate_mbps * ports, {"ring": ring, "chain": traffic.get("pp", 0.0)})
        floor = rate_mbps / 100
        chain_lanes = min(2, max(1, workload.parallelism.pp - 1)) if fabric == "one-shot" else 2
        ring_rate, chain_rate = max(share["ring"] / 2, floor), max(share["chain"] / chain_lanes, floor)
        options["lane_rates"] = [ring_rate, ring_rate, chain_rate, chain_rate]
        options["fabric"] = "one-shot"
        del options["ports"]
    return options


FOLLOW = "follow"
SPLIT = ("one-shot", "four-lane")
"""Fabrics whose GPUs have four ports, two for each dimension."""


def load_job(settings: RailSettings) -> Workload:
    """The workload that ``settings`` name, with its options, for the model: ranks that stand for all others alone.

    ``ConfigError`` for a workload that cannot be loaded.
    """
    given: dict[str, Any] = {"tp_on_packets": settings.tp_on_packets or None, "overlap": settings.overlap}
    training = {key: value for key, value in given.items() if value is not None}
    workload = load_workload(settings.workload, folded=True, **settings.trace.model_dump(), **training)
    recipe = workload.training
    if recipe is None or recipe.compute.native_step_s is None or port_gbps(settings, workload) == workload.port_gbps:
        return workload
    return make_workload(fitted(settings, recipe), folded=True)


_FIT_STEPS = 8


def fitted(settings: RailSettings, recipe: Recipe) -> Recipe:
    """``recipe`` with the forward time with which its native step on the ports of ``settings`` is the measured one.

    By the secant method: a step grows with the forward time nearly in proportion.
    """
    aim, low = recipe.compute.native_step_s, recipe.compute.forward_ms
    assert aim is not None and low is not None

    def step_s(forward_ms: float) -> float:
        workload = make_workload(_with_forward(recipe, forward_ms), folded=True)
        scale = model_scale(settings, workload)
        job = job_point(settings, workload, "native", 0.0, scale)
        return job.prediction(job.fabric.plan(), scale).step_time_s

    step_low, high = step_s(low), low * 1.1
    if abs(step_low - aim) < 1e-6 * aim:  # it is given to six digits
        return recipe
    for _ in range(_FIT_STEPS):
        step_high = step_s(high)
        if abs(step_high - aim) < 1e-9 * aim or step_high == step_low:
            break
        low, step_low, high = high, step_high, high + (aim - step_high) * (high - low) / (step_high - step_low)
    return _with_forward(recipe, high)


def _with_forward(recipe: Recipe, forward_ms: float) -> Recipe:
    return recipe.model_copy(update={"compute": recipe.compute.model_copy(update={"forward_ms": forward_ms})})


def scale_needs(settings: RailSettings, workload: Workload) -> ScaleNeeds:
    """The needs of the job that a scale must meet: ports, rates, and its transfers."""
    gbps, fabric = port_gbps(settings, workload), settings.fabric
    least = smallest_transfer(workload)
    carried = {"scale-out": fabric.ports_per_gpu * goodput_bytes_per_s(gbps, fabric.mtu, fabric.overhead)}
    if workload.uses_scale_up:
        carried["scale-up"] = goodput_bytes_per_s(workload.scale_up_gbps, fabric.mtu, fabric.overhead)
    return ScaleNeeds(
        workload.servers * workload.gpus_per_server * fabric.ports_per_gpu,
        gbps,
        least.bytes if least else 0.0,
        step_pace(workload.program, carried),
        fabric.mtu,
    )


def model_scale(settings: RailSettings, workload: Workload) -> Scale:
    """The scale of a prediction alone, in which nothing is sent: no floor of the wire applies.

    It is 1 (or that of ``settings``) unless a link would be faster than a topology may have; then it is the largest
    that fits. Predicted times hardly depend on it: sizes are rounded to whole bytes of the emulated wire.
    """
    rates = [port_gbps(settings, workload) * settings.fabric.ports_per_gpu]  # a one-shot lane may have all of it
    if workload.uses_scale_up:
        rates.append(workload.scale_up_gbps)
    given = settings.scale.rate
    most = MOST_MBPS / 1000 / max(rates)
    return Scale(min(1.0 if given == "auto" else given, most), settings.scale.time)


def resolve_scale(settings: RailSettings, workload: Workload, calibration: Calibration | None) -> Scale:
    """The scale of a run with packets: that of the settings, or with rate ``auto`` the best here (``pick_scale``).

    ``ConfigError`` if a transfer, a delay or a slot is below its floor.
    """
    machine = calibration or default_calibration()
    scale = scale_for(settings, scale_needs(settings, workload), machine)
    check_floors(settings, workload, scale, machine.floors(settings.datapath))
    return scale


def scale_for(settings: SpreadSettings, needs: ScaleNeeds, machine: Calibration) -> Scale:
    """The scale of ``settings``, or with rate ``auto`` the best for ``needs`` on ``machine`` (``pick_scale``).

    ``ConfigError`` for a rate that this machine does not carry, if it carries all links alone.
    """
    if settings.scale.rate != "auto":
        scale = settings.scale.scale()
        if not settings.cluster:  # there each machine carries a part of the links
            check_carried(needs, machine.of(settings.datapath), scale, guessed=machine.guessed)
        return scale
    time = settings.scale.time if "time" in settings.scale.model_fields_set else None
    return pick_scale(needs, machine.floors(settings.datapath), machine.of(settings.datapath), time)


def policy_name(settings: RailSettings, workload: Workload, mode: Mode) -> str:
    """Name of the policy in ``mode``; in on-demand and provisioned that of ``settings``, if there is one.

    The default there is Opus, which knows data and pipeline parallelism. For a trace of another tool, which may have
    any groups, the default is ``follow``: circuits follow the collectives.
    """
    if mode not in OWN_POLICY:
        return MODES[mode].policy
    return settings.policy or (FOLLOW if workload.traced else MODES[mode].policy)


def ep_algorithm(settings: RailSettings, workload: Workload, mode: Mode) -> str:
    """Algorithm of the experts' all-to-alls on the rails in ``mode``; empty to keep that of the program.

    Packet switches deliver directly, through both ports of a GPU, and so do circuits in slots. In other modes data goes
    hop by hop over the circuits of the data-parallel ring (Opus, arXiv 2602.12521: experts have no circuits of their
    own).
    """
    if workload.traced:
        return ""
    if settings.fabric_of(mode) == "electrical":
        return "bidirectional-direct"
    return "direct" if MODES[mode].slots else hops_algorithm(workload.program)


def cycle_on(settings: RailSettings, workload: Workload, mode: Mode) -> Cycle | None:
    """The slot cycle of ``mode`` in real seconds and bytes; None in modes without slots.

    ``ConfigError`` for a workload without all-to-alls of experts on the rails.
    """
    if not MODES[mode].slots:
        return None
    program, training = workload.program, workload.training
    rotating = [g for g in program.groups.values() if (g.dimension, g.domain) == ("ep", "scale-out")]
    if training is None or not rotating:
        raise ConfigError(f"{workload.name} has no all-to-alls of experts on the rails, which its slots are for")
    one_way = ep_demand(training, rotating[0])
    both = tuple(tuple(map(max, row, column)) for row, column in zip(one_way, zip(*one_way, strict=True), strict=True))
    return Cycle(
        slot_s=settings.slot_ms / 1e3 or None,
        guard_s=settings.guard_ms / 1e3,
        demand=both if mode == "demand" else (),
    )


def program_on(settings: RailSettings, workload: Workload, mode: Mode) -> Program:
    """The program of ``workload`` in ``mode``; under policy ``follow`` with a group for each circuit."""
    if policy_name(settings, workload, mode) == FOLLOW:
        return follow_circuits(workload.program)
    if mode == "deciding":
        options = topology_options(settings, workload, settings.fabric_of(mode), Scale(1.0))
        return on_four_lanes(workload.program, options["lane_rates"], workload.parallelism.pp == 2)
    algorithm = ep_algorithm(settings, workload, mode)
    return with_ep_algorithm(workload.program, algorithm) if algorithm else workload.program


def fabric_on(
    settings: RailSettings, workload: Workload, mode: Mode, scale: Scale, slow: Mapping[int, float] | None = None
) -> Fabric:
    """The fabric of ``mode``; ``slow`` is the share of the rate that the ports of single ranks have."""
    kind = settings.fabric_of(mode)
    name = f"{kind}-slow" if slow else kind
    options = topology_options(settings, workload, kind, scale)
    return Fabric(name, name, lambda: RailTopo(**options, slow=slow), {} if slow else options)


def late_point(
    settings: RailSettings, workload: Workload, mode: Mode, job: JobPoint, late: str, scale: Scale
) -> JobPoint:
    """``job`` with a late rank; the model takes the background traffic at its ports as ports of a lower rate.

    Of a run of one step the model plays that step, and not a later one: from the second step on a rank of the last
    stage is late while the first stage still ends the step before.
    """
    rank, injection = late_rank_of(workload, late)
    ranks = workload.program.ranks
    slow, taken = injection.slow_links(ranks, rank), injection.background_share
    late_rank = injection.late_rank(ranks, rank)
    left = {**slow, late_rank: slow.get(late_rank, 1.0) * (1 - taken)}
    steps = job.steps if injection.varies or job.steps == 1 else max(job.steps, job.model_steps)
    return replace(
        job,
        name=f"{job.name}-late",
        fabric=fabric_on(settings, workload, mode, scale, slow) if slow else job.fabric,
        program=inject(job.program, injection, rank, steps, settings.seed),
        background=(late_rank, taken) if taken else None,
        predicted_on=fabric_on(settings, workload, mode, scale, left).plan() if taken else None,
        each_step=injection.varies,
        model_steps=steps,
    )


def late_rank_of(workload: Workload, late: str) -> LateRank:
    """The late rank that ``late`` names; ``ConfigError`` if the job does not have it."""
    found, ranks = parse_late_rank(late), workload.program.ranks
    if found.rank >= ranks:
        raise ConfigError(f"names rank {found.rank}, and {workload.name} has ranks 0 to {ranks - 1}", key="late")
    return found


def late_s(settings: RailSettings, workload: Workload, late: str) -> float:
    """Seconds by which a rank is late, mean of the measured steps; 0 where its links or computes are slow."""
    rank, injection = late_rank_of(workload, late)
    ranks = workload.program.ranks
    gaps = injection.delays(ranks, settings.steps, rank, settings.seed)[injection.late_rank(ranks, rank)]
    counted = gaps[1:] or gaps
    return sum(counted) / len(counted)


def job_point(
    settings: RailSettings, workload: Workload, mode: Mode, delay_ms: float, scale: Scale, late: str = ""
) -> JobPoint:
    cycle, policy = cycle_on(settings, workload, mode), policy_name(settings, workload, mode)
    learning, stale = (settings.profile_steps, settings.stale_step) if mode == "provisioned" else (0, 0)
    job = JobPoint(
        name=mode,
        fabric=fabric_on(settings, workload, mode, scale),
        program=program_on(settings, workload, mode),
        mode=mode,
        policy=policy,
        steps=settings.steps,
        model_steps=max(stale + 2 if stale else 0, learning + 2 if learning else max(2, min(settings.steps, 3))),
        profile_steps=learning,
        stale_step=stale,
        reconfiguration_delay_s=delay_ms / 1e3,
        link_recovery_s=settings.link_recovery_ms / 1e3,
        cycle=cycle and cycle.scaled(scale.time, scale.rate * scale.time),
        slots="ep" if MODES[mode].slots else "",
        follows=policy == FOLLOW,
    )
    if mode == "deciding":
        job = replace(job, traffic=traffic_of(job, scale))
    return late_point(settings, workload, mode, job, late, scale) if late else job
