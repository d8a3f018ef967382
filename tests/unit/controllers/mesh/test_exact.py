"""The fewest gates, against the optima of the reference, and proofs that there is no way."""

from __future__ import annotations

from itertools import product

import pytest

from controllers.circuits.matchings import one_factorization
from controllers.mesh.exact import _Program, route_exact
from controllers.mesh.light_paths import Infeasible, Routed, check
from controllers.mesh.negotiation import route
from railyard.errors import CircuitError
from topos.mesh import Mesh, evenly_spaced

Pairs = list[tuple[int, int]]


def turns(mesh: Mesh, n: int) -> list[Pairs]:
    ports = evenly_spaced(mesh, n)
    return [[(ports[a], ports[b]) for a, b in slot_window] for slot_window in one_factorization(n)]


@pytest.mark.parametrize("n, optima", [(4, [8, 20, 20]), (8, [28, 36, 30, 26, 36, 32, 14])])
@pytest.mark.parametrize("hinted", [False, True])
def test_the_optima_of_3x3(n: int, optima: list[int], hinted: bool) -> None:
    mesh = Mesh.of(3, 3)
    for pairs, gates in zip(turns(mesh, n), optima, strict=True):
        found = route_exact(mesh, pairs, hint=route(mesh, pairs) if hinted else None)
        assert isinstance(found, Routed)
        assert (found.gates, found.proved) == (gates, True)
        check(mesh, found, pairs)


@pytest.mark.parametrize("number, gates", [(0, 38), (6, 28)])
def test_the_optima_of_5x5(number: int, gates: int) -> None:
    mesh = Mesh.of(5, 5)
    pairs = turns(mesh, 8)[number]
    found = route_exact(mesh, pairs)
    assert isinstance(found, Routed)
    assert (found.gates, found.proved) == (gates, True)
    check(mesh, found, pairs)


def test_a_hint_with_detours_is_improved(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = Mesh.of(7, 3)
    pairs = turns(mesh, 8)[5]
    monkeypatch.setattr("controllers.mesh.negotiation.IMPROVE_TIMES", 0)
    hint = route(mesh, pairs)
    assert hint is not None
    found = route_exact(mesh, pairs, hint=hint)
    assert isinstance(found, Routed)
    assert found.proved
    assert found.gates == 52 < hint.gates
    check(mesh, found, pairs)


def test_a_hint_that_lays_other_circuits_is_refused() -> None:
    mesh = Mesh.of(3, 3)
    pairs = turns(mesh, 8)[4]
    with pytest.raises(CircuitError, match="is wanted but not laid"):
        route_exact(mesh, pairs, hint=route(mesh, pairs[:1]))


def test_every_answer_on_one_hexagon_is_that_of_trying_all_states() -> None:
    mesh = Mesh.of(1, 2)
    ports = range(len(mesh.ports))
    best: dict[frozenset[tuple[int, int]], int] = {}
    for states in product((False, True), repeat=len(mesh.gates)):
        lights = {a: mesh.trace(states, a) for a in ports}
        joined = [(a, light.port_out) for a, light in lights.items() if a < light.port_out]
        for i, first in enumerate(joined):
            for second in joined[i + 1 :]:
                gates = len(lights[first[0]].gates) + len(lights[second[0]].gates)
                key = frozenset((first, second))
                best[key] = min(best.get(key, gates), gates)
    asked = [((a, b), (c, d)) for a in ports for b in ports for c in ports for d in ports if a < b and a < c < d]
    asked = [(x, y) for x, y in asked if len({*x, *y}) == 4][::97]
    possible = 0
    for pairs in asked:
        found = route_exact(mesh, pairs)
        if frozenset(pairs) in best:
            possible += 1
            assert isinstance(found, Routed)
            assert (found.gates, found.proved) == (best[frozenset(pairs)], True)
        else:
            assert found == Infeasible(tuple(sorted(pairs)))
    assert 0 < possible < len(asked)


def test_a_matching_without_a_way_is_proved_to_have_none_also_by_the_solver() -> None:
    mesh = Mesh.of(9, 9)
    ports = evenly_spaced(mesh, 32)
    pairs = [(ports[a], ports[b]) for a, b in one_factorization(32)[0]]
    assert isinstance(route_exact(mesh, pairs), Infeasible)
    # The corners alone say so; the solver, which knows nothing of corners, comes to the same.
    assert _Program(mesh, [(min(p), max(p)) for p in pairs], None).solve(30, None) == "INFEASIBLE"


def test_out_of_time_the_hint_is_the_answer_or_there_is_none() -> None:
    mesh = Mesh.of(7, 7)
    pairs = turns(mesh, 16)[0]
    hint = route(mesh, pairs)
    assert hint is not None
    assert route_exact(mesh, pairs, time_s=0) is None
    late = route_exact(mesh, pairs, time_s=0, hint=hint)
    assert late == hint
    assert isinstance(late, Routed)
    assert not late.proved
