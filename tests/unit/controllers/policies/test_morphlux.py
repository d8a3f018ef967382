"""MORPHLUX's policy and the fibres between servers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rack_plans import photonic_plan
from rack_player import RackPlayer, rack, rented

from controllers.circuits.circuits import Matching
from controllers.circuits.fibres import FibrePlant, fibres_used, server_pair
from controllers.policies.lumion import LumionPolicy
from controllers.policies.morphlux import MorphluxPolicy
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
        for a, _, b, _ in CUBE.links
        if CUBE.server_of(a) != CUBE.server_of(b)
    )
    plant = FibrePlant(rack_of(CUBE), CUBE.chips)
    assert set(links.values()) == {4} and len(links) == 32
    assert {(a, b) for a in range(16) for b in plant.graph[a] if a < b} == set(links)


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
    assert len(plant.graph[16]) == beside


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
        assert (route[0], route[-1]) == (plant.torus.server_of(a), plant.torus.server_of(b))
        assert all(there in plant.graph[here] for here, there in pairwise(route))
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


class OneFibre(MorphluxPolicy):
    fibres = 1


def test_where_not_even_one_circuit_per_hop_fits_the_pair_of_servers_is_named() -> None:
    policy = OneFibre(photonic_plan(Torus((2, 2, 1), (1, 2, 1)), 0))
    assert len(policy.start([Group("inside", "dp", (0, 1))])["rack0"]) == 2
    with pytest.raises(ConfigError, match=r"group across .* no fibre between server 1 and server 0 is free \(of 1\)"):
        policy.start([Group("across", "dp", (0, 1, 2, 3))])
    assert {len(route) for route in policy.routes.values()} == {1} and policy.circuits_per_hop == {"inside": 2}


def test_with_too_few_fibres_there_are_fewer_circuits_on_every_hop() -> None:
    class Fewer(MorphluxPolicy):
        fibres = 2

    policy = Fewer(photonic_plan(Torus((4, 2, 2), (2, 2, 2)), 0))  # 4 ports a chip: 2 circuits per hop of a ring
    ring = Group("a", "dp", (0, 1, 5, 4, 8, 9, 13, 12))
    wiring = policy.start([ring])
    assert policy.circuits_per_hop == {"a": 1}
    hops = Counter(frozenset({a, b}) for a, _, b, _ in policy.paths(ring, wiring))
    assert len(hops) == 8 and set(hops.values()) == {1}
    assert len(wiring["rack0"]) == len(policy.own_routes) == 8


def test_a_policy_keeps_free_what_other_tenants_use_and_they_share_alike() -> None:
    two = Torus((4, 2, 1), (2, 2, 1))
    rings = [Group("a", "dp", (0, 4)), Group("b", "dp", (1, 5))]
    alone = MorphluxPolicy(photonic_plan(two, 0, {"A": (0, 4)}))
    assert len(alone.start([rings[0]])["rack0"]) == 3
    crowded = photonic_plan(two, 0, {"A": (0, 4), "B": (1, 5)})
    policies = [MorphluxPolicy(crowded) for _ in rings]
    assert [len(policy.start([ring])["rack0"]) for policy, ring in zip(policies, rings, strict=True)] == [2, 2]


def tenants_of(extents: tuple[int, int, int]) -> str:
    """The whole rack of 4 x 4 x 4 in slices of ``extents``."""
    size = "x".join(map(str, extents))
    corners = product(*[range(0, 4, extent) for extent in extents])
    return "/".join(f"{size}@{x},{y},{z}" for x, y, z in corners)


@pytest.mark.parametrize(
    ("extents", "each"),
    [
        ((4, 4, 1), 3),
        ((4, 4, 2), 3),
        ((4, 4, 4), 3),
        ((2, 2, 4), 3),
        ((2, 2, 1), 3),
        # 32 fibres lead from layers z = 0 and 3 to layers 1 and 2; each of 8 rings takes two or more per circuit
        ((2, 2, 2), 2),
        # the same of the halves in x, of which every ring has chips in both: 8 rings, and 16
        ((4, 2, 1), 2),
        ((4, 1, 1), 1),
    ],
)
def test_full_racks(extents: tuple[int, int, int], each: int) -> None:
    """Rack of arXiv 2508.03674, 6 ports a chip: up to 3 circuits per hop, and where not, as many as cuts allow."""
    plan = rack(torus="4x4x4", server="2x2x1", tenants=tenants_of(extents))
    assert plan.rack is not None
    here = RackPlayer.on(plan, MorphluxPolicy, *(rented(plan, tenant.name) for tenant in plan.rack.tenants))
    for name in here.engine.jobs:
        policy = here.engine.registry.job(name).policy
        assert isinstance(policy, MorphluxPolicy) and policy.circuits_per_hop == {name: each}
    assert max(fibres_taken(here).values(), default=0) <= 4
    light = Counter(frozenset({a, b}) for (a, _), (b, _) in here.goes().items())
    assert set(light.values()) == {2 * each}, "each circuit counts from both ends"


class FarSpares(MorphluxPolicy):
    """Circuits to a spare server lead through others."""

    spare_neighbours = 1


def fibres_taken(here: RackPlayer) -> Counter[tuple[int, int]]:
    """The fibres of each job's circuits, those that stand or those that are meant to, whichever are more.

    Counted apart from the policies: of what a way is only the servers are believed, not that it leads where it should.
    """
    plan = here.engine.plan
    assert plan.rack is not None
    plant = FibrePlant(plan.rack, plan.ranks, spare_neighbours=FarSpares.spare_neighbours)
    rank = {p.number: p.rank for p in plan.rail_of(0).ports}
    taken: Counter[tuple[int, int]] = Counter()
    for name in here.engine.jobs:
        membership = here.engine.registry.job(name)
        assert isinstance(membership.policy, MorphluxPolicy)
        lit = here.engine.optical.target()["rack0"]
        stand = {("rack0", c) for c in lit if membership.ever.issuperset({rank[c.a], rank[c.b]})}
        used: list[Counter[tuple[int, int]]] = []
        for lights in (stand, membership.policy.own_routes.keys()):
            ways = {light: membership.policy.route_of(light) for light in lights}
            for (_, circuit), way in ways.items():
                assert way is not None, f"circuit {circuit} of {name} has no way"
                assert {way[0], way[-1]} == {
                    plant.torus.server_of(rank[circuit.a]),
                    plant.torus.server_of(rank[circuit.b]),
                }
                assert all(there in plant.graph[at] for at, there in pairwise(way))
            used.append(fibres_used(way for way in ways.values() if way is not None))
        taken += used[0] | used[1]
    return taken


CROWDED = [
    rack(torus="4x4", server="2x2", spare_servers=2, tenants=tenants)
    for tenants in (
        "4x1@0,0/4x1@0,1/4x1@0,2/4x1@0,3",
        "4x4@0,0",
        "2x2@0,0/2x2@2,0/4x2@0,2",
        "1x4@0,0/1x4@1,0/2x4@2,0",
        "3x3@0,0/1x4@3,0/2x1@0,3",
    )
] + [rack(torus="4x4x4", server="2x2x1", tenants=tenants_of(extents)) for extents in ((2, 2, 2), (4, 2, 1))]


@given(st.data())
def test_no_tenants_and_no_deaths_take_more_fibres_than_there_are(data: st.DataObject) -> None:
    plan = data.draw(st.sampled_from(CROWDED))
    assert plan.rack is not None
    waiting = list(data.draw(st.permutations([tenant.name for tenant in plan.rack.tenants])))
    here = RackPlayer.on(plan, FarSpares, rented(plan, waiting.pop()))
    for _ in range(data.draw(st.integers(1, 20))):
        moves = ["come", "come", "fail", "finish", *("light",) * (2 * bool(here.dark)), *("refuse",) * bool(here.dark)]
        move = data.draw(st.sampled_from(moves))
        if move == "come" and waiting:
            try:
                here.do(here.engine.register(rented(plan, waiting.pop()), FarSpares(plan), here.now))
            except ConfigError as error:
                assert any(reason in str(error) for reason in ("is free (of 4)", "which has failed"))
        elif move == "fail":
            members = sorted({r for job in here.engine.jobs.values() for r in job.groups[0].members})
            here.fail(data.draw(st.sampled_from(members or range(plan.ranks))))
        elif move == "finish" and here.engine.jobs:
            here.do(here.engine.finish(data.draw(st.sampled_from(sorted(here.engine.jobs))), here.now))
        elif move in ("light", "refuse"):
            which = data.draw(st.integers(0, len(here.dark) - 1))
            here.light(which) if move == "light" else here.refuse(which)
        assert max(fibres_taken(here).values(), default=0) <= 4
    here.settle()
    assert max(fibres_taken(here).values(), default=0) <= 4


@pytest.mark.parametrize("refused", [False, True])
def test_a_job_that_comes_while_a_splice_waits_leaves_the_circuits_of_the_dead_chip(refused: bool) -> None:
    """B ends while its splice tunes the spare that C wants next, so the start of A, which waits too, is tried first."""
    plan = CROWDED[2]
    here = RackPlayer.on(plan, FarSpares, rented(plan, "C"), rented(plan, "B"))
    of_c = here.light_at(*here.engine.jobs["C"].groups[0].members)
    here.fail(4)
    here.do(here.engine.finish("B", here.now))
    here.do(here.engine.register(rented(plan, "A"), FarSpares(plan), here.now))
    here.fail(8)
    assert here.engine.jobs["C"].groups[0].members[0] == 16, "the spare that was to replace chip 4 of B"
    here.light(0)
    start, splice = here.dark
    ranks = {p.number: p.rank for p in plan.rail_of(0).ports}
    assert {ranks[port] for port in start.ports} == {0, 1, 2, 3, 5, 6, 7, 16}, "chips of A, and of B, which ended"
    assert {ranks[port] for port in splice.ports} == {8, 9, 10, 16}
    if refused:
        here.refuse(1)
        here.settle()
        assert here.kinds("C")[-1] == "stranded"
        assert here.light_at(8, 9, 12, 13, 15, 14, 11, 10) == of_c, "its circuits are as they were"
    else:
        here.settle()
        assert here.kinds("C")[-1] == "replaced"


@pytest.mark.parametrize("refused_first", [True, False])
def test_fibres_of_a_splice_that_was_refused_are_not_given_away(refused_first: bool) -> None:
    """A's spare is in the server of its other member, so the splice would free the 3 fibres to the other server."""
    plan = photonic_plan(Torus((4, 2, 1), (2, 2, 1)), 0, {"A": (0, 4), "B": (2, 6)})
    plan = replace(plan, rack=replace(plan.rack, spares=(1, 3))) if plan.rack else plan
    here = RackPlayer.on(replace(plan, rack=replace(plan.rack, tenants=plan.rack.tenants[:1])), MorphluxPolicy)  # type: ignore[type-var, union-attr]
    here.do(here.engine.register(rented(plan, "A"), MorphluxPolicy(here.engine.plan), 0.0))
    here.settle()
    assert len(here.goes()) == 2 * 3
    here.fail(4)
    if refused_first:
        here.refuse(0)
    here.do(here.engine.register(rented(plan, "B"), MorphluxPolicy(here.engine.plan), 0.0))
    if not refused_first:
        here.refuse(0)
    here.settle()
    assert here.kinds("A")[-1] == "stranded"
    assert fibres_taken(here) == {(0, 1): 4}, "3 of A, which stand again, and 1 of B"


def test_a_job_that_comes_after_a_splice_finds_its_fibres_taken() -> None:
    """What the plan does not know: the splice of A leads through fibres that B would have had."""
    plan = photonic_plan(Torus((4, 2, 1), (2, 2, 1)), 0, {"A": (0, 1, 3), "B": (2, 7)})
    plan = replace(plan, rack=replace(plan.rack, spares=(4, 5, 6))) if plan.rack else plan
    here = RackPlayer.on(plan, MorphluxPolicy, rented(plan, "A"))
    here.fail(1)
    here.settle()
    taken = sum(fibres_taken(here).values())
    assert taken == 2  # to the spare in the other server and back
    here.do(here.engine.register(rented(plan, "B"), MorphluxPolicy(plan), 0.0))
    here.settle()
    policy = here.engine.registry.job("B").policy
    assert isinstance(policy, MorphluxPolicy) and policy.circuits_per_hop == {"B": 2}
    blind = MorphluxPolicy(plan)
    blind.start([Group("B", "dp", (2, 7))])
    assert blind.circuits_per_hop == {"B": 3}


@pytest.mark.parametrize(("way", "each"), [("inside", 3), ("round", 1), ("across", 0)])
def test_rings_that_go_server_by_server_leave_room_for_all(way: str, each: int) -> None:
    """Four slices of 4 x 4 x 1: rings through all chips of a server before the next, and two others.

    32 fibres join the halves in x. The rings cross them 2 times each, 8 times (the servers in a ring, four times
    round), and 16 times (between servers that are no neighbours too): 4 x 16 are too many even for one circuit.
    """
    order = {
        "inside": [(s, c) for s in (0, 1, 3, 2) for c in (0, 1, 3, 2)],
        "round": [(s, c) for c in range(4) for s in (0, 1, 3, 2)],
        "across": [(s, c) for c in range(4) for s in range(4)],
    }[way]
    slices = {f"T{z}": [(4 * z + s) * 4 + c for s, c in order] for z in range(4)}
    policy, ring = MorphluxPolicy(photonic_plan(CUBE, 1, slices)), Group("a", "dp", tuple(slices["T2"]))
    if not each:
        with pytest.raises(ConfigError, match=r"group a cannot have one circuit per hop: no fibre between .*by server"):
            policy.start([ring])
        return
    assert len(policy.start([ring])["rack0"]) == 16 * each
    used = fibres_used(policy.routes.values())
    assert sum(used.values()) == {3: 48, 1: 64}[each] and max(used.values()) <= 4


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


@pytest.mark.parametrize(("fibres", "each"), [(1, 0), (2, 1), (5, 2), (6, 3)])
def test_a_splice_takes_circuits_from_every_hop_or_nobody_stands_in(fibres: int, each: int) -> None:
    policy = type("OneWay", (MorphluxPolicy,), {"fibres": fibres, "spare_neighbours": 1})(photonic_plan(CUBE))
    ring = Group("a", "dp", (0, 1, 3, 2))
    policy.start([ring])
    before = policy.own_routes
    assert policy.circuits_per_hop == {"a": 3}
    assert policy.replace([ring], 3, (64, 65)) == ({3: 64} if each else {})
    assert policy.own_routes == before, "only start changes them"
    if each:
        after = replace(ring, members=(0, 1, 64, 2))
        paths = policy.paths(after, policy.start([after]))
        assert set(Counter(frozenset({a, b}) for a, _, b, _ in paths).values()) == {each}
        assert policy.circuits_per_hop == {"a": each}


def test_a_spare_that_leaves_all_circuits_comes_before_a_nearer_one() -> None:
    """Spare 12 is one hop away but has 2 fibres, spare 4 two hops one way round the torus and four the other."""

    class Few(MorphluxPolicy):
        fibres = 2
        spare_neighbours = 1

    policy, pair = Few(photonic_plan(Torus((2, 6, 1), (2, 1, 1)), 1)), Group("a", "dp", (0, 1))
    policy.start([pair])
    assert policy.replace([pair], 1, (12, 4)) == {1: 4}
    assert policy.replace([pair], 1, (12,)) == {1: 12}


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
