"""The fast way to lay circuits on a mesh: whatever it answers is followed by its light."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controllers.circuits.matchings import one_factorization
from controllers.mesh.corners import dead_end
from controllers.mesh.exact import route_exact
from controllers.mesh.light_paths import Infeasible, Routed, check, flips, hops, laid, settled
from controllers.mesh.negotiation import gates_to, route
from controllers.mesh.ports import choose_ports
from railyard.errors import CircuitError, ConfigError
from topos.mesh import Mesh, evenly_spaced

sizes = st.sampled_from([(3, 3), (5, 3), (5, 5), (7, 3)])
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def matchings(draw: st.DrawFn, most: int = 8) -> tuple[Mesh, list[tuple[int, int]]]:
    """A mesh and some pairs of its ports (4 to 16 ports)."""
    mesh = Mesh.of(*draw(sizes))
    ports = draw(st.permutations(range(len(mesh.ports))))
    count = draw(st.integers(2, most))
    return mesh, list(zip(ports[:count], ports[count : 2 * count], strict=True))


@given(matchings())
@quick
def test_light_of_whatever_is_routed_comes_out_at_the_partner(case: tuple[Mesh, list[tuple[int, int]]]) -> None:
    mesh, pairs = case
    routed = route(mesh, pairs, tries=2)
    if routed is not None:
        check(mesh, routed, pairs)
        assert routed.gates == sum(map(len, routed.paths.values()))
        assert all(len(gates) >= _least(mesh, pair) for pair, gates in routed.paths.items())
        assert route(mesh, pairs, tries=2) == routed


@given(matchings(), st.data())
@quick
def test_circuits_that_stand_stay_as_they_are(case: tuple[Mesh, list[tuple[int, int]]], data: st.DataObject) -> None:
    mesh, pairs = case
    standing = route(mesh, pairs[: data.draw(st.integers(1, len(pairs)))], tries=2)
    if standing is not None:
        after = route(mesh, pairs, fixed=standing.paths, tries=2)
        if after is not None:
            check(mesh, after, pairs)
            for pair, gates in standing.paths.items():
                assert after.paths[pair] == gates
                assert all(after.states[gate] == standing.states[gate] for gate in gates)


@given(matchings(most=3))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_it_finds_nothing_that_is_proved_impossible(case: tuple[Mesh, list[tuple[int, int]]]) -> None:
    mesh, pairs = case
    if isinstance(route_exact(mesh, pairs, time_s=2), Infeasible):
        assert route(mesh, pairs, tries=2) is None


@given(sizes, st.data())
@quick
def test_one_circuit_takes_the_fewest_gates(size: tuple[int, int], data: st.DataObject) -> None:
    mesh = Mesh.of(*size)
    a, b = sorted(data.draw(st.sets(st.integers(0, len(mesh.ports) - 1), min_size=2, max_size=2)))
    routed = route(mesh, [(b, a)], tries=2)
    if routed is not None:
        assert routed.gates == _least(mesh, (a, b)) == _least(mesh, (b, a))


@pytest.mark.parametrize("width, height, n", [(3, 3, 4), (3, 3, 8), (5, 5, 8), (7, 3, 8), (5, 5, 16), (7, 7, 16)])
def test_every_matching_between_evenly_spaced_ports_has_a_way(width: int, height: int, n: int) -> None:
    mesh = Mesh.of(width, height)
    ports = evenly_spaced(mesh, n)
    for slot_window in one_factorization(n):
        pairs = [(ports[a], ports[b]) for a, b in slot_window]
        routed = route(mesh, pairs)
        assert routed is not None
        check(mesh, routed, pairs)


def test_32_ports_of_a_9x9_mesh() -> None:
    mesh = Mesh.of(9, 9)
    ports = choose_ports(mesh, 32)
    for slot_window in one_factorization(32)[::6]:
        pairs = [(ports[a], ports[b]) for a, b in slot_window]
        routed = route(mesh, pairs, time_s=15)
        assert routed is not None
        check(mesh, routed, pairs)


def test_ports_at_a_corner_are_lost_at_once() -> None:
    mesh = Mesh.of(9, 9)
    ports = evenly_spaced(mesh, 32)
    for slot_window in one_factorization(32):
        pairs = [(ports[a], ports[b]) for a, b in slot_window]
        assert dead_end(mesh, pairs) is not None
        assert route(mesh, pairs) is None


def test_no_time_is_no_answer_and_nothing_to_lay_is_one() -> None:
    mesh = Mesh.of(3, 3)
    empty = route(mesh, [])
    assert empty is not None
    assert (empty.gates, empty.paths, set(empty.states)) == (0, {}, {False})
    assert route(mesh, [(0, 14)], tries=0) is None


def test_ports_that_cannot_be_joined_are_refused() -> None:
    mesh = Mesh.of(3, 3)
    with pytest.raises(CircuitError, match="are no path from port 0 to port 3"):
        route(mesh, [(0, 3)], fixed={(0, 3): (0, 1, 2)})


def test_a_circuit_that_stands_may_be_told_from_either_end() -> None:
    mesh = Mesh.of(3, 3)
    alone = route(mesh, [(0, 14)])
    assert alone is not None
    told = {(14, 0): alone.paths[0, 14][::-1]}
    both = route(mesh, [(3, 7)], fixed=told)
    assert both is not None
    assert both == route(mesh, [(3, 7)], fixed=alone.paths)
    assert both.paths[0, 14] == alone.paths[0, 14]
    with pytest.raises(ConfigError, match="port 99 is not on a mesh"):
        route(mesh, [(3, 7)], fixed={(0, 99): (0,)})


def _least(mesh: Mesh, pair: tuple[int, int]) -> int:
    return gates_to(mesh, pair[1])[mesh.ports[pair[0]].end]


MESH = Mesh.of(3, 3)
PAIRS = [(0, 21), (7, 14)]


@pytest.fixture(scope="module")
def routed() -> Routed:
    found = route(MESH, PAIRS)
    assert found is not None
    return found


def test_a_path_says_how_its_gates_are_set(routed: Routed) -> None:
    ways = {pair: hops(MESH, pair, gates) for pair, gates in routed.paths.items()}
    assert laid(MESH, ways) == routed
    for way in ways.values():
        assert all(routed.states[end >> 2] == crossed for end, crossed in way)


@pytest.mark.parametrize("change", [lambda p: p[:-1], lambda p: p[1:], lambda p: p[::-1], lambda p: p[:1] * 3])
def test_gates_that_are_no_path_are_refused(routed: Routed, change) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CircuitError, match="are no path from port 0 to port 21"):
        hops(MESH, (0, 21), change(routed.paths[0, 21]))


def test_a_flipped_gate_is_found_by_its_light(routed: Routed) -> None:
    check(MESH, routed, PAIRS)
    for gate in {gate for gates in routed.paths.values() for gate in gates}:
        states = list(routed.states)
        states[gate] = not states[gate]
        with pytest.raises(CircuitError, match="must come out at port"):
            check(MESH, replace(routed, states=tuple(states)), PAIRS)


def test_circuits_too_many_or_too_few_are_found(routed: Routed) -> None:
    with pytest.raises(CircuitError, match="7-14 is not wanted but laid"):
        check(MESH, routed, PAIRS[:1])
    with pytest.raises(CircuitError, match="1-3 is wanted but not laid"):
        check(MESH, routed, [*PAIRS, (3, 1)])
    with pytest.raises(ConfigError, match="port 28 is not on a mesh"):
        check(MESH, routed, [(0, 28)])


def test_two_circuits_that_want_a_gate_in_two_states_are_refused() -> None:
    end = MESH.ports[0].end
    with pytest.raises(CircuitError, match="in a state that it is not in"):
        laid(MESH, {(0, 1): [(end, True)], (2, 3): [(end, False)]})


def test_gates_without_light_keep_their_state_and_do_not_count(routed: Routed) -> None:
    lit = {gate for gates in routed.paths.values() for gate in gates}
    for before in ((False,) * 35, (True,) * 35):
        after = settled(before, routed)
        check(MESH, after, PAIRS)
        assert all(after.states[gate] == before[gate] for gate in range(35) if gate not in lit)
        assert flips(before, routed) == flips(before, after.states) == sum(routed.states[c] != before[c] for c in lit)
    assert flips(routed.states, routed) == 0
    assert flips((False, True), (True, True)) == 1
