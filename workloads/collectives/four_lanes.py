"""A program for four ports per GPU, whose lanes 0 and 1 may have another rate than lanes 2 and 3.

Rings run on four lanes and sends are cut into four stripes. Each part is as large as its lane is fast where a pair of
ranks has as many circuits as ports (two, four between two ranks), and where there are fewer they come out even:
``workloads.rank.paths.choose_path`` gives a path the parts of one fast and one slow lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from workloads.collectives.algorithms import ring
from workloads.collectives.verify import verify
from workloads.program import Collective, Operation, Program
from workloads.schedule import CollectiveKind, Schedule

_WHOLE = 1_000_000
_KINDS: tuple[CollectiveKind, ...] = ("all_reduce", "all_gather", "reduce_scatter")


def on_four_lanes(program: Program, rates: Sequence[float], two_stages: bool) -> Program:
    """``program`` with the sums and gathers of the rails on rings of four lanes and sends in four stripes.

    ``rates`` are those of the four lanes. ``two_stages``: all four circuits may join the two ranks of a pipeline pair.
    """
    schedules: dict[str, Schedule] = {}

    def changed(op: Operation) -> Operation:
        if not isinstance(op, Collective) or program.groups[op.group].domain != "scale-out" or op.kind not in _KINDS:
            return op
        n = len(program.groups[op.group].members)
        name = f"ring-4 {op.kind} {n}"
        schedules[name] = _ring(op.kind, n, lane_weights(rates, n == 2))
        return replace(op, algorithm=name)

    operations = tuple(tuple(changed(op) for op in ops) for ops in program.operations)
    stripes = lane_weights(rates, two_stages)
    return replace(program, operations=operations, schedules={**program.schedules, **schedules}, stripes=stripes)


def lane_weights(rates: Sequence[float], four_paths: bool) -> tuple[int, ...]:
    """Weights of the four lanes of a schedule, each that of the port it leaves by.

    Ports are taken from the top by even lanes and from the bottom by odd ones: of four between two ranks 3, 0, 2, 1, of
    two 3, 0 (or 1, 2 the other way), then again from there.
    """
    low, high = (round(_WHOLE * rate / sum(rates)) for rate in (rates[0], rates[3]))
    return (high, low, high, low) if four_paths else (high, low, low, high)


@cache
def _ring(kind: CollectiveKind, n: int, weights: tuple[int, ...]) -> Schedule:
    plan = ring(kind, n, lanes=4)
    weighted = replace(plan, weights=tuple(weights[lane] for lane in range(4) for _ in range(n)) if n > 1 else ())
    verify(weighted)
    return weighted
