from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workloads.check import check
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective
from workloads.training.step import training_job


@given(st.permutations(range(6)), st.integers(1, 6), st.integers(1, 6))
def test_it_is_a_program_that_can_run(ranks: list[int], count: int, lanes: int) -> None:
    members = tuple(ranks[:count])
    program = training_job(members, 10_000, 0.25, lanes, 6, group="A")
    check(program)
    assert program.groups["A"].members == members
    for rank in range(6):
        assert len(program.operations[rank]) == (2 if rank in members else 0)
    op = program.operations[members[0]][1]
    assert isinstance(op, Collective)
    plan = schedule_of(program, op)
    assert plan is program.schedules[op.algorithm] and {t.lane for t in plan.transfers} == set(
        range(lanes if count > 1 else 0)
    )
