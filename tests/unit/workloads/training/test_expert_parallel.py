"""A step with experts: bytes by hand, groups of both placements, phases, uneven choices, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training_steps import changed_recipe, phase_changes

from railyard.errors import ConfigError
from workloads.catalog import load_workload
from workloads.check import check
from workloads.collectives.catalog import schedule
from workloads.phases import phases
from workloads.program import Collective, Compute, Operation, Program
from workloads.training.expert_parallel import ep_demand, exchange_bytes, hops_algorithm, with_ep_algorithm
from workloads.training.ranks import Parallelism, groups
from workloads.training.recipe import Recipe
from workloads.training.shape import ModelShape, popularity, stage_units
from workloads.training.step import training_step

SMALL: dict[str, Any] = {
    "model": {"layers": 2, "hidden": 64, "sequence": 32, "heads": 4,
              "experts": 8, "top_k": 2, "expert_ffn_hidden": 48, "shared_experts": 1},
    "batch": {"local_batch": 2, "microbatch": 2},
    "compute": {"forward_ms": 10},
    "training": {"sharding": "ddp", "overlap": False},
    "fabric": {"gpus_per_server": 1},
}  # fmt: skip
ACTIVATION = 2 * 32 * 64 * 2
"""Two samples of 32 tokens, 64 elements of 2 bytes each."""


def moe(servers: int, gpus_per_server: int, **changes: Any) -> Program:
    recipe = small(gpus_per_server=gpus_per_server, **changes)
    assert recipe.fabric.servers == servers
    program = training_step(recipe)
    check(program)
    return program


def small(**changes: Any) -> Recipe:
    return changed_recipe(SMALL, **changes)


def exchanges(program: Program, rank: int = 0) -> list[Collective]:
    return [op for op in program.operations[rank] if isinstance(op, Collective) and op.kind == "all_to_all"]


def names(operations: tuple[Operation, ...]) -> list[str]:
    return [op.name for op in operations]


def test_tokens_go_there_and_back_around_the_experts() -> None:
    ops = moe(4, 1, ep=4).operations[0]
    assert names(ops) == [
        "F0.u0.attention",
        "dispatch.F0.u0.experts",
        "F0.u0.experts",
        "combine.F0.u0.experts",
        "F0.u1.attention",
        "dispatch.F0.u1.experts",
        "F0.u1.experts",
        "combine.F0.u1.experts",
        "dispatch.B0.u1.experts",
        "B0.u1.experts",
        "combine.B0.u1.experts",
        "B0.u1.attention",
        "dispatch.B0.u0.experts",
        "B0.u0.experts",
        "combine.B0.u0.experts",
        "B0.u0.attention",
        "ar.u1",
        "ar.u0",
    ]


def test_recomputing_sends_the_tokens_of_the_forward_pass_again() -> None:
    found = [op.name for op in exchanges(moe(4, 1, ep=4, recompute=True)) if ".B0.u1" in op.name]
    assert found == [
        "dispatch.B0.u1.experts",
        "combine.B0.u1.experts",
        "dispatch.B0.u1.experts.1",
        "combine.B0.u1.experts.1",
    ]


def test_bytes_of_an_exchange_by_hand() -> None:
    """Each of 64 tokens goes to 2 experts; with TP a rank has its share of the sequence."""
    assert {op.bytes for op in exchanges(moe(4, 1, ep=4))} == {2 * ACTIVATION}
    assert {op.bytes for op in exchanges(moe(4, 2, ep=4, tp=2))} == {ACTIVATION}


def test_gradients_of_experts_stay_in_their_ep_index() -> None:
    """Attention, norms, router and shared expert over EP x DP; 8 / 4 experts over DP."""
    one = 3 * 64 * 48
    beside = 4 * 64 * 64 + 2 * 64 + 8 * 64 + one
    program = moe(8, 1, ep=4, dp=2)
    sizes = {(op.group, op.bytes) for op in program.communications(1) if ".u" in op.name and op.name[:3] == "ar."}
    assert sizes == {("dp.t0.s0", beside * 2), ("edp.t0.e1.s0", 2 * one * 2)}
    alone = moe(4, 1, dp=4)
    assert {op.bytes for op in alone.communications(0)} == {(beside + 8 * one) * 2}, "without EP they are in the layer"
    assert exchanges(alone) == []


def test_fsdp_gathers_experts_over_dp_only() -> None:
    program = moe(8, 1, ep=4, dp=2, sharding="fsdp")
    gathers = [op for op in program.communications(0) if op.name.startswith("ag.F0.u0")]
    assert [(op.name, op.group) for op in gathers] == [
        ("ag.F0.u0.experts", "edp.t0.e0.s0"),
        ("ag.F0.u0", "dp.t0.s0"),
    ]
    one = moe(4, 1, ep=4, sharding="fsdp")
    assert "ag.F0.u0.experts" not in names(one.operations[0]), "DP 1: every rank has its experts"


def test_compute_of_a_layer_is_what_it_was() -> None:
    """Halves of a layer with experts together last a layer's time; a backward pass twice that."""
    seconds = {op.name: op.seconds for op in moe(4, 1, ep=4).operations[0] if isinstance(op, Compute)}
    assert seconds["F0.u0.attention"] + seconds["F0.u0.experts"] == pytest.approx(0.01)
    assert seconds["B0.u0.attention"] + seconds["B0.u0.experts"] == pytest.approx(0.02)
    shape = small(ep=4).model
    share = shape.attention_flops(2) / shape.layer_flops(2)
    assert seconds["F0.u0.attention"] == pytest.approx(0.01 * share)


def test_tp_collectives_around_experts_carry_every_token_as_often_as_it_is_taken() -> None:
    """Two routed and one shared: three times the activations; and as much time where TP is modelled."""
    packets = moe(2, 4, tp=2, ep=4, tp_on_packets=True)
    sizes = {op.name: op.bytes for op in packets.communications(0) if packets.groups[op.group].dimension == "tp"}
    assert sizes["ag.F0.u0.attention"] == sizes["rs.F0.u0.attention"] == ACTIVATION
    assert sizes["ag.F0.u0.experts"] == sizes["rs.F0.u0.experts"] == 3 * ACTIVATION
    made = small(tp=2, ep=4, gpus_per_server=4)
    seconds = {op.name: op.seconds for op in moe(2, 4, tp=2, ep=4).operations[0] if isinstance(op, Compute)}
    assert sum(seconds[f"F0.u0.{half}"] for half in ("attention", "experts")) == pytest.approx(
        0.01 + made.tp_layer_s / 2 * (1 + 3)
    )


# -- placements -----------------------------------------------------------------------------------------------------


def test_all_scale_out_is_one_group_on_a_rail() -> None:
    found = groups(Parallelism(tp=2, pp=1, dp=2, ep=4), servers=8, gpus_per_server=2)
    assert found["dp.t0.s0"].members == (0, 2, 4, 6, 8, 10, 12, 14), "the EP index fastest"
    assert found["ep.t1.d1.s0"].members == (9, 11, 13, 15)
    assert found["edp.t0.e3.s0"].members == (6, 14)
    assert {found[name].domain for name in ("dp.t0.s0", "ep.t1.d1.s0", "edp.t0.e3.s0")} == {"scale-out"}
    assert (found["ep.t1.d1.s0"].dimension, found["edp.t0.e3.s0"].dimension) == ("ep", "edp")


def test_ep_inside_a_server_never_takes_a_rail() -> None:
    """TP2 EP2 in servers of 4: gradients of all kinds are summed along one ring per rail."""
    program = moe(4, 4, tp=2, ep=2, dp=4)
    eps = [group for group in program.groups.values() if group.dimension == "ep"]
    assert {group.domain for group in eps} == {"scale-up"} and len(eps) == 2 * 4
    assert {op.algorithm for op in exchanges(program)} == {"direct"}
    rails = [group for group in program.groups.values() if group.domain == "scale-out"]
    assert sorted(g.members for g in rails) == [tuple(range(rail, 16, 4)) for rail in range(4)]
    one, beside = 3 * 64 * 48, 4 * 64 * 64 + 2 * 64 + 8 * 64 + 3 * 64 * 48
    ours = [op for op in program.communications(3) if isinstance(op, Collective) and op.name.startswith("ar.u1")]
    reduced = [(op.group, op.kind, op.bytes) for op in ours]
    assert reduced == [
        ("dp.t1.s0.server0", "reduce_scatter", beside),  # / TP 2, 2 bytes each
        ("dp.t1.s0.rail3", "all_reduce", beside // 2),
        ("dp.t1.s0.server0", "all_gather", beside),
        ("dp.t1.s0.rail3", "all_reduce", 8 // 2 * one),  # 4 experts / TP 2, 2 bytes each
    ]
    assert {p.dimension for p in phases(program, 0)} == {"dp"}


def test_ep_over_servers_with_several_gpus_goes_in_two_steps_and_back() -> None:
    program = moe(4, 2, ep=8)
    found = [(op.group, op.bytes) for op in exchanges(program, rank=3)[:4]]
    inside, along = ("ep.t0.d0.s0.server1", 2 * ACTIVATION), ("ep.t0.d0.s0.rail1", 2 * ACTIVATION)
    assert found == [inside, along, along, inside]
    assert program.groups["ep.t0.d0.s0.server1"].members == (2, 3)
    assert program.groups["ep.t0.d0.s0.rail1"].members == (1, 3, 5, 7)


def test_edp_groups_that_a_ring_has_already_are_not_made() -> None:
    inside = groups(Parallelism(tp=2, pp=1, dp=4, ep=2), servers=4, gpus_per_server=4)
    assert not [name for name in inside if name.startswith("edp")]
    part = groups(Parallelism(tp=1, pp=1, dp=4, ep=2), servers=2, gpus_per_server=4)
    assert part["edp.t0.e1.s0.server1"].members == (5, 7)
    assert not [group for group in part.values() if group.dimension == "edp" and group.domain == "scale-out"]


@given(
    tp=st.sampled_from([1, 2]),
    ep=st.sampled_from([1, 2, 4]),
    dp=st.integers(1, 2),
    pp=st.sampled_from([1, 2]),
    gpus=st.sampled_from([1, 2, 4]),
    sharding=st.sampled_from(["fsdp", "ddp"]),
    overlap=st.booleans(),
    recompute=st.booleans(),
    tp_on_packets=st.booleans(),
    skew=st.sampled_from([0.0, 1.0]),
)
@settings(max_examples=60, deadline=None)
def test_every_step_with_experts_can_run(
    tp: int, ep: int, dp: int, pp: int, gpus: int, skew: float, **options: Any
) -> None:
    ranks = tp * ep * dp * pp
    if tp > gpus or ranks % gpus:
        return
    options |= {"dense_layers": 1, "expert_skew": skew}
    program = moe(ranks // gpus, gpus, tp=tp, ep=ep, dp=dp, pp=pp, local_batch=4, **options)
    with_experts = [pp - 1] if pp > 1 else [0]
    for rank in range(ranks):
        found = [op for op in exchanges(program, rank) if program.groups[op.group].domain == "scale-out"]
        stage = rank // (tp * ep * dp)
        crosses = ep > 1 and tp * ep > gpus
        sweeps = 2 * (3 if options["recompute"] else 2)  # dispatch and combine
        assert len(found) == (2 * sweeps if crosses and stage in with_experts else 0)
        dense = [g for g in program.groups.values() if g.dimension == "dp" and rank in g.members]
        assert len(dense) >= (ep * dp > 1)


# -- phases ---------------------------------------------------------------------------------------------------------


def test_phases_of_the_catalog() -> None:
    smoke = load_workload("moe-smoke").program
    for rank in range(8):
        assert [(p.dimension, len(p.operations)) for p in phases(smoke, rank)] == [("ep", 8), ("dp", 2)]
        assert phase_changes(smoke, rank) == 2
    inside = load_workload("moe-ep-tp")
    assert {phase_changes(inside.program, rank) for rank in range(8)} == {0}
    assert inside.uses_scale_up


def test_rings_of_experts_come_last_so_that_they_change_once() -> None:
    for overlap in (False, True):
        program = moe(8, 1, ep=4, dp=2, overlap=overlap)
        assert [p.dimension for p in phases(program, 0)][-1] == "edp"
        assert sum(p.dimension == "edp" for p in phases(program, 0)) == 1


def test_exchanges_and_pipeline_take_turns_on_the_rail() -> None:
    program = moe(8, 1, ep=4, pp=2)
    # The pair lets go between send and receive: the stage behind talks to its experts in between.
    assert [p.dimension for p in phases(program, 0)] == ["ep", "pp", "pp", "ep", "dp"]
    assert [p.dimension for p in phases(program, 4)] == ["pp", "ep", "pp", "dp"]


# -- uneven choices, algorithms -------------------------------------------------------------------------------------


def test_even_demand() -> None:
    workload = load_workload("moe-smoke")
    assert workload.training is not None
    (group,) = (g for g in workload.program.groups.values() if g.dimension == "ep")
    each = 4 * 4096 * 2 * 4096 * 2 / 8
    assert ep_demand(workload.training, group) == tuple(
        tuple(0.0 if i == j else each for j in range(8)) for i in range(8)
    )
    assert exchange_bytes(workload.training, group) == 8 * each
    assert workload.program.schedules == {}


SKEWED = {"expert_skew": 1.0, "expert_seed": 5}


def test_uneven_demand_follows_popularity() -> None:
    made = small(**SKEWED, ep=4)
    program = training_step(made)
    demand = ep_demand(made, program.groups["ep.t0.d0.s0"])
    shares = [sum(popularity(8, 2, 1.0, 5)[2 * j : 2 * j + 2]) for j in range(4)]
    for i, row in enumerate(demand):
        assert list(row) == pytest.approx([0 if i == j else 2 * ACTIVATION * shares[j] for j in range(4)])


def test_uneven_exchanges_move_what_the_demand_says_and_bring_it_back() -> None:
    made = small(**SKEWED, ep=4)
    program = training_step(made)
    demand = ep_demand(made, program.groups["ep.t0.d0.s0"])
    there, back = exchanges(program)[:2]
    assert (there.algorithm, back.algorithm) == ("ep.t0.d0.s0.dispatch", "ep.t0.d0.s0.combine")
    for op, wanted in ((there, demand), (back, tuple(zip(*demand, strict=True)))):
        plan = program.schedules[op.algorithm]
        bounds = plan.chunk_bounds(op.bytes // 4)
        for i in range(4):
            for j in range(4):
                start, end = bounds[i * 4 + j]
                assert i == j or 4 * (end - start) == pytest.approx(wanted[i][j], abs=16)


def test_popular_experts_take_longer() -> None:
    program = moe(4, 1, **SKEWED, ep=4)
    shape = small(**SKEWED, ep=4).model
    loads = shape.expert_loads(4)
    before, routed = (f / shape.layer_flops(2) for f in (shape.attention_flops(2), shape.routed_flops(2)))
    for rank in range(4):
        seconds = {op.name: op.seconds for op in program.operations[rank] if isinstance(op, Compute)}
        assert seconds["F0.u0.attention"] == pytest.approx(0.01 * before)
        assert seconds["F0.u0.experts"] == pytest.approx(0.01 * (1 - before - routed + routed * loads[rank]))


def test_two_levels_move_all_that_is_uneven() -> None:
    """By hand: every GPU has 1 / EP of the tokens for each, so a rail carries what is for its GPUs elsewhere."""
    made = small(**SKEWED, ep=4, gpus_per_server=2)
    program = training_step(made)
    loads, each = made.model.expert_loads(4), 2 * ACTIVATION / 4
    inside = ep_demand(made, program.groups["ep.t0.d0.s0.server0"])
    assert inside[0][1] == pytest.approx(each * (loads[1] + loads[3]))
    assert inside[1][0] == pytest.approx(each * (loads[0] + loads[2]))
    along = ep_demand(made, program.groups["ep.t0.d0.s0.rail1"])
    assert along[0][1] == pytest.approx(2 * each * loads[3])
    assert along[1][0] == pytest.approx(2 * each * loads[1])
    flat = ep_demand(made, groups(made.parallelism, 4, 1)["ep.t0.d0.s0"])
    between = sum(flat[i][j] for i in range(4) for j in range(4) if i // 2 != j // 2)
    rails = [ep_demand(made, program.groups[f"ep.t0.d0.s0.rail{r}"]) for r in (0, 1)]
    assert sum(map(sum, (*rails[0], *rails[1]))) == pytest.approx(between), "a byte takes a rail once"


@pytest.mark.parametrize("skew", [0.0, 1.0])
@pytest.mark.parametrize("name", ["bidirectional-direct", "line", "pairwise", "bidirectional-ring"])
def test_the_algorithm_on_the_rails_can_be_chosen(name: str, skew: float) -> None:
    program = moe(2, 2, shared_experts=0, expert_skew=skew, expert_seed=1, ep=4)
    changed = with_ep_algorithm(program, name)
    check(changed)
    for before, after in zip(exchanges(program), exchanges(changed), strict=True):
        if program.groups[before.group].domain == "scale-up":
            assert after == before
        elif skew:
            old, new = program.schedules[before.algorithm], changed.schedules[after.algorithm]
            assert new.algorithm == name
            pieces = new.chunks // 4
            assert new.weights[::pieces] == old.weights and len(new.weights) == new.chunks
        else:
            assert after.algorithm == name
    for mine, theirs in zip(program.operations, changed.operations, strict=True):
        assert names(mine) == names(theirs)
        assert [op for op in mine if op.name[:3] == "ar."] == [op for op in theirs if op.name[:3] == "ar."]


def test_an_algorithm_that_is_no_all_to_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not support all_to_all"):
        with_ep_algorithm(moe(4, 1, ep=4), "tree")


def test_hops_go_round_the_ring_or_along_an_arc_of_it() -> None:
    assert hops_algorithm(moe(4, 1, ep=4)) == "bidirectional-ring"
    assert hops_algorithm(moe(8, 1, ep=4, dp=2)) == "line"


def test_only_groups_of_experts_have_a_demand() -> None:
    made = small(ep=4)
    program = training_step(made)
    with pytest.raises(ConfigError, match=r"group dp\.t0\.s0 has no experts"):
        ep_demand(made, program.groups["dp.t0.s0"])


@given(n=st.integers(2, 20))
@settings(deadline=None)
def test_straight_through_both_ports_loads_them_alike(n: int) -> None:
    made = schedule("all_to_all", n, "bidirectional-direct")
    for side in ("src", "dst"):
        load = {(p, lane): 0 for p in range(n) for lane in (0, 1)}
        for t in made.transfers:
            load[getattr(t, side), t.lane] += 1
        assert set(load.values()) == {n - 1}


# -- what is refused ------------------------------------------------------------------------------------------------


DEEPSEEK = ModelShape(
    layers=28,
    hidden=2048,
    sequence=4096,
    ffn_hidden=10944,
    heads=16,
    vocabulary=102400,
    experts=64,
    top_k=6,
    expert_ffn_hidden=1408,
    shared_experts=2,
    dense_layers=1,
)


def shape(**experts: Any) -> ModelShape:
    return ModelShape(layers=2, hidden=8, sequence=8, heads=1, **experts)


def test_parameters_of_deepseek_moe_16b() -> None:
    """arXiv 2401.06066, section 5: 16.4 B parameters in all, about 2.8 B of them active."""
    vocabulary = 2 * DEEPSEEK.vocabulary * DEEPSEEK.hidden
    units = [unit for unit in stage_units(DEEPSEEK, 0, 1, 1) if unit.name.startswith("u")]
    assert [unit.expert_parameters > 0 for unit in units] == [False] + [True] * 27
    whole = sum(unit.parameters + unit.expert_parameters for unit in units) + vocabulary
    assert whole == pytest.approx(16.4e9, rel=0.005)
    met = DEEPSEEK.beside_experts + DEEPSEEK.top_k * DEEPSEEK.parameters_per_expert
    active = DEEPSEEK.parameters_per_layer + 27 * met + vocabulary
    assert active == pytest.approx(2.8e9, rel=0.02)


def test_a_layer_with_experts_by_hand() -> None:
    one = 3 * 2048 * 1408
    attention = 4 * 2048**2
    assert DEEPSEEK.expert_parameters == 64 * one
    assert DEEPSEEK.beside_experts == attention + 2 * 2048 + 64 * 2048 + 2 * one
    assert DEEPSEEK.parameters_per_expert == one
    scores = 2 * 3 * 4096**2 * 2048
    met = attention + 64 * 2048 + 8 * one
    assert DEEPSEEK.layer_flops(3) == pytest.approx(2 * met * 3 * 4096 + scores)
    assert DEEPSEEK.routed_flops(3) == pytest.approx(2 * 6 * one * 3 * 4096)


def test_a_layer_without_experts_counts_by_its_arithmetic() -> None:
    dense, usual, *_ = (unit for unit in stage_units(DEEPSEEK, 0, 2, 1) if unit.name.startswith("u"))
    assert usual.layers == 1.0
    assert dense.layers == pytest.approx(DEEPSEEK.dense_flops(1) / DEEPSEEK.layer_flops(1))
    assert dense.parameters == DEEPSEEK.parameters_per_layer
    second = [unit.expert_parameters > 0 for unit in stage_units(DEEPSEEK, 1, 2, 1) if unit.name.startswith("u")]
    assert second == [True] * 14, "the first layer of the model is not the first of every stage"


def test_every_second_layer_after_the_dense_ones() -> None:
    every_second = shape(experts=4, dense_layers=1, moe_every=2)
    assert [every_second.has_experts(i) for i in range(6)] == [False, True, False, True, False, True]


@given(count=st.integers(1, 40), data=st.data(), skew=st.floats(0, 4), seed=st.integers(0, 9))
def test_popularities_are_shares_and_nobody_is_taken_twice_by_a_token(
    count: int, data: st.DataObject, skew: float, seed: int
) -> None:
    top_k = data.draw(st.integers(1, count))
    shares = popularity(count, top_k, skew, seed)
    assert sum(shares) == pytest.approx(1)
    assert min(shares) > 0 and max(shares) <= 1 / top_k * (1 + 1e-9)
    ep = data.draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0]))
    loads = shape(experts=count, top_k=top_k, expert_skew=skew, expert_seed=seed).expert_loads(ep)
    assert sum(loads) == pytest.approx(ep)


def test_zipf_by_hand_and_by_seed() -> None:
    shares = popularity(4, 1, 1.0, 3)
    assert sorted(shares, reverse=True) == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25])
    assert shares == popularity(4, 1, 1.0, 3)
    assert len({popularity(4, 1, 1.0, seed) for seed in range(8)}) > 1
    assert popularity(4, 1) == (0.25,) * 4
    # 12/25 is more than a third; the other two thirds go on by Zipf.
    assert sorted(popularity(4, 3, 1.0))[-1] == pytest.approx(1 / 3)
