"""LUMION's policy: what a splice changes, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rack_plans import photonic_plan

from controllers.circuits.circuits import Matching
from controllers.policies.lumion import FixedPortsPolicy, LumionPolicy
from controllers.policies.wiring import matched_paths
from railyard.protocol import Hop
from topos.plan import FabricPlan
from topos.torus import Torus
from workloads.program import Group

RACK = Torus((4, 4, 1), (2, 2, 1))
CUBE = Torus((4, 4, 4), (2, 2, 1))


def with_member(group: Group, dead: int, spare: int) -> Group:
    return replace(group, members=tuple(spare if r == dead else r for r in group.members))


def joined(plan: FabricPlan, matching: Matching) -> set[frozenset[tuple[int, int]]]:
    """Each circuit as the (rank, lane) of both ends."""
    end = {p.number: (p.rank, p.lane) for p in plan.switches[0].ports}
    return {frozenset({end[c.a], end[c.b]}) for c in matching}


def test_all_ports_go_to_the_ring_and_every_path_stands() -> None:
    policy, ring = LumionPolicy(photonic_plan(RACK)), Group("a", "dp", (0, 1, 4, 5))
    wiring = policy.start([ring])
    assert len(wiring["rack0"]) == 4 * 4 // 2
    assert policy.paths(ring, wiring) == matched_paths(ring.members, [range(4)] * len(ring.members))
    assert not policy.asks(ring) and policy.wanted(ring, wiring) == {}


def test_only_paths_whose_circuits_stand_are_told() -> None:
    policy, pair = LumionPolicy(photonic_plan(RACK)), Group("a", "dp", (0, 1))
    (first, *rest) = policy.start([pair])["rack0"]
    assert policy.paths(pair, {}) == ()
    paths = policy.paths(pair, {"rack0": Matching(rest)})
    assert len(paths) == len(rest) == 3
    end = {p.number: (p.rank, p.lane) for p in policy.plan.switches[0].ports}
    assert all({end[first.a], end[first.b]} != {(a, i), (b, j)} for a, i, b, j in paths)


def test_the_first_free_spare_takes_the_place_and_without_one_nobody() -> None:
    policy, ring = LumionPolicy(photonic_plan(RACK)), Group("a", "dp", (0, 1, 4, 5))
    policy.start([ring])
    assert policy.replace([ring], 4, (17, 18)) == {4: 17}
    assert policy.replace([ring], 4, ()) == {}


@pytest.mark.parametrize("members", [(0, 1, 4, 5), (0, 1)])
def test_fixed_ports_give_one_circuit_per_hop_and_the_same_splice(members: tuple[int, ...]) -> None:
    policy, ring = FixedPortsPolicy(photonic_plan(RACK)), Group("a", "dp", members)
    wiring = policy.start([ring])
    assert policy.paths(ring, wiring) == matched_paths(members, [range(min(2, len(members) - 1))] * len(members))
    assert policy.replace([ring], 1, (17, 18)) == {1: 17}
    kept = joined(policy.plan, wiring["rack0"]) & joined(policy.plan, policy.start([with_member(ring, 1, 17)])["rack0"])
    assert {rank for circuit in kept for rank, _ in circuit} == (set(members) - {1} if len(members) > 2 else set())


def test_fixed_ports_of_two_groups_of_a_chip_differ() -> None:
    policy = FixedPortsPolicy(photonic_plan(RACK))
    groups = [Group("tp", "tp", (0, 1, 4, 5)), Group("dp", "dp", (0, 2, 8))]
    (wiring,) = policy.start(groups).values()
    assert sorted(len(policy.paths(group, {"rack0": wiring})) for group in groups) == [3, 4]


def test_groups_off_the_rack_are_left_alone() -> None:
    policy = LumionPolicy(photonic_plan(RACK))
    front_end = Group("fe", "world", (0, 1, 2), "front-end")
    assert policy.start([front_end]) == {} and policy.paths(front_end, {}) == ()


@st.composite
def racks(draw: st.DrawFn) -> tuple[Torus, list[list[int]]]:
    """A torus and slices of it, each in ring order."""
    server = draw(st.sampled_from([(1, 1, 1), (2, 1, 1), (2, 2, 1)]))
    blocks = draw(st.tuples(*[st.integers(1, 3)] * 3))
    torus = Torus((server[0] * blocks[0], server[1] * blocks[1], server[2] * blocks[2]), server)
    chips = draw(st.permutations(range(torus.chips)))
    cuts = sorted(draw(st.sets(st.integers(0, torus.chips), max_size=4)))
    return torus, [chips[a:b] for a, b in zip([0, *cuts], [*cuts, torus.chips], strict=True) if b > a]


@given(racks(), st.data())
def test_a_splice_moves_the_circuits_of_the_dead_chip_and_no_others(
    rack: tuple[Torus, list[list[int]]], data: st.DataObject
) -> None:
    torus, slices = rack
    if len(torus.directions) < 2:
        return
    plan = photonic_plan(torus, spare_servers=2)
    groups = [Group(f"t{i}", "dp", tuple(members)) for i, members in enumerate(slices)]
    policies = [LumionPolicy(plan) for _ in groups]
    standing = [dict(policy.start([g])) for policy, g in zip(policies, groups, strict=True)]
    free, dead_ever = list(plan.rack.spares if plan.rack else ()), set()
    for _ in range(data.draw(st.integers(1, 2))):
        hit = data.draw(st.integers(0, len(groups) - 1))
        dead = data.draw(st.sampled_from(groups[hit].members))
        change = policies[hit].replace([groups[hit]], dead, free)
        assert change == {dead: free[0]}
        spare = free.pop(0)
        dead_ever.add(dead)
        group = with_member(groups[hit], dead, spare)
        before = joined(plan, standing[hit].get("rack0", Matching()))
        after_wiring = policies[hit].start([group])
        after = joined(plan, after_wiring.get("rack0", Matching()))
        touched = {c for c in before if any(rank == dead for rank, _ in c)}
        assert before - after == touched
        moved = {frozenset((spare if r == dead else r, lane) for r, lane in c) for c in touched}
        assert after - before == moved
        assert len(moved) == (len(torus.directions) // 2 * 2 if len(group.members) > 2 else len(touched))
        assert len(policies[hit].paths(group, after_wiring)) == len(after)
        groups[hit], standing[hit] = group, dict(after_wiring)
    everything = Matching(c for wiring in standing for c in wiring.get("rack0", Matching()))
    assert len(everything) == sum(len(w.get("rack0", Matching())) for w in standing)
    assert all(rank not in dead_ever for circuit in joined(plan, everything) for rank, _ in circuit)


def test_both_groups_of_a_dead_chip_are_spliced() -> None:
    plan = photonic_plan(CUBE)
    tp, dp = Group("tp", "tp", (0, 1, 2, 3)), Group("dp", "dp", (0, 16, 32, 48))
    policy = LumionPolicy(plan)
    before = joined(plan, policy.start([tp, dp])["rack0"])
    assert policy.replace([tp, dp], 0, (64, 65)) == {0: 64}
    after = joined(plan, policy.start([with_member(g, 0, 64) for g in (tp, dp)])["rack0"])
    assert len(before - after) == len(after - before) == 4
    paths: tuple[Hop, ...] = policy.paths(
        with_member(dp, 0, 64), policy.start([with_member(g, 0, 64) for g in (tp, dp)])
    )
    assert {r for a, _, b, _ in paths for r in (a, b)} == {64, 16, 32, 48}


def test_a_group_of_pairs_has_a_circuit_for_each_and_no_ring_and_a_spare_takes_over_all_of_one_chip() -> None:
    policy, whole = LumionPolicy(photonic_plan(RACK)), Group("a", "dp", (0, 1, 4, 5))
    ends = [(a, b) for a in whole.members for b in whole.members if a < b]
    groups = [whole, *(Group(f"a/{a}-{b}", "dp", (a, b), parent="a") for a, b in ends)]
    wiring = policy.start(groups)
    assert {(path.rank, path.peer) for path in policy.paths(whole, wiring)} == set(ends)
    assert all(len(policy.paths(pair, wiring)) == 1 for pair in groups[1:])
    spliced = [with_member(group, 4, 17) for group in groups]
    after = policy.start(spliced)
    kept = joined(policy.plan, wiring["rack0"]) & joined(policy.plan, after["rack0"])
    assert len(kept) == 3 and len(after["rack0"]) == 6
    assert {path.peer for path in policy.paths(spliced[0], after)} | {0} >= {1, 17, 5}
