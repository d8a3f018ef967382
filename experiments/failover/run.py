"""Runs the failover experiment: jobs and kills on every fabric; each fault gives a row of measured and model times."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controllers.policies.catalog import load_policy
from experiments.failover.settings import FailoverExperiment, Setting
from experiments.racks.forecast import predict_outage, windows
from experiments.racks.job_spec import JobSpec
from experiments.racks.kill import Kill
from experiments.racks.neighbour import neighbour_effect
from experiments.racks.recovery import Recovery
from experiments.racks.row import fault_row, neighbour_row, prediction_row, with_ratios
from experiments.racks.run import RackResult, RackRun, Say
from experiments.racks.supervisor import JobSupervisor
from measure.results.row import Row
from railyard.protocol import Hop
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.program import Group

ENDLESS = 10_000
"""Steps of a neighbour: more than it can finish, since it is stopped when the job ends."""


def ring_paths(setting: Setting, plan: FabricPlan, members: tuple[int, ...]) -> list[Hop]:
    """The circuits that the policy gives a ring of ``members``; empty on packet switches."""
    policy = load_policy(setting.policy, plan)
    group = Group("ring", "dp", members)
    return list(policy.paths(group, policy.start([group])))


def ring_lanes(setting: Setting, plan: FabricPlan, members: tuple[int, ...]) -> int:
    """Number of lanes that keeps every circuit of the ring busy in both directions: two for each circuit of a hop.

    In a ring of two all circuits between the pair belong to one hop, and in the other direction to the next hop.
    """
    hop = sum({rank, peer} == set(members[:2]) for rank, _, peer, _ in ring_paths(setting, plan, members))
    return max(1, hop if len(members) == 2 else 2 * hop)


def specs_of(experiment: FailoverExperiment, setting: Setting, plan: FabricPlan, scale: Scale) -> list[JobSpec]:
    """Specifications of the jobs on one fabric: the job that loses a chip, and its neighbour."""
    assert plan.rack is not None
    tenants = [experiment.job, *([experiment.neighbour] if experiment.neighbour is not None else [])]
    return [
        JobSpec(
            name=rented.name,
            members=rented.ranks,
            tenant=tenant,
            setting=setting,
            steps=ENDLESS if number else experiment.steps,
            lanes=ring_lanes(setting, plan, rented.ranks) if setting.photonic else 2,
            detection=experiment.detection.detection(scale),
            stages=tuple(experiment.stages.items()),
            seed=experiment.seed,
            verify=experiment.verify,
            ack_timeout_s=experiment.ack_timeout_s,
        )
        for number, (rented, tenant) in enumerate(zip(plan.rack.tenants, tenants, strict=False))
    ]


def predicted_rows(experiment: FailoverExperiment) -> list[Row]:
    """Rows of predictions for every fabric, computed by the model alone; needs no root."""
    scale, rows = experiment.scale.scale(), []
    for name in experiment.fabrics:
        setting = experiment.setting(name)
        plan = experiment.plan(setting, scale)
        specs = specs_of(experiment, setting, plan, scale)
        kills = experiment.kills(plan) or (experiment.random_kill(plan, 0),)
        seen = windows(specs, plan, scale, [kill.rank for kill in kills])
        for before, after, kill in zip(seen, seen[1:], kills, strict=False):
            spec = next((s for s in specs if kill.rank in before.members[s.name]), None)
            if spec is not None:
                found = predict_outage(spec, before, after, plan, scale, has_checkpoint=_stored(spec, kill))
                head = {"experiment": experiment.experiment, "system": setting.system, "fabric": name}
                rows.append(prediction_row(found, tenant=spec.name, plan=plan, **head))
    return with_ratios(rows)


def _stored(spec: JobSpec, kill: Kill) -> bool:
    """Whether the job has stored a checkpoint when the chip dies; assumed for a kill that names no step."""
    return kill.step is None or kill.step > spec.tenant.checkpoint_every


class FailoverRun:
    """One run of ``experiment`` into the results folder ``out``; ``say`` is called with progress lines."""

    def __init__(self, experiment: FailoverExperiment, out: Path, say: Say) -> None:
        self._experiment = experiment
        self._rack = RackRun(experiment, out, say)
        self.record = self._rack.record

    def run(self) -> None:
        """Measure every fabric; an error that ends the run is raised after the rows so far are saved."""
        experiment, rack = self._experiment, self._rack
        with rack:
            for name in experiment.fabrics:
                setting = experiment.setting(name)
                plan = experiment.plan(setting, rack.scale)
                for kills in self._kills_by_run(plan):
                    specs = specs_of(experiment, setting, plan, rack.scale)
                    rows = failover_rows(experiment, rack.play(setting, plan, specs, kills))
                    rack.add_rows(rows, with_ratios)
                    for row in rows:
                        if row["event"] != "neighbour":
                            rack.say(f"  {_outcome(row)}")

    def _kills_by_run(self, plan: FabricPlan) -> list[tuple[Kill, ...]]:
        """The kills of each run on a fabric; the fabric is brought up anew for every run."""
        experiment = self._experiment
        if not experiment.random_kills:
            return [experiment.kills(plan)]
        return [(experiment.random_kill(plan, number),) for number in range(experiment.random_kills)]


def failover_rows(experiment: FailoverExperiment, result: RackResult) -> list[Row]:
    """A row for every fault that hit a job, and one for every job that no fault hit; empty without any such fault."""
    affected = [(number, r) for number, r in enumerate(result.recoveries) if r.job and r.state != "no member"]
    if not affected:
        return []
    columns = {job.spec.name: _columns(experiment, result, job) for job in result.jobs}
    rows = [_fault_row(result, recovery, number, columns[recovery.job]) for number, recovery in affected]
    spared = [job.spec.name for job in result.jobs if job.spec.name not in {r.job for _, r in affected}]
    return rows + [_neighbour_row(result, name, affected[0][1], columns[name]) for name in spared]


def _columns(experiment: FailoverExperiment, result: RackResult, job: JobSupervisor) -> dict[str, Any]:
    """The columns that all rows of a job have in common."""
    return {
        "experiment": experiment.experiment,
        "system": result.setting.system,
        "fabric": result.setting.name,
        "plan": result.plan,
        "checksum_ok": result.checksum_ok(job),
        "verdicts": [point.judge() for point in result.points if point.job == job.spec.name],
        "seed": experiment.seed,
        "rate_scale": result.scale.rate,
        "time_scale": result.scale.time,
    }


def _fault_row(result: RackResult, recovery: Recovery, number: int, columns: Mapping[str, Any]) -> Row:
    job = next(job for job in result.jobs if job.spec.name == recovery.job)
    before, after, predicted = result.window(number), result.window(number + 1), None
    if before is not None and after is not None:
        stored = recovery.checkpoint_s is not None
        predicted = predict_outage(job.spec, before, after, result.plan, result.scale, has_checkpoint=stored)
    return fault_row(
        recovery,
        predicted,
        **columns,
        kill=",".join(map(str, result.kills)),
        acknowledged_checkpoints=[step for step, _ in job.acknowledged],
        resumed=[list(pair) for pair in job.resumed],
    )


def _neighbour_row(result: RackResult, name: str, affected: Recovery, columns: Mapping[str, Any]) -> Row:
    after = result.window(1)
    return neighbour_row(
        neighbour_effect(result.events, result.scale, affected, name),
        **columns,
        predicted_before_s=result.windows[0].jobs[name].step_time_s,
        predicted_after_s=after.jobs[name].step_time_s if after is not None else None,
    )


def _outcome(row: Mapping[str, Any]) -> str:
    """The progress line of a row: outcome, outage, step times and verdict."""
    if row["outage_s"] is None:
        return f"{row['tenant']}: {row['state']}" + (f" ({row['reason']})" if row["reason"] else "")
    verdict = "faithful" if row["faithful"] else row["verdict"]
    return (
        f"{row['tenant']}: circuits up after {row['circuits_s']:.3f} s, out for {row['outage_s']:.2f} s, step "
        f"{row['step_time_before_s'] or 0:.3f} s before and {row['step_time_after_s'] or 0:.3f} s after; {verdict}"
    )
