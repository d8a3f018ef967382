"""Routes of the electrical torus: where does a packet go?"""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rack_plans import electrical_plan, photonic_plan

from controllers.circuits.torus_routes import distances, path, routes
from railyard.errors import ConfigError, ControlError
from topos.plan import FabricPlan
from topos.torus import Torus

SQUARE = Torus((4, 4, 1), (2, 2, 1))


def walk(torus: Torus, plan: FabricPlan, a: int, b: int, dead: frozenset[int] = frozenset()) -> list[tuple[int, ...]]:
    """The places that packets from ``a`` to ``b`` leave from."""
    return [torus.places[int(switch[1:])] for switch, _ in path(plan, routes(plan, dead), a, b)]


def dimension_order(torus: Torus, a: int, b: int) -> list[tuple[int, ...]]:
    """The same by the book: along x, then y, then z, each the shorter way round, by + where both are as long."""
    here, goal = list(torus.places[a]), torus.places[b]
    crossed: list[tuple[int, ...]] = []
    for dimension, extent in enumerate(torus.shape):
        forward = (goal[dimension] - here[dimension]) % extent
        step = 1 if forward <= extent - forward else -1
        while here[dimension] != goal[dimension]:
            crossed.append(tuple(here))
            here[dimension] = (here[dimension] + step) % extent
    return crossed


shapes = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3)).filter(lambda s: s[0] * s[1] * s[2] > 1)


@given(shapes, st.data())
def test_where_nobody_is_dead_it_is_dimension_order(shape: tuple[int, int, int], data: st.DataObject) -> None:
    torus = Torus(shape, (1, 1, 1))
    plan = electrical_plan(torus)
    chips = st.integers(0, torus.chips - 1)
    a, b = data.draw(chips), data.draw(chips)
    assert walk(torus, plan, a, b) == dimension_order(torus, a, b)


@given(shapes, st.data())
def test_tables_lead_there_the_shortest_way_past_the_dead_or_there_is_none(
    shape: tuple[int, int, int], data: st.DataObject
) -> None:
    torus = Torus(shape, (1, 1, 1))
    plan = electrical_plan(torus)
    dead = frozenset(data.draw(st.sets(st.integers(0, torus.chips - 1), max_size=torus.chips // 2)))
    tables = routes(plan, dead)
    living = nx.Graph((a, b) for a, _, b, _ in torus.links if not {a, b} & dead)
    living.add_nodes_from(set(range(torus.chips)) - dead)
    hops = {a: dict(nx.single_source_shortest_path_length(living, a)) for a in living}
    for a in range(torus.chips):
        for b in range(torus.chips):
            if a == b:
                assert path(plan, tables, a, b) == ()
            elif a in hops and b in hops[a]:
                crossed = path(plan, tables, a, b)
                assert len(crossed) == hops[a][b]
                assert not {int(switch[1:]) for switch, _ in crossed} & dead
            else:
                with pytest.raises(ControlError, match=f"chip {a} has no route to chip {b}"):
                    path(plan, tables, a, b)
    for a in hops:
        assert distances(plan, a, dead) == hops[a]


def test_ones_own_host_is_port_one_and_a_dead_chip_has_no_table() -> None:
    plan = electrical_plan(SQUARE)
    tables = routes(plan, frozenset({5}))
    mac = {switch.ports[0].rank: switch.ports[0].mac for switch in plan.switches}
    assert tables["n5"] == {} and all(mac[5] not in table for table in tables.values())
    assert all(tables[f"n{rank}"][mac[rank]] == 1 for rank in range(16) if rank != 5)
    assert tables["n0"][mac[SQUARE.neighbour(0, (0, 1))]] == 2


def test_a_second_rack_has_no_routes_until_it_is_woken() -> None:
    plan = electrical_plan(SQUARE, racks=2)
    asleep = routes(plan, frozenset(range(16, 32)))
    assert all(not asleep[f"n{rank}"] for rank in range(16, 32)) and all(len(asleep[f"n{r}"]) == 16 for r in range(16))
    awake = routes(plan)
    assert len(path(plan, awake, 16, 31)) == len(path(plan, awake, 0, 15))
    with pytest.raises(ControlError, match="chip 0 has no route to chip 16"):
        path(plan, awake, 0, 16)


def test_tables_that_go_round_in_circles_are_told() -> None:
    plan = electrical_plan(Torus((4, 1, 1), (1, 1, 1)))
    mac = plan.switches[2].ports[0].mac
    with pytest.raises(ControlError, match="packets from chip 0 to chip 2 loop"):
        path(plan, {"n0": {mac: 2}, "n1": {mac: 3}}, 0, 2)


def test_what_is_no_electrical_torus_is_refused() -> None:
    with pytest.raises(ConfigError, match="fabric photonic has no electrical torus"):
        routes(photonic_plan(SQUARE))
    with pytest.raises(ConfigError, match="there is no chip 16 on the torus"):
        distances(electrical_plan(SQUARE), 16)


ROW = [(x, 0) for x in range(4)]
LEFT, RIGHT = [[(x, 2), (x + 1, 2), (x + 1, 3), (x, 3)] for x in (0, 2)]


def crossed_by(
    members: list[tuple[int, int]], dead: tuple[int, int], of: list[tuple[int, int]] | None = None
) -> set[tuple[str, int]]:
    """The links, one way each, that a ring of ``members`` crosses (``of``: those of its hops that touch these)."""
    plan = electrical_plan(SQUARE)
    tables = routes(plan, frozenset({SQUARE.chip((*dead, 0))}))
    hops = [*zip(members, members[1:] + members[:1], strict=True)]
    found: set[tuple[str, int]] = set()
    for a, b in hops:
        if of is None or {a, b} & set(of):
            ends = SQUARE.chip((*a, 0)), SQUARE.chip((*b, 0))
            found.update(path(plan, tables, *ends), path(plan, tables, *reversed(ends)))
    return found


def spliced(dead: tuple[int, int], spare: tuple[int, int]) -> list[tuple[int, int]]:
    return [spare if place == dead else place for place in ROW]


@pytest.mark.parametrize(
    ("dead", "spare", "neighbour", "shared"),
    [
        ((2, 0), (3, 3), LEFT, {((0, 3), 2)}),
        ((0, 0), (3, 3), LEFT, {((0, 3), 2)}),
        ((1, 0), (2, 3), LEFT, set()),
        ((1, 0), (1, 3), RIGHT, set()),
    ],
)
def test_which_spare_crosses_the_neighbours_links(
    dead: tuple[int, int],
    spare: tuple[int, int],
    neighbour: list[tuple[int, int]],
    shared: set[tuple[tuple[int, int], int]],
) -> None:
    """Spare (3, 3) for (2, 0) sends through the +x link of (0, 3), which is B's own; the others leave B alone."""
    both = crossed_by(spliced(dead, spare), dead, [spare]) & crossed_by(neighbour, dead)
    assert {(SQUARE.places[int(switch[1:])][:2], port) for switch, port in both} == shared
