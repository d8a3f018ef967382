"""The generated step, against the trace in Opus (arXiv 2602.12521) and by property."""

from __future__ import annotations

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
from workloads.training.step import Pass, expecting, one_f_one_b, training_job, training_step


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


def order(program: Program, rank: int) -> str:
    """The passes that gather, the sends and receives, and the reductions of one rank, in order, each once."""
    words = []
    for op in program.communications(rank):
        kind, _, of = op.name.partition(".")
        words.append(f"{kind} {of.partition('.')[0]}" if kind in ("ag", "send", "recv") else kind)
    return ", ".join(word for word, _ in groupby(words))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    ("pp", "microbatches", "stage", "expected"),
    [
        (2, 2, 0, "ag F0, send F0, ag F1, send F1, recv B0, ag B0, recv B1, rs, ar"),
        (2, 2, 1, "recv F0, ag F0, ag B0, send B0, recv F1, ag B1, send B1, rs, ar"),
        (2, 4, 0, "ag F0, send F0, ag F1, send F1, recv B0, ag B0, send F2, recv B1, ag B1, send F3, recv B2, ag B2, "
                  "recv B3, rs, ar"),
        (2, 4, 1, "recv F0, ag F0, ag B0, send B0, recv F1, ag B1, send B1, recv F2, ag B2, send B2, recv F3, ag B3, "
                  "send B3, rs, ar"),
        (4, 2, 0, "ag F0, send F0, ag F1, send F1, recv B0, ag B0, recv B1, rs, ar"),
        (4, 2, 3, "recv F0, ag F0, ag B0, send B0, recv F1, ag B1, send B1, rs, ar"),
        (4, 4, 1, "recv F0, ag F0, send F0, recv F1, ag F1, send F1, recv F2, ag F2, send F2, recv B0, ag B0, send B0, "
                  "recv F3, send F3, recv B1, ag B1, send B1, recv B2, send B2, recv B3, send B3, rs, ar"),
    ],
)  # fmt: skip
def test_the_order_that_torch_was_seen_to_run(
    pp: int, microbatches: int, stage: int, expected: str, overlap: bool
) -> None:
    """FSDP2 in a 1F1B pipeline, torch 2.13: a pass gathers if it is the first or follows a forward pass."""
    program = training_step(small(tp=1, pp=pp, dp=2, gpus_per_server=1, local_batch=microbatches, overlap=overlap))
    for rank in (2 * stage, 2 * stage + 1):
        assert order(program, rank) == expected


@given(microbatches=st.integers(1, 6), pp=st.sampled_from([1, 2, 4]), overlap=st.booleans())
@settings(deadline=None)
def test_a_stage_gathers_once_more_than_it_has_microbatches(microbatches: int, pp: int, overlap: bool) -> None:
    recipe = small(tp=1, pp=pp, gpus_per_server=1, local_batch=microbatches, overlap=overlap)
    program = training_step(recipe)
    for rank in range(program.ranks):
        names = [op.name for op in program.communications(rank)]
        units = [unit.name for unit in stage_units(recipe.model, rank // 2, pp, 1)]
        assert sum(name.startswith("ag.") for name in names) == len(units) * (microbatches + 1)
        assert [name for name in names if name.startswith("rs.")] == [f"rs.{unit}" for unit in units]


def test_without_overlap_a_rank_is_one_sequence() -> None:
    """But for a send and a receive that follow one another: crossing in the pipeline they must not wait in turn."""
    for ops in load_workload("llama3-8b-16", overlap=False).program.operations:
        together = [op.id for op, after in pairwise(ops) if isinstance(op, Send) and isinstance(after, Recv)]
        assert len(together) == 1
        place = together[0]
        expected = [(), *((i,) for i in range(len(ops) - 1))]
        expected[place + 1], expected[place + 2] = (place - 1,), (place, place + 1)
        assert [op.deps for op in ops] == expected


def test_overlap_gathers_one_unit_ahead() -> None:
    by_name = {op.name: op for op in load_workload("llama3-8b-16").program.operations[0]}
    assert by_name["F1.u3"].id not in by_name["ag.F1.u4"].deps
    assert by_name["F1.u2"].id in by_name["ag.F1.u4"].deps
    assert by_name["B0.u3"].id in by_name["ag.B0.u1"].deps


def test_what_is_waited_for_and_when() -> None:
    """A batch of a send and a receive at once; a send that fills or drains the pipeline after the next pass."""
    first, last = ({op.name: op for op in load_workload("llama3-8b-16").program.operations[rank]} for rank in (0, 8))
    assert {first["send.F1"].id, first["recv.B0"].id} <= {*first["B0.u15"].deps}
    assert first["send.F1"].id not in first["recv.B0"].deps
    assert first["send.F0"].id not in first["F1.embedding"].deps
    assert first["send.F0"].id in first["send.F1"].deps
    assert last["F1.u0"].id not in last["ag.B1.head"].deps, "its host goes ahead of a pass that gathers nothing"
    assert {last["send.B0"].id, last["recv.F1"].id} <= {*last["ag.B1.head"].deps}


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


@given(st.permutations(range(12)), st.sampled_from([(4, 2), (8, 4), (8, 2), (12, 3)]))
def test_both_rings_of_a_chip_work_at_once(ranks: list[int], sizes: tuple[int, int]) -> None:
    count, size = sizes
    members = tuple(ranks[:count])
    program = training_job(members, 10_000, 0.25, 3, 12, group="A", tensor_parallel=size, tensor_lanes=2)
    check(program)
    rings = [group.members for group in program.groups.values() if group.dimension == "tp"]
    assert [rank for ring in rings for rank in ring] == list(members)
    for rank in members:
        mine = [group for group in program.groups.values() if rank in group.members]
        assert sorted((group.dimension, len(group.members)) for group in mine) == [("dp", count // size), ("tp", size)]
        compute, *collectives = program.operations[rank]
        assert [op.deps for op in collectives] == [(compute.id,)] * 2
    ends = next(group for group in program.groups.values() if rings[0][-1] in group.members and group.dimension == "dp")
    assert rings[1][0] in ends.members  # where the ring comes back beside its way out


def test_a_job_that_expects_a_straggler_has_a_pair_for_every_two_that_exchange_chunks() -> None:
    program = expecting(training_job((3, 1, 5, 4), 12_000, 0.25, 4, 6, group="A"), "A", 2)
    check(program)
    (plan,) = program.schedules.values()
    assert (plan.algorithm, plan.straggler) == ("stragglar", 2)
    pairs = {group.members for group in program.groups.values() if group.parent == "A"}
    assert pairs == {(3, 1), (3, 5), (3, 4), (1, 5), (1, 4), (5, 4)} and len(program.groups) == 7
