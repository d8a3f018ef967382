"""The ranks that stand for all others take as long as all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pytorch_traces import Script, mesh_traces, record

from experiments.rails.job import job_point, model_scale
from experiments.rails.settings import Mode, make_settings
from workloads.catalog import recorded_workload
from workloads.pytorch.fold import folded
from workloads.pytorch.record import ClassCall, GroupRole, Record


def step_s(made: Record, mode: Mode, delay_ms: float = 0.0, *, fold: bool) -> float:
    settings, workload = make_settings({"modes": [mode]}), recorded_workload(made, folded=fold)
    scale = model_scale(settings, workload)
    job = job_point(settings, workload, mode, delay_ms, scale)
    return job.prediction(job.fabric.plan(), scale).step_time_s


@pytest.mark.parametrize(("shape", "kept"), [((2, 4, 4), 8), ((1, 8, 1), 2), ((2, 4, 1), 4), ((1, 4, 2), 4)])
@pytest.mark.parametrize(("mode", "delay_ms"), [("electrical", 0), ("on-demand", 25), ("provisioned", 25)])
def test_folded_ranks_take_as_long(shape: tuple[int, int, int], kept: int, mode: Mode, delay_ms: float) -> None:
    made = record(mesh_traces(*shape), shape[2])
    assert folded(made).ranks == kept
    assert step_s(made, mode, delay_ms, fold=True) == pytest.approx(step_s(made, mode, delay_ms, fold=False), rel=1e-9)


def test_what_is_gathered_on_the_front_end_is_a_ring_beside_its_trees() -> None:
    traces = {}
    for rank in range(4):
        script = Script(rank, 4)
        for _ in range(3):
            script.call("all_gather", range(4), 64, label="default_pg")
            script.call("all_reduce", range(4), 1 << 20, label="default_pg")
            script.call("all_reduce", range(4), 4, label="default_pg")
            script.end()
        traces[rank] = script.trace
    made = folded(record(traces))
    assert made.repeats == {"world": 3.0, "world.small": 2.0, "world.small.ring": 3.0}
    assert [call.bytes for call in made.classes[0].calls] == [32, 1 << 19, 4]


def test_a_root_that_is_left_out_keeps_all_ranks_and_a_role_without_calls_is_none() -> None:
    made = record(mesh_traces(1, 8, 1))
    idle = replace(made, roles={**made.roles, "idle": GroupRole("dp", ((6, 7),))})
    assert folded(idle).roles.keys() == folded(made).roles.keys() == made.roles.keys()
    (ranks,) = made.classes
    calls = (*ranks.calls, ClassCall("broadcast", "dp.small", 8, root=3))
    rooted = replace(made, classes=(replace(ranks, calls=calls),))
    assert folded(rooted) is rooted


def test_ranks_that_differ_or_exchange_all_to_all_are_all_kept() -> None:
    uneven = mesh_traces(1, 4, 1)
    uneven[3] = mesh_traces(1, 4, 1, micro=2)[3]
    script = Script(3, 4)
    for _ in range(3):
        for call in (call for call in uneven[3].calls if call.step == 0 and call.kind != "barrier"):
            script.call(call.kind, call.ranks, call.bytes, label=call.label)
        script.end()
    uneven[3] = script.trace
    made = record(uneven)
    assert len(made.classes) == 2 and folded(made) is made
