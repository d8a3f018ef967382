from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from railyard.protocol import Hop, SlotWindow
from workloads.program import Group
from workloads.rank.paths import Paths, choose_path, keys_at, paths_by_rank, slot_window_in, wired_paths


@given(st.integers(2, 9))
def test_a_ring_uses_each_port_once_and_different_ones_for_the_two_directions(n: int) -> None:
    paths = wired_paths(Group("dp", "dp", tuple(range(n))))
    ends = [(p[0], p[1]) for p in paths] + [(p[2], p[3]) for p in paths]
    assert len(set(ends)) == len(ends) == 2 * n
    for i in range(n):
        after = (i + 1) % n
        clockwise = choose_path(paths, i, after, 0)
        counter = choose_path(paths, after, i, 1)
        assert clockwise == Hop(i, 1, after, 0)
        assert counter == Hop(after, 0, i, 1)


def test_a_pipeline_pair_has_one_path_for_both_directions_and_lanes() -> None:
    paths = wired_paths(Group("pp", "pp", (4, 8)))
    assert paths == (Hop(4, 1, 8, 0),)
    assert choose_path(paths, 4, 8, 0) == choose_path(paths, 4, 8, 1) == Hop(4, 1, 8, 0)
    assert choose_path(paths, 8, 4, 0) == Hop(8, 0, 4, 1)


def test_beside_the_rails_every_pair_shares_a_switch_unless_it_is_given_paths() -> None:
    group, paths = Group("tp", "tp", (0, 1, 2), domain="scale-up"), Paths(2, forwarding=True)
    assert paths.place(group, 2, 0, 1, incoming=False) is None
    paths.set_wired(group)
    assert paths.place(group, 2, 0, 1, incoming=False) == paths.place(group, 0, 2, 0, incoming=True) == (0, 0)
    paths.set("tp", (Hop(0, 1, 2, 3),))
    assert paths.place(group, 2, 0, 1, incoming=False) == (3, 1)


def test_without_a_path_only_a_packet_switch_carries_it() -> None:
    assert choose_path((), 0, 3, 0) is None
    assert choose_path((), 0, 3, 0, forwarded=True) == Hop(0, 1, 3, 0)
    assert choose_path((), 3, 0, 1, forwarded=True) == Hop(3, 0, 0, 1)


def rack_paths(members: tuple[int, ...], ports: int) -> tuple[Hop, ...]:
    """The circuits of a photonic rack: all ports of a chip are steered to its neighbours on the ring."""
    hops = list(zip(members, members[1:] + members[:1], strict=True))
    paths = [Hop(a, 2 * k + 1, b, 2 * k) for a, b in hops for k in range(ports // 2)]
    if len(members) == 2 and ports % 2:
        paths.append(Hop(members[0], ports - 1, members[1], ports - 1))
    return tuple(paths)


@given(st.integers(2, 9), st.integers(2, 7), st.randoms(use_true_random=False))
def test_every_lane_has_a_port_of_its_own_and_both_ends_agree(n: int, ports: int, rng: random.Random) -> None:
    members = tuple(rng.sample(range(20), n))
    paths = list(rack_paths(members, ports))
    lanes = ports if n == 2 else 2 * (ports // 2)
    rng.shuffle(paths)
    sends: set[tuple[int, int]] = set()
    arrives: set[tuple[int, int]] = set()
    for lane in range(lanes):
        slot_window = -1 if lane % 2 else 1
        for i, rank in enumerate(members):
            peer = members[(i + slot_window) % n]
            path = choose_path(paths, rank, peer, lane)
            assert path is not None and (path[0], path[2]) == (rank, peer)
            reverse = path[2:] + path[:2]
            assert path in paths or reverse in paths
            sends.add((rank, path[1]))
            arrives.add((peer, path[3]))
    assert len(sends) == len(arrives) == n * lanes, "no port carries two lanes one way"


def test_more_lanes_than_circuits_begin_again() -> None:
    paths = rack_paths((0, 1, 2), 4)
    assert [choose_path(paths, 0, 1, lane) for lane in (0, 2, 4)] == [Hop(0, 3, 1, 2), Hop(0, 1, 1, 0), Hop(0, 3, 1, 2)]
    assert [choose_path(paths, 1, 0, lane) for lane in (1, 3, 5)] == [Hop(1, 0, 0, 1), Hop(1, 2, 0, 3), Hop(1, 0, 0, 1)]


@given(st.integers(2, 9), st.integers(0, 11), st.integers(1, 7), st.data())
def test_a_packet_switch_spreads_the_lanes_over_the_ports(n: int, lane: int, ports: int, data: st.DataObject) -> None:
    src, dst = data.draw(st.permutations(range(n)))[:2]
    path = choose_path((), src, dst, lane, forwarded=True, ports_per_gpu=ports)
    assert path is not None and max(path[1], path[3]) < ports
    pair = lane // 2 % max(1, ports // 2)
    out, into = (2 * pair, 2 * pair + 1) if lane % 2 else (2 * pair + 1, 2 * pair)
    assert path == (Hop(src, 0, dst, 0) if ports == 1 else Hop(src, out, dst, into))


@given(st.integers(2, 9), st.integers(0, 11), st.data())
def test_with_one_port_every_lane_takes_it(n: int, lane: int, data: st.DataObject) -> None:
    paths = wired_paths(Group("dp", "dp", tuple(range(n))), ports_per_gpu=1)
    src, dst = data.draw(st.permutations(range(n)))[:2]
    assert choose_path(paths, src, dst, lane, forwarded=True, ports_per_gpu=1) == Hop(src, 0, dst, 0)


def test_an_answer_may_tell_a_slot() -> None:
    assert slot_window_in({"paths": []}) is None
    assert slot_window_in({"slot_window": [3, 10.5, 11.0, 0.002]}) == SlotWindow(3, 10.5, 11.0, 0.002)
    assert slot_window_in({"slot_window": [0, 10.5, None, 0.0]}) == SlotWindow(0, 10.5)


def test_an_answer_tells_paths_as_numbers() -> None:
    there, back = Hop(0, 1, 2, 0), Hop(2, 1, 0, 0)
    assert paths_by_rank([there, back, Hop(3, 0, 3, 1)]) == {0: [there, back], 2: [there, back], 3: [Hop(3, 0, 3, 1)]}


def test_connections_are_called_from_the_side_of_the_rank() -> None:
    paths = (Hop(0, 1, 2, 0), Hop(3, 1, 0, 0), Hop(2, 1, 3, 0))
    assert keys_at(0, paths) == [("scale-out", 1, 2, 0), ("scale-out", 0, 3, 1)]
    assert keys_at(3, paths) == [("scale-out", 1, 0, 0), ("scale-out", 0, 2, 1)]
    assert keys_at(1, paths) == []
