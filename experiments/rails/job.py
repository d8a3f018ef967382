"""The job of a rail experiment: its workload, and program and policy in each mode."""

from __future__ import annotations

from typing import Any

from controllers.circuits.rotation import Cycle
from experiments.rails.settings import SLOT_MODES, Experiment, Mode
from railyard.errors import ConfigError
from workloads.catalog import Workload, load_workload
from workloads.collectives.circuits import follow_circuits
from workloads.program import Program
from workloads.training.expert_parallel import ep_demand, hops_algorithm, with_ep_algorithm

POLICY_OF_MODE: dict[Mode, str] = {
    "native": "static",
    "electrical": "electrical",
    "one-shot": "one-shot",
    "on-demand": "opus",
    "provisioned": "opus",
    "rotor": "rotor",
    "demand": "demand",
}
FOLLOW = "follow"


def load_job(experiment: Experiment) -> Workload:
    """The workload that ``experiment`` names, with its options.

    ``ConfigError`` for a workload that cannot be loaded, or a mode that does not apply to it.
    """
    training = {key: True for key in ("overlap", "tp_on_packets") if getattr(experiment, key)}
    options: dict[str, Any] = {**experiment.trace.model_dump(), **training}
    workload = load_workload(experiment.workload, **options)
    for mode in experiment.modes:
        cycle_on(experiment, workload, mode)
    return workload


def policy_name(experiment: Experiment, workload: Workload, mode: Mode) -> str:
    """Name of the policy in ``mode``; in on-demand and provisioned the experiment's ``policy``, if there is one.

    The default there is Opus, which knows data and pipeline parallelism. For a trace of another tool, which may have
    any groups, the default is ``follow``: circuits follow the collectives.
    """
    if mode not in ("on-demand", "provisioned"):
        return POLICY_OF_MODE[mode]
    return experiment.policy or (FOLLOW if workload.traced else POLICY_OF_MODE[mode])


def ep_algorithm(experiment: Experiment, workload: Workload, mode: Mode) -> str:
    """Algorithm of the experts' all-to-alls on the rails in ``mode``; empty to keep that of the program.

    Packet switches deliver directly, through both ports of a GPU, and so do circuits in slots. In other modes data goes
    hop by hop over the circuits of the data-parallel ring (Opus, arXiv 2602.12521: experts have no circuits of their
    own).
    """
    if workload.training is None:
        return ""
    if experiment.fabric_of(mode) == "electrical":
        return "bidirectional-direct"
    if mode in SLOT_MODES:
        return "direct"
    return hops_algorithm(workload.program)


def cycle_on(experiment: Experiment, workload: Workload, mode: Mode) -> Cycle | None:
    """The slot cycle of ``mode`` in real seconds and bytes; None in modes without slots.

    ``ConfigError`` for a workload without all-to-alls of experts on the rails.
    """
    if mode not in SLOT_MODES:
        return None
    program, training = workload.program, workload.training
    rotating = [g for g in program.groups.values() if (g.dimension, g.domain) == ("ep", "scale-out")]
    if training is None or not rotating:
        raise ConfigError(
            f"mode {mode} needs expert parallelism on the rails, which {workload.name} does not have; leave it out",
            key="modes",
        )
    one_way = ep_demand(training, rotating[0])
    both = tuple(tuple(map(max, row, column)) for row, column in zip(one_way, zip(*one_way, strict=True), strict=True))
    return Cycle(
        slot_s=experiment.slot_ms / 1e3 or None,
        guard_s=experiment.guard_ms / 1e3,
        demand=both if mode == "demand" else (),
    )


def program_on(experiment: Experiment, workload: Workload, mode: Mode) -> Program:
    """The program of ``workload`` in ``mode``; under policy ``follow`` with a group for each circuit."""
    if policy_name(experiment, workload, mode) == FOLLOW:
        return follow_circuits(workload.program)
    algorithm = ep_algorithm(experiment, workload, mode)
    return with_ep_algorithm(workload.program, algorithm) if algorithm else workload.program
