"""Rank order and groups, against Megatron's documented example and by property."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.training.ranks import Levels, Parallelism, group_name, groups, levels_of, spread

sizes = st.integers(1, 4)
parallelisms = st.builds(Parallelism, tp=sizes, pp=sizes, dp=sizes, ep=sizes)


def test_megatron_documented_example() -> None:
    # Megatron-LM, parallel_state.initialize_model_parallel: 16 GPUs, TP 2, PP 4.
    found = groups(Parallelism(tp=2, pp=4, dp=2), servers=8, gpus_per_server=2)

    def by_dimension(dimension: str) -> list[tuple[int, ...]]:
        return [g.members for g in found.values() if g.dimension == dimension]

    assert by_dimension("tp") == [(i, i + 1) for i in range(0, 16, 2)]
    assert by_dimension("dp") == [(0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15)]
    assert (0, 4) in by_dimension("pp")
    assert (8, 12) in by_dimension("pp")
    assert len(by_dimension("pp")) == 12


def test_llama_groups_and_domains() -> None:
    found = groups(Parallelism(tp=4, pp=2, dp=2), servers=4, gpus_per_server=4)
    assert found["dp.t0.s0"].members == (0, 4)
    assert found["dp.t1.s1"].members == (9, 13)
    assert found["pp.t0.d1.s0"].members == (4, 12)
    assert found["tp.d0.s0"].domain == "scale-up"
    assert found["dp.t0.s0"].domain == found["pp.t0.d0.s0"].domain == "scale-out"
    assert found["world"].domain == "front-end"
    assert len(found["world"].members) == 16


@given(parallelisms)
def test_rank_and_coordinates_are_inverse(p: Parallelism) -> None:
    assert [p.rank(p.coordinates(r)) for r in range(p.ranks)] == list(range(p.ranks))


@given(parallelisms)
def test_leftmost_dimension_is_fastest(p: Parallelism) -> None:
    order = [p.coordinates(r) for r in range(p.ranks)]
    assert order == sorted(order, key=lambda c: (c.pp, c.dp, c.ep, c.tp))


@given(parallelisms)
def test_groups_of_a_dimension_partition_the_ranks(p: Parallelism) -> None:
    found = groups(p, servers=p.ranks // p.tp, gpus_per_server=p.tp)
    for dimension, size in (("tp", p.tp), ("dp", p.dp * p.ep), ("ep", p.ep)):
        members = [r for g in found.values() if g.dimension == dimension for r in g.members]
        assert sorted(members) == (list(range(p.ranks)) if size > 1 else [])


@given(parallelisms)
def test_group_names_lead_back_to_the_rank(p: Parallelism) -> None:
    found = groups(p, servers=p.ranks // p.tp, gpus_per_server=p.tp)
    for rank in range(p.ranks):
        for name, size in ((group_name("tp", p, rank), p.tp), (group_name("dp", p, rank), p.dp * p.ep)):
            assert (name in found) == (size > 1)
            if size > 1:
                assert rank in found[name].members
        if p.coordinates(rank).pp + 1 < p.pp:
            assert found[group_name("pp", p, rank)].members[0] == rank


def test_tp_across_servers_only_when_allowed() -> None:
    found = groups(Parallelism(tp=4, pp=1, dp=1), servers=2, gpus_per_server=2, tp_across_servers=True)
    assert found["tp.d0.s0"].domain == "scale-up"


def test_dp_inside_a_server_is_scale_up() -> None:
    assert groups(Parallelism(tp=2, pp=1, dp=2), servers=1, gpus_per_server=4)["dp.t0.s0"].domain == "scale-up"


BOTH = Levels("in", "rail", gpus=4)


def test_one_network_is_one_leg() -> None:
    assert Levels(along="rail").legs("all_gather", 100) == (("rail", "all_gather", 100),)
    assert Levels("in", gpus=4).legs("all_to_all", 100) == (("in", "all_to_all", 100),)
    assert Levels().legs("all_reduce", 100) == ()
    assert not Levels() and Levels(along="rail") and Levels("in")


def test_a_rail_carries_the_part_of_one_gpu() -> None:
    assert BOTH.legs("all_gather", 100) == (("rail", "all_gather", 25), ("in", "all_gather", 100))
    assert BOTH.legs("reduce_scatter", 100) == (("in", "reduce_scatter", 100), ("rail", "reduce_scatter", 25))
    assert BOTH.legs("all_reduce", 101) == (
        ("in", "reduce_scatter", 101),
        ("rail", "all_reduce", 26),
        ("in", "all_gather", 101),
    )


def test_a_number_is_summed_whole_at_both_levels() -> None:
    assert BOTH.legs("all_reduce", 4) == (("in", "all_reduce", 4), ("rail", "all_reduce", 4))
    assert BOTH.legs("all_reduce", 16)[0] == ("in", "reduce_scatter", 16)


def test_an_all_to_all_comes_back_the_other_way() -> None:
    there = BOTH.legs("all_to_all", 100)
    assert there == (("in", "all_to_all", 100), ("rail", "all_to_all", 100))
    assert BOTH.legs("all_to_all", 100, back=True) == there[::-1]


def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(ValueError, match="broadcast cannot be divided"):
        BOTH.legs("broadcast", 100)


@given(gpus=st.integers(2, 4), servers=st.integers(2, 4))
def test_every_rank_is_in_one_group_of_its_server_and_one_of_its_rail(gpus: int, servers: int) -> None:
    parts = spread("g", "ep", range(gpus * servers), 3, gpus)
    found = {part.name: part for part in parts}
    assert len(found) == gpus + servers
    for rank in range(gpus * servers):
        at = levels_of(rank, parts, found)
        assert found[at.inside].domain == "scale-up" and found[at.along].domain == "scale-out"
        assert found[at.inside].members == tuple(r for r in range(gpus * servers) if r // gpus == rank // gpus)
        assert found[at.along].members == tuple(r for r in range(gpus * servers) if r % gpus == rank % gpus)
        assert (at.gpus, found[at.along].stage) == (gpus, 3)
