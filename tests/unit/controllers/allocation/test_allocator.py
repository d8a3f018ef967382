from __future__ import annotations

import time
from collections import Counter
from functools import partial
from itertools import combinations, pairwise

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.allocation.allocator import Allocation, Allocator, Refusal
from controllers.allocation.boxes import boxes, chips_of, largest_box, mask_of, shapes
from controllers.allocation.placement import (
    SliceLayout,
    SlicePlacement,
    SlotEdge,
    check_fibres,
    fibres_of,
    import_solver,
    place,
    placement,
)
from controllers.circuits.fibres import FibrePlant, edges_of
from railyard.errors import CircuitError, ConfigError
from topos.torus import Extents, Torus

RACK = Torus((4, 4, 4), (2, 2, 1))
SMALL = Torus((2, 2, 1), (1, 1, 1))
unhurried = partial(Allocator, limit_s=10.0)
"""Allocators whose answers do not depend on how busy the machine is."""


def rented(found: Allocation | Refusal) -> Allocation:
    assert isinstance(found, Allocation), found
    return found


def refused(found: Allocation | Refusal) -> str:
    assert isinstance(found, Refusal), found
    return found.reason


def servers_free(rack: Allocator, servers: set[int]) -> Allocator:
    """A rack in which only ``servers`` are free; every other server is a slice of its own."""
    for server in range(rack.torus.servers):
        chips = range(4 * server, 4 * server + 4)
        if server not in servers:
            mask = mask_of(chips)
            rack.free &= ~mask
            rack.allocations[f"s{server}"] = Allocation(f"s{server}", tuple(chips), "contiguous", {})
    return rack


def is_block(chips: tuple[int, ...], extents: Extents) -> bool:
    """Whether the chips fill a block of the torus, seen from their places alone."""
    for corner in (RACK.places[chip] for chip in chips):
        places = {tuple((p - o) % 4 for p, o in zip(RACK.places[c], corner, strict=True)) for c in chips}
        if places == {(x, y, z) for x in range(extents[0]) for y in range(extents[1]) for z in range(extents[2])}:
            return True
    return False


def test_whole_servers_have_the_topologies_of_a_tpu_rack() -> None:
    assert {tuple(sorted(e)) for e in shapes(RACK, 4)} == {(1, 2, 2)}
    assert {tuple(sorted(e)) for e in shapes(RACK, 16)} == {(1, 4, 4), (2, 2, 4)}
    assert shapes(RACK, 16)[0] == (4, 4, 1)  # closes two rings
    assert (1, 4, 1) in shapes(RACK, 4, whole_servers=False)


def test_a_slice_may_lie_across_the_edge_of_the_rack_unless_told_otherwise() -> None:
    free = mask_of(RACK.chip((x, y, z)) for x in (0, 1) for y in (0, 1) for z in (3, 4))
    assert largest_box(RACK, free) == 8
    assert largest_box(RACK, free, wrap=False) == 4
    assert len(boxes(RACK, 32)) == 4 + 2 + 2  # 4x4x2 at four heights, 4x2x4 and 2x4x4 at two places each


def test_a_full_rack_refuses_and_releasing_restores_it() -> None:
    rack = unhurried(RACK, photonic=True)
    before = rack.copy()
    rented(rack.allocate(64, "all"))
    assert refused(rack.allocate(1, "more")) == "chips"
    rack.release("all")
    assert (rack.free, rack.used, rack.allocations) == (before.free, before.used, before.allocations)


def test_a_block_by_its_extents_is_turned_as_it_must() -> None:
    rack = unhurried(RACK, photonic=False, fibres=2)  # which are too few only for those that carry light
    rented(rack.allocate((1, 4, 4), "plane"))
    found = rented(rack.allocate((1, 1, 4), "column"))  # not made of whole servers, so it may lie anywhere
    assert found.slice is not None
    assert sorted(found.slice.extents) == [1, 1, 4]
    assert refused(rack.find((4, 4, 4))) == "chips"


def test_circuits_of_others_keep_a_block_from_being_contiguous() -> None:
    rack = unhurried(RACK, photonic=True)
    rack.used[0, 1] = 1  # somebody's light passes between servers 0 and 1
    found = rented(rack.allocate(64, "all"))
    assert found.kind == "fragmented"  # the block of the whole rack would need all four fibres there
    with pytest.raises(CircuitError, match="servers 0 and 1 have 4 fibres for 5 circuits"):
        check_fibres(rack.plant, {(0, 1): 5}, 4)


def test_scattered_servers_make_a_slice_only_with_the_photonic_fabric() -> None:
    scattered = {0, 3, 5, 6, 8, 11, 13, 14}  # no two of them adjacent
    assert refused(servers_free(unhurried(RACK, photonic=False), scattered).find(32)) == "shape"
    rack = servers_free(unhurried(RACK, photonic=True), scattered)
    assert rack.copy(photonic=False).fragmentation() == pytest.approx(1 - 4 / 32)
    assert rack.fragmentation() == 0
    found = rented(rack.allocate(32, "big"))
    assert found.kind == "fragmented"
    assert {chip // 4 for chip in found.chips} == scattered
    assert found.z == max(rack.used.values()) <= 4
    assert joined(found)


def joined(found: Allocation) -> bool:
    """Whether the paths connect all servers of the slice."""
    reached, edges = {found.chips[0] // 4}, [(path[0], path[-1]) for path, _ in found.paths]
    for _ in found.chips:
        reached |= {v for e in edges for v in e if reached & set(e)}
    return reached >= {chip // 4 for chip in found.chips}


def test_what_is_no_multiple_of_a_server_takes_single_chips() -> None:
    rack = unhurried(RACK, photonic=True)
    keep = {3, 17, 42, 63, 30}
    rack.reserve(chip for chip in range(64) if chip not in keep)
    found = rented(rack.allocate(5, "five"))
    assert set(found.chips) == keep
    assert all(1 <= circuits <= 3 for _, circuits in found.paths)  # a chip has 6 ports and two neighbours


def test_the_same_question_has_the_same_answer() -> None:
    def answer() -> Allocation:
        return rented(servers_free(unhurried(RACK, photonic=True), {0, 2, 5, 7, 8, 11, 13, 14}).find(32, "x"))

    first, second = answer(), answer()
    assert (first.chips, first.paths) == (second.chips, second.paths)


def test_no_fibres_left_is_said_and_not_waited_for() -> None:
    rack = servers_free(unhurried(RACK, photonic=True), {0, 15})
    rack.used = Counter({e: 4 for e in rack.plant.links if 0 in e})  # server 0 is cut off
    assert refused(rack.find(8)) == "fibres"
    assert rack.largest() == 4


@pytest.mark.parametrize("torus", [SMALL, RACK])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_is_rented_and_released_the_books_are_right(torus: Torus, data: st.DataObject) -> None:
    rack = unhurried(torus, photonic=data.draw(st.booleans()), wrap=data.draw(st.booleans()))
    for number in range(data.draw(st.integers(1, 12))):
        back = data.draw(st.booleans())
        if rack.allocations and back:
            gone = rack.release(data.draw(st.sampled_from(sorted(rack.allocations))))
            assert rack.free & gone.mask == gone.mask
        else:
            wanted = data.draw(st.integers(1, torus.chips))
            found = rack.allocate(wanted, f"slice{number}")
            if isinstance(found, Allocation):
                assert len(set(found.chips)) == wanted
                if found.kind == "contiguous" and torus is RACK:
                    assert found.slice is not None
                    assert is_block(found.chips, found.slice.extents)
        chips = [chip for allocation in rack.allocations.values() for chip in allocation.chips]
        assert len(chips) == len(set(chips))
        assert set(chips_of(rack.free)) == set(range(torus.chips)) - set(chips)
        total = sum((Counter(a.fibres) for a in rack.allocations.values()), Counter())
        assert total == rack.used
        assert not rack.photonic or max(total.values(), default=0) <= 4
    for fabric in (False, True):
        assert 0 <= rack.copy(photonic=fabric).fragmentation() <= 1
    for name in list(rack.allocations):
        rack.release(name)
    assert rack.free == (1 << torus.chips) - 1
    assert not rack.used


def test_the_five_best_paths_leave_full_edges_out() -> None:
    plant = FibrePlant.of(RACK)
    assert plant.shortest(15, 0) == tuple(path[::-1] for path in plant.shortest(0, 15))
    direct = plant.candidates(0, 1, {}, 0)
    assert direct[0] == (0, 1)
    assert len(direct) == 5
    around = plant.candidates(0, 1, {(0, 1): 4}, 0)
    assert all((0, 1) not in edges_of(path) for path in around)


@pytest.mark.parametrize("torus", [RACK, Torus((4, 4, 2), (2, 2, 1)), Torus((3, 3, 1), (1, 1, 1))])
def test_the_shortest_routes_are_the_first_of_all_simple_ones(torus: Torus) -> None:
    plant = FibrePlant.of(torus)
    for a, b in combinations(range(torus.servers), 2):
        every = map(tuple, networkx.all_simple_paths(plant.graph, a, b, cutoff=7))
        assert plant.shortest(a, b) == tuple(sorted(every, key=lambda route: (len(route), route))[:50])
        assert torus is not RACK or len(plant.shortest(a, b)) == 50


def test_paths_of_a_slice_do_not_share_a_full_edge() -> None:
    plant, ends = FibrePlant.of(RACK), (0, 3, 12, 15)
    edges = (SlotEdge(0, 1, 4), SlotEdge(1, 2, 4), SlotEdge(2, 3, 4), SlotEdge(0, 3, 4))
    found = place(plant, SliceLayout(tuple((server,) for server in ends), edges), {}, fibres=4)
    assert isinstance(found, SlicePlacement)
    assert found.servers == ends
    assert found.z == 4
    assert max(fibres_of(edges, found.routes).values()) == 4


def test_what_cannot_be_placed_is_proved() -> None:
    plant = FibrePlant.of(RACK)
    star = tuple(SlotEdge(0, other, 4) for other in range(1, 6))  # a server has four neighbours, and five are asked for
    found = place(plant, SliceLayout(((0,), (3,), (6,), (9,), (12,), (15,)), star), {}, fibres=4, limit_s=5)
    assert found == "impossible"
    thinner = tuple(SlotEdge(0, other, 3) for other in range(1, 5))
    assert isinstance(place(plant, SliceLayout(((0,), (3,), (6,), (9,), (12,)), thinner), {}, fibres=4), SlicePlacement)


def test_the_bound_in_time_is_an_outcome() -> None:
    everywhere = tuple(tuple(range(16)) for _ in range(12))
    every = tuple(SlotEdge(a, b, 4) for a in range(12) for b in range(a))
    import_solver()
    began = time.monotonic()
    found = place(FibrePlant.of(RACK), SliceLayout(everywhere, every), {}, fibres=4, limit_s=0.05)
    assert found == "time"
    assert time.monotonic() - began < 1


def test_seats_are_near_each_other_and_never_shared() -> None:
    ring = tuple(SlotEdge(a, (a + 1) % 4, 4) for a in range(4))
    plant = FibrePlant.of(RACK)
    found = list(placement(plant, SliceLayout((tuple(range(16)),) * 4, ring), {}, 4, 8, 1))
    assert all(len(set(servers)) == 4 for servers in found)
    near = [all(s[b] in plant.graph[s[a]] for a, b in pairwise((0, 1, 2, 3, 0))) for s in found]
    assert sum(near) >= len(near) / 2
    assert not list(placement(plant, SliceLayout(((1,), (1,)), ()), {}, 4, 8, 1))


def test_bad_requests_are_named() -> None:
    rack = unhurried(RACK, photonic=True)
    rented(rack.allocate(4, "a"))
    with pytest.raises(ConfigError, match="a already has a slice"):
        rack.allocate(4, "a")
    with pytest.raises(ConfigError, match="b has no slice in this rack; names with one: a"):
        rack.release("b")
    with pytest.raises(ConfigError, match="reserve: chip 0 is not free"):
        rack.reserve([0])
