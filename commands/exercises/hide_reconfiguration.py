"""Lab hide-reconfiguration: a policy of the student's own, judged by the step that the model predicts with it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from pathlib import Path

from commands.exercises.exercise import Exercise, ExercisePart, Missing
from commands.exercises.model import predicted
from controllers.circuits.circuits import Matching
from controllers.engine.jobs import Job
from controllers.policies.catalog import load_policy, rehearse
from controllers.policies.wiring import paths_in, rail_of_group
from experiments.rails.job import job_point, load_job, model_scale
from experiments.rails.settings import make_settings
from workloads.catalog import with_all_ranks
from workloads.program import Group

_JOB = "smoke"


def _keeps_circuits(file: Path) -> None:
    """Answer requests of all groups, one after another; no group may lose the circuits on which it may be sending."""
    settings = make_settings({"workload": _JOB})
    workload = with_all_ranks(load_job(settings))
    plan = job_point(settings, workload, "on-demand", 0, model_scale(settings, workload)).fabric.plan()
    groups = [group for group in workload.program.groups.values() if group.domain == "scale-out"]
    rehearse(f"{file}:Hide", plan, groups)
    for delay_s in (0.001, 1.0):
        policy = load_policy(f"{file}:Hide", plan)
        policy.prepare(Job(_JOB, tuple(groups), "on-demand", delay_s))
        current = {switch.name: Matching() for switch in plan.switches if switch.kind == "ocs"}
        current |= policy.start(groups)
        held: dict[str, Group] = {}
        for group in [*groups, *reversed(groups)]:
            held = {name: other for name, other in held.items() if not set(other.members) & set(group.members)}
            if policy.asks(group):
                before = {name: policy.paths(other, current) for name, other in held.items()}
                current |= policy.wanted(group, current)
                for name, other in held.items():
                    if not set(before[name]) <= set(policy.paths(other, current)):
                        raise Missing(f"when {group.name} asks, {name} loses a circuit on which it may be sending")
            paths = tuple(policy.paths(group, current))
            if not paths or paths_in(rail_of_group(plan, group), paths, current) != paths:
                raise Missing(f"{group.name} has asked and has no circuit")
            held[group.name] = group


def _steps(delays_ms: Sequence[float], exposes: float, stands_s: float, file: Path) -> None:
    """Compare steps with those of on-demand: what they add to electrical may be the share ``exposes`` of its own.

    ``stands_s``: what circuits that stand add; where that is less, it counts instead.
    """
    _keeps_circuits(file)  # the model also sends where there is no circuit
    modes = ["electrical", "on-demand"]
    packets, *opus = predicted("rails", workload=_JOB, modes=modes, delays_ms=delays_ms)
    own = predicted("rails", workload=_JOB, modes=modes, delays_ms=delays_ms, policy=f"{file}:Hide")[1:]
    packets_s = packets["predicted_step_time_s"]
    for delay_ms, step, opus_step in zip(delays_ms, own, opus, strict=True):
        most_s = packets_s + min(exposes * (opus_step["predicted_step_time_s"] - packets_s), stands_s)
        if (step_s := step["predicted_step_time_s"]) > most_s + 0.002:
            raise Missing(f"at {delay_ms:g} ms a step takes {step_s:.4g} s; reach {most_s:.4g} s")


PARTS = (
    ExercisePart(2, "every group gets circuits, and none loses those it sends on", _keeps_circuits),
    ExercisePart(3, "long delays: half of what Opus exposes, or less", partial(_steps, (220, 600), 0.5, inf)),
    ExercisePart(3, "short delays: no more than Opus exposes", partial(_steps, (4, 35), 1.0, inf)),
    ExercisePart(2, "near the break-even: the better of both", partial(_steps, (65, 77), 1.0, 0.142)),
)
EXERCISE = Exercise("hide-reconfiguration", "Write a policy that hides reconfiguration", "policy.py", PARTS)
