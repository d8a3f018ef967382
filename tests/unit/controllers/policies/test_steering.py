"""Rings over many lanes, and how the ports of a chip are divided among its groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from fabric_plans import rail_plan
from hypothesis import given
from hypothesis import strategies as st

from controllers.policies.lumion import ports_needed, split_ports
from controllers.policies.wiring import matched_paths, ring_neighbours, ring_paths
from railyard.errors import ConfigError
from railyard.protocol import Hop
from workloads.program import Group


def steered_paths(members: Sequence[int], lanes: Sequence[int]) -> tuple[Hop, ...]:
    """The ring of ``members`` over all ``lanes``, the same for every member."""
    return matched_paths(members, [lanes] * len(members))


def test_a_ring_of_four_ports_is_two_rings_of_two() -> None:
    members = (3, 5, 8)
    assert steered_paths(members, range(4)) == ring_paths(members, 0, 1) + ring_paths(members, 2, 3)


def test_two_members_are_joined_by_all_their_ports() -> None:
    assert steered_paths((4, 9), range(3)) == ((4, 1, 9, 0), (9, 1, 4, 0), (4, 2, 9, 2))
    assert steered_paths((4, 9), [5]) == ((4, 5, 9, 5),)


def test_one_member_or_one_port_makes_no_ring() -> None:
    assert steered_paths((4,), range(6)) == ()
    assert steered_paths((4, 5, 6), [0]) == ()


def test_lanes_of_different_members_are_matched_by_position() -> None:
    assert matched_paths((1, 2, 3), [(0, 1), (2, 3), (4, 5)]) == ((1, 1, 2, 2), (2, 3, 3, 4), (3, 5, 1, 0))


@given(st.integers(2, 9), st.integers(1, 9))
def test_every_hop_has_as_many_circuits_and_no_port_is_used_twice(size: int, ports: int) -> None:
    paths = steered_paths(range(size), range(ports))
    ends = [end for a, lane, b, there in paths for end in ((a, lane), (b, there))]
    assert len(set(ends)) == len(ends)
    hops = Counter((min(a, b), max(a, b)) for a, _, b, _ in paths)
    if size == 2:
        assert len(ends) == 2 * ports
    elif ports > 1:
        assert set(hops.values()) == {ports // 2} and len(hops) == size


@pytest.mark.parametrize(
    ("members", "rank", "beside"), [((1, 2, 3), 1, (3, 2)), ((1, 2), 2, (1,)), ((7,), 7, ()), ((4, 5, 6, 7), 7, (6, 4))]
)
def test_ring_neighbours(members: tuple[int, ...], rank: int, beside: tuple[int, ...]) -> None:
    assert ring_neighbours(members, rank) == beside


def test_a_tp_ring_and_a_dp_ring_hold_four_circuits_of_six_ports() -> None:
    """MORPHLUX, arXiv 2508.03674: TP ring + DP ring = 4 circuits per chip of a 4 x 4 x 4 rack."""
    tp, dp = Group("tp", "tp", (0, 1, 2, 3)), Group("dp", "dp", (0, 4, 8))
    split = split_ports(rail_plan(9, ports=6), [tp, dp])
    circuits = Counter(
        rank for g in (tp, dp) for a, _, b, _ in matched_paths(g.members, split[g.name]) for rank in (a, b) if rank == 0
    )
    assert circuits == {0: 4}
    assert split == {"tp": ((0, 1),) * 4, "dp": ((2, 3), (0, 1), (0, 1))}


def test_one_group_has_all_ports_and_its_poorest_member_counts() -> None:
    ring, pair = Group("ring", "dp", (0, 1, 2)), Group("pair", "dp", (2, 3))
    assert split_ports(rail_plan(4, ports=5), [ring]) == {"ring": ((0, 1, 2, 3),) * 3}
    assert split_ports(rail_plan(4, ports=5), [pair]) == {"pair": ((0, 1, 2, 3, 4),) * 2}
    both = split_ports(rail_plan(4, ports=4), [ring, pair])
    assert both == {"ring": ((0, 1),) * 3, "pair": ((2, 3), (0, 1))}


def test_a_ring_has_its_two_ports_before_pairs_have_more_than_one() -> None:
    groups = [Group("p", "dp", (0, 1)), Group("q", "dp", (0, 2)), Group("ring", "dp", (0, 1, 2))]
    split = split_ports(rail_plan(3, ports=4), groups)
    assert {name: len(lanes[0]) for name, lanes in split.items()} == {"p": 1, "q": 1, "ring": 2}


def test_groups_without_scale_out_traffic_take_no_port() -> None:
    groups = [Group("alone", "dp", (0,)), Group("tp", "tp", (0, 1), "scale-up"), Group("dp", "dp", (0, 1))]
    assert split_ports(rail_plan(2), groups) == {"dp": ((0, 1), (0, 1))}


@given(st.data())
def test_no_chip_gives_a_lane_twice_and_every_group_has_a_circuit(data: st.DataObject) -> None:
    chips, ports = 6, data.draw(st.integers(1, 8))
    memberships = data.draw(
        st.lists(st.lists(st.integers(0, chips - 1), min_size=1, max_size=4, unique=True), max_size=6)
    )
    groups = [Group(f"g{i}", "dp", tuple(members)) for i, members in enumerate(memberships)]
    need = Counter(rank for g in groups for rank in g.members for _ in range(ports_needed(g)))
    if max(need.values(), default=0) > ports:
        with pytest.raises(ConfigError, match=r"needs \d"):
            split_ports(rail_plan(chips, ports=ports), groups)
        return
    split = split_ports(rail_plan(chips, ports=ports), groups)
    given_out = Counter(
        (rank, lane)
        for g in groups
        if len(g.members) > 1
        for rank, lanes in zip(g.members, split[g.name], strict=True)
        for lane in lanes
    )
    assert all(times == 1 and lane < ports for (_, lane), times in given_out.items())
    for g in groups:
        if len(g.members) > 1:
            sizes = {len(lanes) for lanes in split[g.name]}
            assert len(sizes) == 1 and min(sizes) >= ports_needed(g)
