"""MORPHLUX's policy and the fibres between servers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rack_plans import electrical_plan, photonic_plan

from controllers.circuits import Matching
from controllers.fibres import FibrePlant, fibres_used, server_pair
from controllers.lumion import LumionPolicy
from controllers.morphlux import MorphluxPolicy
from railyard.errors import CircuitError, ConfigError
from topos.plan import RackPlan
from topos.torus import Torus
from workloads.program import Group

CUBE = Torus((4, 4, 4), (2, 2, 1))
PROTOTYPE = Torus((2, 2, 1), (1, 1, 1))


def rack_of(torus: Torus) -> RackPlan:
    return RackPlan(torus.shape, torus.server, 1, ())


def test_adjacent_servers_have_as_many_fibres_as_links_of_the_torus() -> None:
    """The rack of arXiv 2508.03674: 4 x 4 x 4 chips, servers of 2 x 2 x 1, 4 fibres between adjacent servers."""
    links = Counter(
        server_pair(CUBE.server_of(a), CUBE.server_of(b))
        for a, _, b, _ in CUBE.links()
        if CUBE.server_of(a) != CUBE.server_of(b)
    )
    plant = FibrePlant(rack_of(CUBE), CUBE.chips)
    assert set(links.values()) == {4} and len(links) == 32
    assert {(a, b) for a in range(16) for b in plant.neighbours(a) if a < b} == set(links)


def test_circuits_inside_a_server_take_no_fibre_and_others_one_per_hop() -> None:
    plant = FibrePlant(rack_of(CUBE), CUBE.chips)
    routes = plant.routed({"inside": (0, 3), "beside": (0, 4), "across": (0, 12)})
    assert routes["inside"] == (0,) and routes["beside"] == (0, 1)
    assert len(routes["across"]) == 3 and fibres_used([routes["inside"]]) == {}


def test_a_fifth_circuit_between_two_servers_goes_round() -> None:
    plant = FibrePlant(rack_of(CUBE), CUBE.chips)
    routes = plant.routed(dict.fromkeys(range(5), (0, 4)))
    assert [len(routes[k]) - 1 for k in range(5)] == [1, 1, 1, 1, 3]


def test_a_pair_of_servers_without_a_free_fibre_is_named() -> None:
    two = Torus((2, 1, 1), (1, 1, 1))
    with pytest.raises(
        CircuitError, match=r"no fibre between server 0 and server 1 is free \(of 4\), .* chip 0 to chip 1"
    ):
        FibrePlant(rack_of(two), 2).routed(dict.fromkeys(range(5), (0, 1)))
    with pytest.raises(CircuitError, match="no fibres lead from server 0 to server 2"):
        FibrePlant(rack_of(two), 3, spare_neighbours=0).routed({"c": (0, 2)})


@pytest.mark.parametrize(("reach", "beside"), [(None, 16), (1, 1), (4, 4), (99, 16)])
def test_how_many_servers_a_spare_server_is_adjacent_to(reach: int | None, beside: int) -> None:
    plant = FibrePlant(rack_of(CUBE), 68, spare_neighbours=reach)
    assert len(plant.neighbours(16)) == beside


def test_no_circuit_passes_through_a_spare_server() -> None:
    line = Torus((8, 1, 1), (1, 1, 1))
    routes = FibrePlant(rack_of(line), 9).routed({"far": (0, 4), "spare": (8, 4)})
    assert len(routes["far"]) == 5 and 8 not in routes["far"]
    assert routes["spare"] == (8, 4)


@given(st.lists(st.tuples(st.integers(0, 67), st.integers(0, 67)), max_size=60), st.integers(0, 40))
def test_routes_join_their_servers_within_the_fibres(pairs: list[tuple[int, int]], cut: int) -> None:
    plant = FibrePlant(rack_of(CUBE), 68)
    circuits = dict(enumerate(pairs))
    try:
        kept = plant.routed({k: v for k, v in circuits.items() if k < cut})
        routes = plant.routed({k: v for k, v in circuits.items() if k >= cut}, kept)
    except CircuitError as error:
        assert "is free (of 4)" in str(error)
        return
    assert routes.keys() == circuits.keys() and all(routes[k] == kept[k] for k in kept)
    assert all(taken <= 4 for taken in fibres_used(routes.values()).values())
    for key, (a, b) in circuits.items():
        route = routes[key]
        assert (route[0], route[-1]) == (plant.server_of(a), plant.server_of(b))
        assert all(there in plant.neighbours(here) for here, there in pairwise(route))
        assert len(set(route)) == len(route)


# ---- the policy -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [(0, 1), (0, 2), (0, 3)])
def test_the_prototype_steers_both_ports_to_the_peer(members: tuple[int, int]) -> None:
    """Testbed of arXiv 2508.03674: slices 2x1x1, 1x2x1 and a fragmented one, all with twice the bandwidth."""
    policy, pair = MorphluxPolicy(photonic_plan(PROTOTYPE, spare_servers=0)), Group("a", "dp", members)
    assert len(policy.paths(pair, policy.start([pair]))) == 2
    assert {len(route) - 1 for route in policy.routes.values()} == {2 if members == (0, 3) else 1}


def test_circuits_are_those_of_lumion_as_long_as_the_fibres_suffice() -> None:
    plan, ring = photonic_plan(CUBE), Group("a", "dp", tuple(range(16)))
    assert MorphluxPolicy(plan).start([ring]) == LumionPolicy(plan).start([ring])


def test_too_many_circuits_name_the_pair_of_servers() -> None:
    class OneFibre(MorphluxPolicy):
        fibres = 1

    policy = OneFibre(photonic_plan(Torus((2, 2, 1), (1, 2, 1)), 0))
    assert len(policy.start([Group("inside", "dp", (0, 1))])["rack0"]) == 2
    with pytest.raises(ConfigError, match=r"no fibre between server 0 and server 1 is free \(of 1\)"):
        policy.start([Group("across", "dp", (0, 2))])
    assert {len(route) for route in policy.routes.values()} == {1}


def test_a_policy_keeps_free_what_other_tenants_use() -> None:
    two = Torus((4, 2, 1), (2, 2, 1))
    ring = Group("a", "dp", (0, 4))
    alone = MorphluxPolicy(photonic_plan(two, 0, {"A": (0, 4)}))
    assert len(alone.start([ring])["rack0"]) == 3
    crowded = MorphluxPolicy(photonic_plan(two, 0, {"A": (0, 4), "B": (1, 5)}))
    with pytest.raises(ConfigError, match="no fibre between server 0 and server 1 is free"):
        crowded.start([ring])


@pytest.mark.parametrize(("inside", "fits"), [(True, True), (False, False)])
def test_a_full_rack_fits_where_rings_go_server_by_server(inside: bool, fits: bool) -> None:
    """Four slices of 4 x 4 x 1, every chip with 3 circuits per hop: 16 hops between servers, so 48 of 128 fibres."""
    order = (
        [(s, c) for s in (0, 1, 3, 2) for c in (0, 1, 3, 2)] if inside else [(s, c) for c in range(4) for s in range(4)]
    )
    slices = {f"T{z}": [(4 * z + s) * 4 + c for s, c in order] for z in range(4)}
    policy, ring = MorphluxPolicy(photonic_plan(CUBE, 1, slices)), Group("a", "dp", tuple(slices["T2"]))
    if fits:
        assert len(policy.start([ring])["rack0"]) == 48
        used = fibres_used(policy.routes.values())
        assert sum(used.values()) == 48 and max(used.values()) == 3
    else:
        with pytest.raises(ConfigError, match=r"no fibre between .* a ring that goes through all chips of a server"):
            policy.start([ring])


def test_the_nearest_spare_that_fits_is_chosen_and_standing_circuits_keep_their_fibres() -> None:
    plan = photonic_plan(CUBE, spare_servers=0)
    ring = Group("a", "dp", (0, 1, 3, 2))
    policy = MorphluxPolicy(plan)
    policy.start([ring])
    before = policy.routes
    assert policy.replace([ring], 3, (63, 12, 4)) == {3: 4}
    policy.start([Group("a", "dp", (0, 1, 4, 2))])
    same = {light for light in before if light in policy.routes}
    assert len(same) == 6 and all(policy.routes[light] == before[light] for light in same)
    assert sorted(len(route) - 1 for route in policy.routes.values()) == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 3, 3]


def test_fibres_that_a_dead_chip_frees_do_not_move_other_circuits() -> None:
    first, second = Group("p", "dp", (0, 4)), Group("q", "dp", (1, 5))
    policy = MorphluxPolicy(photonic_plan(CUBE))
    policy.start([first, second])
    before = {light: route for light, route in policy.routes.items() if len(route) > 2}
    assert len(before) == 8
    policy.start([replace(first, members=(0, 2)), second])
    stay = {light: route for light, route in policy.routes.items() if light in before}
    assert len(stay) == 6 and all(before[light] == route for light, route in stay.items())


def test_nobody_stands_in_where_no_spare_fits_the_fibres() -> None:
    class OneWay(MorphluxPolicy):
        fibres = 5
        spare_neighbours = 1

    plan = photonic_plan(CUBE, spare_servers=1)
    ring = Group("a", "dp", (0, 1, 3, 2))
    policy = OneWay(plan)
    policy.start([ring])
    assert policy.replace([ring], 3, (64, 65)) == {}
    OneWay.fibres = 6
    assert policy.replace([ring], 3, (64, 65)) == {3: 64}


def test_a_splice_to_the_spare_server_takes_its_own_fibres() -> None:
    plan = photonic_plan(CUBE, spare_servers=1, tenants={"A": tuple(range(8)), "B": tuple(range(8, 16))})
    rings = {t.name: Group(t.name, "dp", t.ranks) for t in plan.rack.tenants} if plan.rack else {}
    policies = {name: MorphluxPolicy(plan) for name in rings}
    wiring = {name: policies[name].start([ring]) for name, ring in rings.items()}
    assert policies["A"].routes == policies["B"].routes
    assert policies["A"].replace([rings["A"]], 5, plan.rack.spares if plan.rack else ()) == {5: 64}
    after = policies["A"].start([replace(rings["A"], members=(0, 1, 2, 3, 4, 64, 6, 7))])
    ends = {p.number: p.rank for p in plan.switches[0].ports}
    new = Matching(c for c in after["rack0"] if c not in wiring["A"]["rack0"])
    assert {ends[p] for p in new.ports} == {64, 4, 6} and len(new) == 6
    Matching([*after["rack0"], *wiring["B"]["rack0"]])
    assert max(fibres_used(policies["A"].routes.values()).values()) <= 4


def test_it_needs_an_optical_rack() -> None:
    with pytest.raises(ConfigError, match="needs a rack of kind ocs"):
        MorphluxPolicy(electrical_plan(CUBE)).start([Group("a", "dp", (0, 1))])
    plan = replace(photonic_plan(CUBE), rack=None)
    with pytest.raises(ConfigError, match="needs a rack of accelerators on a torus; fabric photonic is none"):
        MorphluxPolicy(plan).start([Group("a", "dp", (0, 1))])
