"""Predictions for jobs on a rack before and after each failure: decisions of the policies, simulated by the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controllers.circuits import torus_routes
from controllers.policies.catalog import load_policy
from controllers.policies.policy import ClusterState
from experiments.racks.job_prediction import JobPrediction, predicted_jobs
from experiments.racks.job_spec import JobSpec
from experiments.racks.predicted_recovery import PredictedRecovery, Restart, predict_recovery
from experiments.rails.forecast import costs
from measure.live.calibration import load_calibration
from measure.model.prediction import predict
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.program import Collective, Operation, Program

STEPS = 6
"""Steps of the simulation: enough for steps of jobs of different length to overlap in every way."""
RELAUNCH_S = 0.15
"""Wall-clock seconds on this class of machine to end the survivors, fork agents, check in and send the start message
(measured). Includes ``supervisor.GO_S``, from the last agent that is ready to the first step."""


@dataclass(frozen=True)
class JobWindow:
    """An interval of a run between failures: members of each job, dead chips, and the model's prediction of each job.

    ``contended``: whether rings of two jobs share a link between switches.
    """

    members: Mapping[str, tuple[int, ...]]
    dead: frozenset[int]
    jobs: Mapping[str, JobPrediction]
    contended: bool


def combined(programs: Sequence[Program]) -> Program:
    """Programs of jobs without common ranks as one program; their schedules are prefixed with the program's name."""
    parts = [_with_own_names(program) for program in programs]
    operations = tuple(
        next((p.operations[rank] for p in parts if p.operations[rank]), ()) for rank in range(parts[0].ranks)
    )
    groups = {name: group for part in parts for name, group in part.groups.items()}
    schedules = {name: schedule for part in parts for name, schedule in part.schedules.items()}
    return Program("+".join(part.name for part in parts), operations, groups, schedules)


def _with_own_names(program: Program) -> Program:
    names = {name: f"{program.name}/{name}" for name in program.schedules}

    def renamed(op: Operation) -> Operation:
        if isinstance(op, Collective) and op.algorithm in names:
            return replace(op, algorithm=names[op.algorithm])
        return op

    operations = tuple(tuple(renamed(op) for op in ops) for ops in program.operations)
    return replace(program, operations=operations, schedules={names[name]: s for name, s in program.schedules.items()})


def windows(specs: Sequence[JobSpec], plan: FabricPlan, scale: Scale, dying: Sequence[int]) -> list[JobWindow]:
    """The predicted windows: before the first of ``dying`` (ranks in the order of their deaths), and after each death.

    The list ends early when no spare can replace a dead member. ``specs`` share one fabric and one policy.
    """
    assert plan.rack is not None
    policy = load_policy(specs[0].setting.policy, plan)
    members = {spec.name: spec.members for spec in specs}
    dead: frozenset[int] = frozenset()
    found = [_window(specs, plan, scale, members, dead)]
    for rank in dying:
        dead |= {rank}
        affected = next((spec for spec in specs if rank in members[spec.name]), None)
        if affected is not None:
            used = {r for ranks in members.values() for r in ranks}
            free = [spare for spare in plan.rack.spares if spare not in dead and spare not in used]
            groups = tuple(affected.program(members[affected.name], plan.ranks).groups.values())
            policy.start(groups)
            policy.see(ClusterState(dead=dead))
            moved = policy.replace(groups, rank, free)
            if not moved:
                break
            members = {**members, affected.name: tuple(moved.get(r, r) for r in members[affected.name])}
        found.append(_window(specs, plan, scale, members, dead))
    return found


def _window(
    specs: Sequence[JobSpec],
    plan: FabricPlan,
    scale: Scale,
    members: Mapping[str, tuple[int, ...]],
    dead: frozenset[int],
) -> JobWindow:
    program = combined([spec.program(members[spec.name], plan.ranks) for spec in specs])
    setting = specs[0].setting
    prediction = predict(
        program,
        plan,
        load_policy(setting.policy, plan),
        setting.mode,
        scale=scale,
        steps=STEPS,
        costs=costs(load_calibration()),
        avoid=dead,
    )
    jobs = predicted_jobs(prediction.events, members, scale)
    return JobWindow(members, dead, jobs, _contended(plan, members, dead))


def _contended(plan: FabricPlan, members: Mapping[str, tuple[int, ...]], dead: frozenset[int]) -> bool:
    """Whether rings of two jobs cross the same link between switches in the same direction."""
    if not plan.links:
        return False
    tables = torus_routes.routes(plan, dead)
    seen: set[object] = set()
    for ranks in members.values():
        ring = list(zip(ranks, (*ranks[1:], ranks[0]), strict=True))
        pairs = [*ring, *((b, a) for a, b in ring)]
        own = {hop for a, b in pairs for hop in torus_routes.path(plan, tables, a, b)}
        if own & seen:
            return True
        seen |= own
    return False


def predict_outage(
    spec: JobSpec, before: JobWindow, after: JobWindow, plan: FabricPlan, scale: Scale, *, has_checkpoint: bool
) -> PredictedRecovery:
    """The predicted recovery of the job ``spec`` between two windows."""
    newcomers = [r for r in after.members[spec.name] if r not in before.members[spec.name]]
    restart = Restart(
        reconfiguration_delay_s=spec.setting.delay_s,
        checkpoint_bytes=spec.tenant.state_bytes if has_checkpoint else 0.0,
        copies=-(-len(newcomers) // max(1, len(spec.members) - 1)),
        stages=dict(spec.stages),
        launch_s=scale.real_s(RELAUNCH_S),
        first_step_s=after.jobs[spec.name].first_step_s,
        step_time_before_s=before.jobs[spec.name].step_time_s,
        step_time_after_s=after.jobs[spec.name].step_time_s,
    )
    return predict_recovery(restart, spec.detection, plan, scale, costs(load_calibration()))
