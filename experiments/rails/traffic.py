"""The traffic of a job's phases, learned from steps of the model: one in which its circuits stand, one in which they
always change. The controller of Opus learns its profile from steps as well (``profile_steps``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from controllers.engine.jobs import PhaseTraffic, Plan, Traffic
from controllers.policies.deciding import PLANS, lane_bytes_per_s, stages_of
from experiments.job_point import JobPoint
from measure.metrics.windows import read_phases
from measure.model.prediction import Prediction
from railyard.scale import Scale
from workloads.phases import Phase, all_phases
from workloads.program import Dimension, MessageName, Program

_STEPS = 2


def traffic_of(job: JobPoint, scale: Scale) -> Traffic:
    """The traffic of each stage of ``job``, seen at its first rank, and a step under each plan at the job's delay."""
    plan, places, ranks = job.fabric.plan(), _Places(job.program), _first_ranks(job.program)

    def step(of: JobPoint, stages: tuple[tuple[PhaseTraffic, ...], ...], kind: Plan) -> Prediction:
        return replace(of, traffic=Traffic(stages, {kind: 0.0}), model_steps=_STEPS).prediction(plan, scale)

    bare = tuple(tuple(PhaseTraffic(places.uses(rank, phase)) for phase in places.phases[rank]) for rank in ranks)
    stands = step(job, bare, "stand")
    quick = step(replace(job, reconfiguration_delay_s=0.0, link_recovery_s=0.0), bare, "change")
    rates = lane_bytes_per_s(plan)
    longer = {part: 1 / sum(lanes) - 1 / sum(rates) for part, lanes in (("dp", rates[:2]), ("pp", rates[2:]))}

    def fitted(phase: PhaseTraffic, split: Seen, whole: Seen) -> PhaseTraffic:
        """``phase`` with as many bytes as explain how much longer it lasts where circuits stand."""
        size = max(0.0, split.lasts_s - whole.lasts_s) / longer[phase.uses[0][0]]
        return replace(phase, bytes=size, rest_s=whole.lasts_s - size / sum(rates), window_s=whole.window_s)

    seen = zip(bare, places.seen(stands, ranks), places.seen(quick, ranks), strict=True)
    stages = tuple(tuple(map(fitted, *of_stage)) for of_stage in seen)
    tried = {kind: stands if kind == "stand" else step(job, stages, kind) for kind in PLANS}
    return Traffic(stages, {kind: scale.emulated_s(found.step_time_s) for kind, found in tried.items()})


def _first_ranks(program: Program) -> list[int]:
    """The first rank of each stage: one for all, as they do the same."""
    first: dict[int, int] = {}
    for group in program.groups.values():
        if group.domain == "scale-out":
            for stage, rank in zip(stages_of(group), group.members, strict=False):
                first.setdefault(stage, rank)
    return [first[stage] for stage in sorted(first)]


class Seen(NamedTuple):
    """A phase of a rank: seconds since the end of the one before, and its window (``PhaseTraffic``)."""

    lasts_s: float
    window_s: float


class _Places:
    """The phases that the messages of a program belong to on each of their ranks."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.phases = all_phases(program)
        self._of: dict[MessageName, dict[int, int]] = defaultdict(dict)
        """Number of the phase of each message, by rank."""
        self._names: dict[tuple[int, int], MessageName] = {}
        """The message of each operation, by rank and id."""
        for rank, phases in enumerate(self.phases):
            phase_of = {op: number for number, phase in enumerate(phases) for op in phase.operations}
            for name, op in program.messages(rank):
                if op.id in phase_of:
                    self._of[name][rank] = phase_of[op.id]
                    self._names[rank, op.id] = name

    def uses(self, rank: int, phase: Phase) -> tuple[tuple[Dimension, int], ...]:
        groups = (self.program.groups[self._names[rank, op][0]] for op in phase.operations)
        return tuple(sorted({(group.dimension, group.stage) for group in groups}))

    def seen(self, prediction: Prediction, ranks: Sequence[int]) -> list[list[Seen]]:
        """The phases of ``ranks`` in the last step of ``prediction``."""
        step = _STEPS - 1
        observed = {(p.rank, p.step, p.phase): p for p in read_phases(prediction.events)}
        first_byte: dict[tuple[int, int], float] = defaultdict(lambda: inf)
        for e in prediction.events:
            if e.kind == "transfer" and e["step"] == step and (e["rank"], e["op"]) in self._names:
                phases = self._of[self._names[e["rank"], e["op"]]]
                for rank in (e["rank"], e["peer"]):
                    first_byte[rank, phases[rank]] = min(e.t, first_byte[rank, phases[rank]])

        def asks_at(rank: int, phase: int) -> float:
            """When ``rank`` asks for the circuits of ``phase``: in advance, but for the first of a step."""
            return observed[rank, step, phase - 1].end if phase else observed[rank, step, 0].t

        def of_rank(rank: int) -> Iterator[Seen]:
            before = observed[rank, step - 1, len(self.phases[rank]) - 1].end
            for number, phase in enumerate(self.phases[rank]):
                beside = {place for op in phase.operations for place in self._of[self._names[rank, op]].items()}
                asked, end = max(asks_at(*place) for place in beside), observed[rank, step, number].end
                yield Seen(end - before, max(0.0, first_byte[rank, number] - asked))
                before = end

        return [list(of_rank(rank)) for rank in ranks]
