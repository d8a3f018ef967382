"""The electrical racks: who stands in, and that nothing else is decided."""

from __future__ import annotations

from rack_plans import electrical_plan

from controllers.policies.policy import ClusterState
from controllers.policies.torus import MigratePolicy, TorusPolicy
from topos.torus import Torus
from workloads.program import Group

SQUARE = Torus((4, 4, 1), (2, 2, 1))
ROW = Group("a", "dp", tuple(SQUARE.chip((x, 0, 0)) for x in range(4)))


def chip(x: int, y: int) -> int:
    return SQUARE.chip((x, y, 0))


def test_packets_find_their_way() -> None:
    policy = TorusPolicy(electrical_plan(SQUARE))
    assert policy.start([ROW]) == {} and policy.paths(ROW, {}) == () and policy.wanted(ROW, {}) == {}
    assert not policy.asks(ROW)


def test_the_spare_with_the_fewest_hops_to_both_neighbours_stands_in() -> None:
    policy = TorusPolicy(electrical_plan(SQUARE))
    dead = chip(1, 0)
    assert policy.replace([ROW], dead, (chip(2, 2), chip(1, 1), chip(3, 1))) == {dead: chip(1, 1)}
    assert policy.replace([ROW], dead, (chip(2, 2), chip(3, 1), chip(1, 1))) == {dead: chip(3, 1)}
    assert policy.replace([ROW], chip(2, 0), ()) == {}


def test_hops_are_counted_round_the_dead_those_of_before_too() -> None:
    line = Torus((8, 1, 1), (1, 1, 1))
    policy = TorusPolicy(electrical_plan(line))
    pair, other = Group("a", "dp", (0, 1)), Group("b", "dp", (3, 4))
    assert policy.replace([pair, other], 1, (2, 6)) == {1: 6}
    assert policy.replace([pair, other], 4, (1, 5, 2)) == {4: 2}
    assert policy.replace([Group("c", "dp", (3, 5))], 5, (7,)) == {}


def test_ways_lead_round_every_dead_chip_that_it_is_told_of() -> None:
    policy = TorusPolicy(electrical_plan(Torus((8, 1, 1), (1, 1, 1))))
    pair = Group("a", "dp", (0, 1))
    assert policy.replace([pair], 1, (5, 2)) == {1: 5}
    policy.see(ClusterState(dead=frozenset({1, 6})))
    assert policy.replace([pair], 1, (5, 2, 7)) == {1: 7}
    assert policy.replace([pair], 1, (5, 2)) == {}


def test_a_neighbour_that_is_dead_itself_does_not_count() -> None:
    policy = TorusPolicy(electrical_plan(SQUARE))
    assert policy.replace([ROW], chip(1, 0), ()) == {}
    assert policy.replace([ROW], chip(2, 0), (chip(0, 2), chip(3, 1))) == {chip(2, 0): chip(3, 1)}


def test_a_spare_that_no_way_leads_to_does_not_stand_in() -> None:
    policy = TorusPolicy(electrical_plan(SQUARE, racks=2))
    assert policy.replace([ROW], chip(1, 0), (16 + chip(1, 1),)) == {}


def test_neighbours_in_every_group_count() -> None:
    policy = TorusPolicy(electrical_plan(Torus((8, 8, 1), (1, 1, 1))))
    row, column = Group("r", "dp", (0, 1)), Group("c", "tp", (32, 0))
    assert policy.replace([row], 0, (16, 2)) == {0: 2}
    assert policy.replace([row, column], 0, (2, 16)) == {0: 16}


def test_a_whole_slice_migrates_or_nobody_does() -> None:
    policy = MigratePolicy(electrical_plan(SQUARE, racks=2))
    free = tuple(range(16, 32))
    moved = policy.replace([ROW], ROW.members[1], free)
    assert moved == {r: r + 16 for r in ROW.members}
    assert policy.replace([ROW], ROW.members[1], [r for r in free if r != ROW.members[2] + 16]) == {}
    there = Group("a", "dp", tuple(moved.values()))
    assert policy.replace([there], there.members[0], ()) == {}


def test_a_third_rack_takes_what_the_second_cannot() -> None:
    policy = MigratePolicy(electrical_plan(SQUARE, racks=3))
    assert policy.replace([ROW], 0, (16, *range(32, 48))) == {r: r + 32 for r in ROW.members}
