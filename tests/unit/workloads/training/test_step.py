"""The generated step, against the trace in Opus (arXiv 2602.12521) and by property."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training_steps import changed_recipe, phase_changes

from railyard.errors import ConfigError
from workloads.catalog import Workload, load_workload
from workloads.check import check
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective, Compute, Program, Recv, Send
from workloads.training.recipe import Recipe
from workloads.training.shape import ModelShape, stage_units
from workloads.training.step import Pass, one_f_one_b, training_job, training_step


def kind_of(op: Any) -> str:
    return op.kind if isinstance(op, Collective) else type(op).__name__.lower()


def compute_s(workload: Workload) -> float:
    return sum(op.seconds for op in workload.program.operations[0] if isinstance(op, Compute))


def trace(program: Program, rank: int) -> list[tuple[str, str, int]]:
    """(kind, dimension, how many in a row) of the communication of one rank."""
    keys = [(kind_of(op), program.groups[op.group].dimension) for op in program.communications(rank)]
    return [(*key, len(list(run))) for key, run in groupby(keys)]


def test_llama_stage_0_is_the_published_trace() -> None:
    program = load_workload("llama3-8b-16").program
    for rank in range(8):
        assert trace(program, rank) == [
            ("all_gather", "dp", 17),
            ("send", "pp", 1),
            ("all_gather", "dp", 17),
            ("send", "pp", 1),
            ("recv", "pp", 1),
            ("all_gather", "dp", 17),
            ("recv", "pp", 1),
            ("reduce_scatter", "dp", 17),
            ("all_reduce", "dp", 1),
            ("all_reduce", "world", 3),
        ]


def test_llama_stage_1_mirrors_it() -> None:
    program = load_workload("llama3-8b-16").program
    for rank in range(8, 16):
        assert trace(program, rank) == [
            ("recv", "pp", 1),
            ("all_gather", "dp", 34),
            ("send", "pp", 1),
            ("recv", "pp", 1),
            ("all_gather", "dp", 17),
            ("send", "pp", 1),
            ("reduce_scatter", "dp", 17),
            ("all_reduce", "dp", 1),
            ("all_reduce", "world", 3),
        ]
    assert {phase_changes(program, rank) for rank in range(16)} == {6}


def test_llama_sizes() -> None:
    # 218.1 M parameters a layer / TP4 in bf16: an all-gather outputs 109 MB; a PP activation is 268 MB / TP4.
    program = load_workload("llama3-8b-16").program
    sizes = {(kind_of(op), op.bytes) for op in program.communications(0)}
    assert {size for kind, size in sizes if kind in ("all_gather", "reduce_scatter")} == {109_056_000}
    assert {size for kind, size in sizes if kind in ("send", "recv")} == {67_108_864}


def test_full_recompute_makes_backward_three_times_forward() -> None:
    program = load_workload("llama3-8b-16").program
    seconds = {op.name: op.seconds for op in program.operations[0] if isinstance(op, Compute)}
    assert seconds["B0.u3"] == pytest.approx(3 * seconds["F0.u3"] + 0.0, rel=0.05)


def test_phase_changes_of_the_other_workloads() -> None:
    for name, changes in (("smoke", 2), ("pp-only", 0)):
        program = load_workload(name).program
        assert {phase_changes(program, rank) for rank in range(program.ranks)} == {changes}


def test_parameters_of_known_models() -> None:
    llama = ModelShape(layers=32, hidden=4096, sequence=8192, ffn_hidden=14336, heads=32, kv_heads=8)
    assert llama.parameters_per_layer == 218_112_000
    gpt3 = ModelShape(layers=96, hidden=12288, sequence=2048, heads=96, gated_mlp=False)  # 12 h^2 per layer, 175 B
    assert 96 * gpt3.parameters_per_layer == pytest.approx(174e9, rel=0.01)


def test_flops_of_a_layer() -> None:
    # Narayanan et al., SC'21: 24 B s h^2 (1 + s / 6h) forward with full attention; causal halves the second term.
    shape = ModelShape(layers=1, hidden=1024, sequence=2048, heads=16, gated_mlp=False)
    b, s, h = 3, 2048, 1024
    assert shape.layer_flops(b) == pytest.approx(24 * b * s * h * h * (1 + s / (12 * h)))


def test_outer_units() -> None:
    def names(stage: int, **options: Any) -> list[str]:
        shape = ModelShape(layers=4, hidden=8, sequence=8, heads=2, **options)
        return [unit.name for unit in stage_units(shape, stage, 2, 1)]

    assert names(0) == ["u0", "u1"]
    assert names(0, vocabulary=100) == ["embedding", "u0", "u1"]
    assert names(1, vocabulary=100) == ["u0", "u1", "head"]
    assert names(1, outer_units="layer") == ["u0", "u1", "head"]


def test_tp_on_packets_moves_tp_out_of_the_compute_time() -> None:
    modelled, packets = load_workload("smoke"), load_workload("smoke", tp_on_packets=True)
    assert not modelled.uses_scale_up
    assert packets.uses_scale_up
    in_tp = [op for op in packets.program.communications(0) if packets.program.groups[op.group].dimension == "tp"]
    # 2 layers x 2 microbatches x (4 forward + 4 backward)
    assert len(in_tp) == 32
    # 2 x 2 x 2 directions x 4 x (1/2) x 134 MB over 2400 Gb/s
    assert compute_s(modelled) - compute_s(packets) == pytest.approx(8 * 4 * 0.5 * 134_217_728 * 8 / 2400e9)


SMALL: dict[str, Any] = {
    "model": {"layers": 8, "hidden": 64, "sequence": 32, "heads": 4, "vocabulary": 100},
    "parallelism": {"tp": 2, "pp": 2, "dp": 2},
    "batch": {"local_batch": 4, "microbatch": 1},
    "compute": {"forward_ms": 10},
    "fabric": {"gpus_per_server": 2},
}


def small(**changes: Any) -> Recipe:
    return changed_recipe(SMALL, **changes)


@given(
    tp=st.sampled_from([1, 2]),
    pp=st.sampled_from([1, 2, 4]),
    dp=st.integers(1, 3),
    microbatches=st.integers(1, 6),
    sharding=st.sampled_from(["fsdp", "ddp"]),
    overlap=st.booleans(),
    reshard=st.booleans(),
    recompute=st.booleans(),
    tp_on_packets=st.booleans(),
    scalars=st.integers(0, 2),
)
@settings(max_examples=60, deadline=None)
def test_every_generated_step_can_run(
    tp: int, pp: int, dp: int, microbatches: int, reshard: bool, **options: Any
) -> None:
    sizes = {"tp": tp, "pp": pp, "dp": dp, "gpus_per_server": tp}
    program = training_step(small(local_batch=microbatches, reshard_after_forward=reshard, **sizes, **options))
    check(program)
    for rank in range(program.ranks):
        sends = [op for op in program.communications(rank) if isinstance(op, (Send, Recv))]
        neighbours = (rank >= tp * dp) + (rank < tp * dp * (pp - 1))
        assert len(sends) == 2 * microbatches * neighbours


@given(microbatches=st.integers(1, 6), pp=st.sampled_from([1, 2, 4]), overlap=st.booleans())
@settings(deadline=None)
def test_every_pass_gathers_but_the_last(microbatches: int, pp: int, overlap: bool) -> None:
    recipe = small(tp=1, pp=pp, gpus_per_server=1, local_batch=microbatches, overlap=overlap)
    program = training_step(recipe)
    for rank in range(program.ranks):
        counts = Counter(kind_of(op) for op in program.communications(rank))
        units = len(stage_units(recipe.model, rank // 2, pp, 1))
        assert counts["all_gather"] == units * (2 * microbatches - 1)
        assert counts["reduce_scatter"] == units


def test_without_overlap_a_rank_is_one_sequence() -> None:
    """But for a send and a receive that follow one another: crossing in the pipeline they must not wait in turn."""
    for ops in load_workload("llama3-8b-16").program.operations:
        together = [op.id for op, after in pairwise(ops) if isinstance(op, Send) and isinstance(after, Recv)]
        assert len(together) == 1
        place = together[0]
        expected = [(), *((i,) for i in range(len(ops) - 1))]
        expected[place + 1], expected[place + 2] = (place - 1,), (place, place + 1)
        assert [op.deps for op in ops] == expected


def test_overlap_gathers_one_unit_ahead() -> None:
    ops = load_workload("llama3-8b-16", overlap=True).program.operations[0]
    by_name = {op.name: op for op in ops}
    assert by_name["F1.u3"].id not in by_name["ag.F1.u4"].deps
    assert by_name["F1.u2"].id in by_name["ag.F1.u4"].deps
    assert by_name["rs.u5"].id not in by_name["B1.u4"].deps


def test_layers_must_divide_by_stages() -> None:
    with pytest.raises(ConfigError, match=r"model\.layers 8 must be a multiple of PP 3"):
        training_step(small(tp=1, pp=3, dp=1, gpus_per_server=1))


def test_flops_give_the_forward_time() -> None:
    recipe = small(forward_ms=None, tflops=1)
    assert recipe.layer_forward_s == pytest.approx(recipe.model.layer_flops(1) / 2 / 1e12)


stages_and_microbatches = st.tuples(st.integers(1, 8), st.integers(1, 20))


def test_the_order_of_the_paper() -> None:
    # Narayanan et al., SC'21, figure 4 (top): 4 stages, 8 microbatches, the first stage fills with 3.
    assert " ".join(map(str, one_f_one_b(0, 4, 8))) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"
    assert " ".join(map(str, one_f_one_b(3, 4, 8))) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"


@given(stages_and_microbatches)
def test_each_microbatch_forward_then_backward_once(shape: tuple[int, int]) -> None:
    stages, microbatches = shape
    for stage in range(stages):
        order = one_f_one_b(stage, stages, microbatches)
        assert len(order) == 2 * microbatches
        for m in range(microbatches):
            assert order.index(Pass("forward", m)) < order.index(Pass("backward", m))


@given(stages_and_microbatches)
def test_at_most_the_distance_to_the_end_is_in_flight(shape: tuple[int, int]) -> None:
    stages, microbatches = shape
    for stage in range(stages):
        flying, most = 0, 0
        for step in one_f_one_b(stage, stages, microbatches):
            flying += 1 if step.direction == "forward" else -1
            most = max(most, flying)
        assert most == min(stages - stage, microbatches)


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
