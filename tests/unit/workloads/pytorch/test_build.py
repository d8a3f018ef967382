"""Traces of all ranks, or of one of each stage, become the record of one step and its program."""

from __future__ import annotations

import pytest
from pytorch_traces import LARGE, Script, mesh_traces, record, seconds

from railyard.errors import ConfigError
from workloads.check import check
from workloads.program import Collective, Compute
from workloads.pytorch.build import record_of
from workloads.pytorch.record import fits_opus
from workloads.pytorch.trace import Wait, Work


@pytest.mark.parametrize(("pp", "dp", "tp"), [(2, 2, 2), (3, 2, 2), (4, 2, 1), (1, 4, 2), (2, 1, 4), (1, 8, 1)])
def test_one_rank_of_each_stage_stands_for_all(pp: int, dp: int, tp: int) -> None:
    of_all = record(mesh_traces(pp, dp, tp))
    of_some = record(mesh_traces(pp, dp, tp, representatives=True))
    assert of_some == of_all
    assert len(of_all.classes) == pp
    check(of_all.program())


def test_a_program_has_the_calls_of_the_step_in_order() -> None:
    made = record(mesh_traces(2, 2, 2), 2)
    program = made.program()
    for rank in range(8):
        script = [call for call in mesh_traces(2, 2, 2)[rank].calls if call.step == 2 and call.kind != "barrier"]
        found = list(program.communications(rank))
        kinds = [(getattr(op, "kind", op.type), op.bytes, getattr(op, "peer", None)) for op in found]
        assert kinds == [(call.kind, call.bytes, call.peer) for call in script]
        assert [op.deps for op in found] == [(op.id - 1,) for op in found]
        assert all(isinstance(program.operations[rank][op.id - 1], Compute) for op in found)
        assert [program.groups[op.group].domain == "front-end" for op in found] == [c.bytes < 65536 for c in script]
        assert isinstance(program.operations[rank][-1], Compute)
    domains = {group.dimension: group.domain for group in program.groups.values() if group.domain != "front-end"}
    assert domains == {"tp": "scale-up", "dp": "scale-out", "pp": "scale-out"}
    assert [group.members for group in program.groups.values() if group.domain == "front-end"] == [tuple(range(8))]
    assert fits_opus(made, program)


def test_the_last_stage_of_an_interleaved_pipeline_sends_to_the_first() -> None:
    traces = {}
    for rank in range(8):
        script, line = Script(rank, 8), range(rank % 2, 8, 2)
        for _ in range(3):
            for chunk in range(2):
                if rank > 1 or chunk:
                    script.call("recv", line, label="mesh_pp", peer=(rank - 2) % 8)
                if rank < 6 or not chunk:
                    script.call("send", line, label="mesh_pp", peer=(rank + 2) % 8)
            script.call("all_reduce", (rank // 2 * 2, rank // 2 * 2 + 1), label="mesh_dp")
            script.end()
        traces[rank] = script.trace
    made = record(traces)
    assert record({rank: traces[rank] for rank in (0, 2, 4, 6)}) == made
    assert made.roles["pp.3-0"].groups == ((6, 0), (7, 1)) and made.stages == (0, 0, 1, 1, 2, 2, 3, 3)
    check(made.program())
    assert not fits_opus(made, made.program())


def test_ranks_that_no_traced_one_is_like_are_named() -> None:
    traces = mesh_traces(3, 2, 1)
    with pytest.raises(ConfigError, match=r"rank 4 is like none of the traced ranks 0, 2; trace it too"):
        record({rank: traces[rank] for rank in (0, 2)})
    with pytest.raises(ConfigError, match=r"rank 0 took 3 steps, and step 4 is to be recorded"):
        record_of(traces, "job", 3, seconds=seconds, front_end_below=0)


def test_communication_goes_on_beside_what_is_computed_before_its_wait() -> None:
    traces = {}
    for rank in range(2):
        script = Script(rank, 2)
        for _ in range(3):
            first = script.call("all_reduce", range(2), wait=False)
            script.call("all_gather", range(2), wait=False)
            script.events.append(Wait(script.step, first, Work(flops=3e9)))
            script.events.append(Wait(script.step, first + 1, Work(flops=1e9)))
            script.call("all_reduce", range(2), wait=False)
            script.end()
        traces[rank] = script.trace
    computes = [op for op in record(traces).program().operations[1] if isinstance(op, Compute)]
    assert [(op.seconds, op.deps) for op in computes[2:4]] == [(3e-3, ()), (pytest.approx(4e-3), (1, 3))]


def test_ranks_that_disagree_are_named() -> None:
    traces = mesh_traces(1, 2, 1)
    script = Script(1, 2)
    for _ in range(3):
        script.call("all_gather", (0, 1), 8 * LARGE, label="mesh_dp")
        script.end()
    with pytest.raises(ConfigError, match=r"ranks 0, 1 disagree in step 2.*rank 0 asks for .*rank 1 asks for nothing"):
        record({0: traces[0], 1: script.trace})


def test_uneven_all_to_alls_have_weights() -> None:
    sent = ((1 << 18, 1 << 17, 0), (1 << 16, 1 << 18, 1 << 18), (1 << 17, 1 << 17, 1 << 17))
    traces = {}
    for rank, row in enumerate(sent):
        script = Script(rank, 3)
        received = tuple(other[rank] for other in sent)
        for _ in range(3):
            script.call("all_to_all", range(3), sum(row), sent=row, received=received, label="mesh_ep")
            script.call("all_to_all", range(3), 3 * LARGE, sent=(LARGE,) * 3, received=(LARGE,) * 3, label="mesh_ep")
            script.call("broadcast", range(3), LARGE, root=1)
            script.end()
        traces[rank] = script.trace
    made = record(traces)
    program = made.program()
    check(program)
    first, second, third = program.communications(0)
    assert isinstance(first, Collective) and isinstance(second, Collective) and isinstance(third, Collective)
    weights = program.schedules[first.algorithm].weights
    pieces = len(weights) // 9
    assert weights[::pieces] == tuple(size for row in sent for size in row)
    assert first.bytes == -(-sum(map(sum, sent)) // 3)
    assert second.algorithm == "" and second.bytes == 3 * LARGE
    assert program.schedules[third.algorithm].root == 1
