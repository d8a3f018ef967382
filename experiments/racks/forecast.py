"""Predictions for jobs on a rack: steps before and after each failure, and each recovery part by part.

Decisions of the policies are simulated by the model. Detection is by missing heartbeats: the last one was sent at a
random moment within an interval before the death, so a chip is detected between ``misses`` - 1 and ``misses`` intervals
after its death. Copies are predicted from bytes and link rates, given stages take their given time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from controllers.circuits import torus_routes
from controllers.circuits.fibres import Edge, FibrePlant, edges_of
from controllers.engine.jobs import Detection
from controllers.policies.catalog import load_policy
from controllers.policies.policy import ClusterState
from experiments.faults import Kill
from experiments.job_point import JobPoint, machine_costs
from experiments.racks.recovery import NEVER, JobIncarnation
from experiments.racks.requests import predict_requests
from experiments.racks.row import Bounds, FailoverRow
from experiments.racks.setting import FabricSetting, Setting
from measure.metrics.critical import OperationKey
from measure.metrics.quantiles import median
from measure.model.prediction import predict
from measure.model.simulated_control import Costs
from measure.model.wires import checkpoint_seconds
from railyard.errors import ConfigError, RailyardError
from railyard.plugin import code_failed
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.agent.config import STAGES
from workloads.program import Collective, Group, Operation, Program


def predicted_parts(
    stages: Mapping[str, float], scale: Scale, costs: Costs, *, rewire_s: float, launch_s: float, first_step_s: float
) -> dict[str, float]:
    """The parts of a recovery after the detection, by name and in order, in real seconds as the arguments.

    ``stages`` are the durations of start-up stages, ``costs`` those of the machine, ``rewire_s`` is the configured dark
    time, ``launch_s`` the time to end the survivors, fork agents and connect them. The policy decides at once.
    """
    return {
        "decide": 0.0,
        "rewire": rewire_s + scale.real_s(costs.settle_s),
        "launch": scale.real_s(costs.control_s / 2) + launch_s,
        **{name: stages[name] for name in dict.fromkeys((*STAGES, *stages)) if name in stages},
        "first step": first_step_s,
    }


def detection_bounds(detection: Detection, scale: Scale, costs: Costs) -> Bounds:
    """Bounds of the time to detection in real seconds; nearly 0 if ended agents or dark ports count."""
    told = scale.real_s(costs.control_s / 2)
    if detection.exit or detection.port:
        return Bounds(0.0, told, 2 * told)
    beat = scale.real_s(detection.heartbeat_s)
    return Bounds((detection.misses - 1) * beat, (detection.misses - 0.5) * beat + told, detection.misses * beat + told)


STEPS = 6
"""Steps of the simulation: enough for steps of jobs of different length to overlap in every way."""
RELAUNCH_S = 0.15
"""Wall-clock seconds on this class of machine to end the survivors, fork agents, check in and send the start message
(measured). Includes ``job_supervisor.GO_S``, from the last agent that is ready to the first step."""


@dataclass(frozen=True)
class JobPrediction:
    """Predicted times of one job.

    ``step_time_s`` (real seconds) is the median of the steps during which all other jobs work too, without the first
    one if there are more. ``first_step_s`` is the time of the first step in real seconds, and ``step_times_s`` has all
    of them. ``operations_s`` are medians of communications in wall-clock seconds, from the last member's
    start to the last member's end.
    """

    first_step_s: float
    step_time_s: float
    operations_s: Mapping[OperationKey, float]
    step_times_s: tuple[float, ...] = ()


class RingWay(NamedTuple):
    """The way of a ring: its hops over links between chips (both ways round), or its fibres between servers.

    ``shared``: links, or pairs of servers, that other rings cross too. ``most``: hops or fibres of all rings on one.
    """

    hops: int
    shared: int
    most: int


@dataclass(frozen=True)
class JobWindow:
    """An interval of a run between failures: members of each job, dead chips, and the model's prediction of each job.

    ``contended``: whether two rings, of one job or two, share a link between switches.
    """

    members: Mapping[str, tuple[int, ...]]
    dead: frozenset[int]
    jobs: Mapping[str, JobPrediction]
    contended: bool
    ways: Mapping[str, RingWay] = field(default_factory=dict)


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


def windows(setting: Setting, jobs: Sequence[JobPoint], dying: Iterable[Sequence[int]]) -> list[JobWindow]:
    """The predicted windows: before the first of ``dying`` (the ranks of each fault, in order), and after each.

    The list ends early when no spare can replace a dead member.
    """
    members = {job.name: job.members for job in jobs}
    return [_window(setting, jobs, *between) for between in deaths(setting, jobs, members, dying)]


def deaths(
    setting: FabricSetting,
    jobs: Sequence[JobPoint],
    members: Mapping[str, tuple[int, ...]],
    dying: Iterable[Sequence[int]],
) -> Iterator[tuple[Mapping[str, tuple[int, ...]], frozenset[int]]]:
    """The members of each job and the dead chips, before the first fault, whose ranks die at once, and after each.

    The policy of ``setting`` chooses the replacements; it ends early when it has none for a dead member.
    """
    policy = load_policy(setting.policy, setting.plan)
    dead: frozenset[int] = frozenset()
    yield members, dead
    for together in dying:
        dead |= set(together)
        for rank in [rank for ranks in members.values() for rank in ranks if rank in together]:
            affected = next((job for job in jobs if rank in members.get(job.name, ())), None)
            if affected is None:  # moved with another rank of its server
                continue
            used = {r for ranks in members.values() for r in ranks}
            free = [spare for spare in setting.plan.spares if spare not in dead and spare not in used]
            groups = tuple(affected.program_of(members[affected.name]).groups.values())
            try:
                policy.start(groups)
                policy.see(ClusterState(dead=dead))
                moved = dict(policy.replace(groups, rank, free) or {})
            except RailyardError:
                raise
            except Exception as error:
                raise code_failed(setting.policy, error, "policy") from error
            if not moved:
                return
            members = {**members, affected.name: tuple(moved.get(r, r) for r in members[affected.name])}
        yield members, dead


def _window(
    setting: Setting, jobs: Sequence[JobPoint], members: Mapping[str, tuple[int, ...]], dead: frozenset[int]
) -> JobWindow:
    program = combined([job.program_of(members[job.name]) for job in jobs])
    prediction = predict(
        program,
        setting.plan,
        load_policy(setting.policy, setting.plan),
        setting.mode,
        scale=setting.scale,
        steps=STEPS,
        costs=machine_costs(program.ranks_at_work),
        avoid=dead,
    )
    predicted = predicted_jobs(prediction.events, members, setting.scale)
    parents = {group.parent for group in program.groups.values()}  # whose pairs have circuits, and no ring
    rings = [g for g in program.groups.values() if g.domain == "scale-out" and g.name not in parents]
    loads = link_loads(setting.plan, rings, dead) if setting.plan.links else fibre_loads(setting, rings)
    contended = bool(setting.plan.links) and any(len(names) > 1 for names in loads.values())
    return JobWindow(members, dead, predicted, contended, {ring.name: _way(ring.name, loads) for ring in rings})


def predicted_jobs(
    events: Sequence[Event], jobs: Mapping[str, Sequence[int]], scale: Scale
) -> Mapping[str, JobPrediction]:
    """Predicted times of ``jobs`` (members by name), read from the events of a prediction (``Prediction.events``).

    ``ConfigError`` for a job without a step in the prediction.
    """
    agents = [e for e in events if e.source == "agent"]
    incarnations = [
        JobIncarnation(name, 0, tuple(ranks), 0.0, NEVER, tuple(e for e in agents if e["rank"] in ranks))
        for name, ranks in jobs.items()
    ]
    for each in incarnations:
        if not each.steps.complete:
            raise ConfigError(
                f"job {each.job} does no step in this prediction; its members are not those of the program"
            )
    until = min((each.steps.job(each.steps.complete[-1])[1] for each in incarnations), default=0.0)
    return {each.job: _predicted(each, until, scale) for each in incarnations}


def _predicted(incarnation: JobIncarnation, until: float, scale: Scale) -> JobPrediction:
    times, complete = incarnation.step_times, incarnation.steps.complete
    steps = incarnation.warm_steps(end=until * (1 + 1e-9)) or complete[1:] or complete
    typical = median(times[step] for step in steps) or 0.0
    every = tuple(scale.real_s(times[step]) for step in complete)
    return JobPrediction(every[0], scale.real_s(typical), operations_s(incarnation, steps), every)


def operations_s(incarnation: JobIncarnation, steps: Iterable[int]) -> dict[OperationKey, float]:
    """Medians of the communications in ``steps``, in wall-clock seconds from the last start to the last end."""
    together: dict[tuple[str, str, int], list[Event]] = defaultdict(list)
    wanted = set(steps)
    for e in incarnation.events:
        if e.kind == "communicate" and e["step"] in wanted:
            together[e["group"], e["name"], e["step"]].append(e)
    found: dict[OperationKey, list[float]] = defaultdict(list)
    for (group, name, _), members in together.items():
        began = max(e.get("posted", e.t) for e in members)
        found[group, name].append(max(e.end or e.t for e in members) - began)
    return {key: median(times) or 0.0 for key, times in found.items()}


def _way(ring: str, loads: Mapping[Any, Counter[str]]) -> RingWay:
    mine = [rings for rings in loads.values() if ring in rings]
    hops, most = sum(rings[ring] for rings in mine), max((rings.total() for rings in mine), default=0)
    return RingWay(hops, sum(len(rings) > 1 for rings in mine), most)


def fibre_loads(setting: Setting, groups: Sequence[Group]) -> Mapping[Edge, Counter[str]]:
    """Fibres that the circuits of each ring take between two servers by the shortest routes, by name of the group.

    As many as are needed, so that there may be more than the ``FIBRES`` of a rack.
    """
    assert setting.plan.rack is not None
    hops = {(name, place): hop for name, paths in setting.paths(groups).items() for place, hop in enumerate(paths)}
    plant = FibrePlant(setting.plan.rack, setting.plan.ranks, per_pair=len(hops) + 1)
    loads: dict[Edge, Counter[str]] = defaultdict(Counter)
    for (name, _), route in plant.routed({key: (hop.rank, hop.peer) for key, hop in hops.items()}).items():
        for edge in edges_of(route):
            loads[edge][name] += 1
    return loads


def link_loads(
    plan: FabricPlan, groups: Iterable[Group], dead: frozenset[int] = frozenset()
) -> Mapping[torus_routes.NextHop, Counter[str]]:
    """Hops of each ring over each link between switches of an electrical torus, by direction and name of the group.

    Rings go both ways round, so a link counts the hops of both directions of the ring that cross it.
    """
    tables = torus_routes.routes(plan, dead)
    loads: dict[torus_routes.NextHop, Counter[str]] = defaultdict(Counter)
    for group in groups:
        ring = list(zip(group.members, (*group.members[1:], group.members[0]), strict=True))
        for a, b in [*ring, *((b, a) for a, b in ring)]:
            for hop in torus_routes.path(plan, tables, a, b):
                loads[hop][group.name] += 1
    return loads


def predict_recovery(
    row: FailoverRow,
    setting: FabricSetting,
    job: JobPoint,
    before: JobWindow,
    after: JobWindow,
    *,
    stored: bool,
    kill: Kill | None = None,
) -> None:
    """Set the fields of the model of ``row``: the recovery of a job between two windows.

    ``stored``: whether there is a checkpoint, which newcomers copy unless the duration of that stage is given.
    ``kill``: what ends the first window (None: it is another window), as the requests before it must be known.
    """
    costs, name = machine_costs(len(job.members)), job.name
    assert job.training is not None
    old, new = (set(job.holders(window.members[name])) for window in (before, after))
    copies = -(-len(new - old) // max(1, len(old - after.dead))) if stored and not job.training.preloaded else None
    model = after.jobs[name]
    parts = restart_parts(job, setting.plan, setting.scale, costs, copies=copies, first_step_s=model.first_step_s)
    row.predict(detection_bounds(job.training.detection, setting.scale, costs), parts)
    row.predicted_step_time_before_s = before.jobs[name].step_time_s
    row.predicted_step_time_after_s = model.step_time_s
    if name in after.ways:
        row.ring_hops, row.shared_links, row.most_on_link = after.ways[name]
    if kill is not None:
        predict_requests(row, job, kill, before.jobs[name].step_times_s, model.step_times_s)


def restart_parts(
    job: JobPoint, plan: FabricPlan, scale: Scale, costs: Costs, *, copies: int | None, first_step_s: float
) -> dict[str, float]:
    """The parts of a recovery after the detection (``predicted_parts``).

    ``copies`` of the checkpoint leave one host at once, unless the time of that is given (None: there is none).
    """
    training = job.training
    assert training is not None
    stages = dict(training.stages)
    if copies is not None and "checkpoint" not in stages:
        stages["checkpoint"] = checkpoint_seconds(training.state_bytes, plan, scale, copies)
    launch_s = scale.real_s(RELAUNCH_S)
    timing = {"rewire_s": job.reconfiguration_delay_s, "launch_s": launch_s, "first_step_s": first_step_s}
    return predicted_parts(stages, scale, costs, **timing)


def predicted_rows(
    setting: Setting, jobs: Sequence[JobPoint], kills: Sequence[Kill], seed: int
) -> Iterator[FailoverRow]:
    """A row of the model for every kill that hits a job; the last one is ``stranded`` where no spare is left.

    A kill after the first checkpoint, and one that names no step, leaves a checkpoint to restart from.
    """
    seen = windows(setting, jobs, [kill.ranks(setting.plan) for kill in kills])
    for before, after, kill in zip(seen, [*seen[1:], None], kills, strict=False):
        dying = kill.ranks(setting.plan)
        job = next((job for job in jobs if not {*dying}.isdisjoint(before.members[job.name])), None)
        if job is not None and job.training is not None:
            stored = kill.step is None or kill.step > job.training.checkpoint_every
            row = FailoverRow(tenant=job.name, event="predicted")
            if after is None:
                row.state, row.reason = "stranded", "no spare is left"
                row.predicted_step_time_before_s = before.jobs[job.name].step_time_s
            else:
                first = kill if before is seen[0] else None
                predict_recovery(row, setting, job, before, after, stored=stored, kill=first)
            row.on(setting, seed)
            yield row
