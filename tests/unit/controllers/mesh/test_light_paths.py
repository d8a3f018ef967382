"""What a configuration says of itself, and the proof that it is so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.mesh.light_paths import Routed, check, flips, hops, laid, settled
from controllers.mesh.negotiation import route
from railyard.errors import CircuitError, ConfigError
from topos.mesh import Mesh

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
