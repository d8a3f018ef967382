"""The job of a rail experiment: its workload, its program in each mode, and the points to measure."""

from __future__ import annotations

from typing import Any

from controllers.circuits.rotation import Cycle
from experiments.job_point import Fabric, JobPoint
from experiments.rails.layout import check_floors, port_gbps, smallest_transfer, step_pace, topology_options
from experiments.rails.modes import MODES, OWN_POLICY, Mode
from experiments.rails.settings import RailSettings
from measure.live.calibration import Calibration, default_calibration
from measure.live.scale_choice import ScaleNeeds, pick_scale
from railyard.errors import ConfigError
from railyard.scale import Scale, goodput_bytes_per_s
from topos.options import MOST_MBPS
from topos.rails import RailTopo
from workloads.catalog import Workload, load_workload
from workloads.collectives.circuits import follow_circuits
from workloads.program import Program
from workloads.training.expert_parallel import ep_demand, hops_algorithm, with_ep_algorithm

FOLLOW = "follow"


def load_job(settings: RailSettings) -> Workload:
    """The workload that ``settings`` name, with its options.

    ``ConfigError`` for a workload that cannot be loaded.
    """
    training = {key: True for key in ("overlap", "tp_on_packets") if getattr(settings, key)}
    options: dict[str, Any] = {**settings.trace.model_dump(), **training}
    return load_workload(settings.workload, **options)


def scale_needs(settings: RailSettings, workload: Workload) -> ScaleNeeds:
    """What the job asks of a scale: ports, rates, and its transfers."""
    gbps, ports, mtu = port_gbps(settings, workload), settings.fabric.ports_per_gpu, settings.fabric.mtu
    least = smallest_transfer(workload)
    carried = {"scale-out": ports * goodput_bytes_per_s(gbps, mtu)}
    if workload.uses_scale_up:
        carried["scale-up"] = goodput_bytes_per_s(workload.scale_up_gbps, mtu)
    return ScaleNeeds(
        workload.servers * workload.gpus_per_server * ports,
        gbps,
        least.bytes if least else 0.0,
        step_pace(workload.program, carried),
        mtu,
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
    floors = machine.floors(settings.datapath)
    if settings.scale.rate == "auto":
        time = settings.scale.time if "time" in settings.scale.model_fields_set else None
        scale = pick_scale(scale_needs(settings, workload), floors, machine.of(settings.datapath), time)
    else:
        scale = settings.scale.scale()
    check_floors(settings, workload, scale, floors)
    return scale


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
    if workload.training is None:
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
    algorithm = ep_algorithm(settings, workload, mode)
    return with_ep_algorithm(workload.program, algorithm) if algorithm else workload.program


def fabric_on(settings: RailSettings, workload: Workload, mode: Mode, scale: Scale) -> Fabric:
    """Fabric on which the job runs in ``mode``, at ``scale``."""
    name = settings.fabric_of(mode)
    return Fabric(name, name, lambda: RailTopo(**topology_options(settings, workload, name, scale)))


def job_point(settings: RailSettings, workload: Workload, mode: Mode, delay_ms: float, scale: Scale) -> JobPoint:
    """The point of ``mode`` at a reconfiguration delay of ``delay_ms``."""
    cycle, policy = cycle_on(settings, workload, mode), policy_name(settings, workload, mode)
    return JobPoint(
        name=mode,
        fabric=fabric_on(settings, workload, mode, scale),
        program=program_on(settings, workload, mode),
        mode=mode,
        policy=policy,
        steps=settings.steps,
        model_steps=max(2, min(settings.steps, 3)),
        reconfiguration_delay_s=delay_ms / 1e3,
        link_recovery_s=settings.link_recovery_ms / 1e3,
        cycle=cycle and cycle.scaled(scale.time, scale.rate * scale.time),
        slots="ep" if MODES[mode].slots else "",
        follows=policy == FOLLOW,
    )
