from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workloads.paths import choose_path, wired_paths
from workloads.program import Group


@given(st.integers(2, 9))
def test_a_ring_uses_each_port_once_and_different_ones_for_the_two_directions(n: int) -> None:
    paths = wired_paths(Group("dp", "dp", tuple(range(n))))
    ends = [(p[0], p[1]) for p in paths] + [(p[2], p[3]) for p in paths]
    assert len(set(ends)) == len(ends) == 2 * n
    for i in range(n):
        after = (i + 1) % n
        clockwise = choose_path(paths, i, after, 0)
        counter = choose_path(paths, after, i, 1)
        assert clockwise == (i, 1, after, 0)
        assert counter == (after, 0, i, 1)


def test_a_pipeline_pair_has_one_path_for_both_directions_and_lanes() -> None:
    paths = wired_paths(Group("pp", "pp", (4, 8)))
    assert paths == ((4, 1, 8, 0),)
    assert choose_path(paths, 4, 8, 0) == choose_path(paths, 4, 8, 1) == (4, 1, 8, 0)
    assert choose_path(paths, 8, 4, 0) == (8, 0, 4, 1)


def test_inside_a_server_every_pair_has_a_path() -> None:
    paths = wired_paths(Group("tp", "tp", (0, 1, 2), domain="scale-up"))
    assert choose_path(paths, 2, 0, 0) == (2, 0, 0, 0)
    assert wired_paths(Group("tp", "tp", (0,), domain="scale-up")) == ()


def test_without_a_path_only_a_packet_switch_carries_it() -> None:
    assert choose_path((), 0, 3, 0) is None
    assert choose_path((), 0, 3, 0, forwarded=True) == (0, 1, 3, 0)
    assert choose_path((), 3, 0, 1, forwarded=True) == (3, 0, 0, 1)


def test_with_one_port_everything_leaves_by_lane_0() -> None:
    paths = wired_paths(Group("dp", "dp", (0, 1, 2)), ports_per_gpu=1)
    assert choose_path(paths, 2, 0, 0) == (2, 0, 0, 0)


@given(st.integers(2, 9), st.integers(0, 1), st.data())
def test_with_one_port_any_pair_of_ranks_is_reached_by_lane_0(n: int, lane: int, data: st.DataObject) -> None:
    paths = wired_paths(Group("dp", "dp", tuple(range(n))), ports_per_gpu=1)
    src, dst = data.draw(st.permutations(range(n)))[:2]
    assert choose_path(paths, src, dst, lane, forwarded=True, ports_per_gpu=1) == (src, 0, dst, 0)
