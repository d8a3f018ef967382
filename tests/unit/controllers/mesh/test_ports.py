"""Ports between which everybody can meet everybody, and the reason why others do not do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.circuits.matchings import one_factorization
from controllers.mesh.corners import dead_end, forced_exits
from controllers.mesh.light_paths import check
from controllers.mesh.negotiation import route
from controllers.mesh.ports import choices, choose, choose_ports, spaced_clear
from railyard.errors import ConfigError
from topos.mesh import Mesh, evenly_spaced


@pytest.mark.parametrize("width, height, n", [(3, 3, 4), (3, 3, 7), (5, 5, 8), (7, 3, 12), (7, 7, 24)])
def test_every_matching_of_a_choice_is_laid(width: int, height: int, n: int) -> None:
    mesh = Mesh.of(width, height)
    choice = choose(mesh, n)
    assert len(set(choice.ports)) == n
    turns = one_factorization(n)
    for slot_window, routed in zip(turns, choice.matchings, strict=True):
        check(mesh, routed, [(choice.ports[a], choice.ports[b]) for a, b in slot_window])


def test_evenly_spaced_ports_are_taken_where_they_do() -> None:
    mesh = Mesh.of(5, 5)
    assert choose_ports(mesh, 8) == evenly_spaced(mesh, 8)
    assert choose(mesh, 8).how == "evenly spaced"


def test_the_same_choice_again() -> None:
    first = [ports for ports, _ in choices(Mesh.of(7, 3), 16)]
    assert first == [ports for ports, _ in choices(Mesh.of(7, 3), 16)]
    assert len(first) == len(set(first)) > 20


def test_ports_that_the_mesh_has_not_or_cannot_use_together() -> None:
    mesh = Mesh.of(3, 3)
    with pytest.raises(ConfigError, match="it has 28"):
        choose_ports(mesh, 30)
    with pytest.raises(ConfigError, match="use fewer ports or a larger mesh"):
        choose(mesh, 28, time_s=1)


@given(st.sampled_from([(3, 3), (5, 5), (7, 7), (9, 9)]), st.integers(2, 32), st.floats(0, 5))
@settings(max_examples=30, deadline=None)
def test_spread_ports_do_not_hem_each_other_in(size: tuple[int, int], n: int, start: float) -> None:
    mesh = Mesh.of(*size)
    ports = spaced_clear(mesh, min(n, len(mesh.ports)), start)
    if ports is not None:
        assert len(set(ports)) == len(ports) == min(n, len(mesh.ports))
        assert forced_exits(mesh, ports) == {}


def test_light_between_two_gates_at_a_corner_can_go_one_way_only() -> None:
    mesh = Mesh.of(9, 9)
    # Ports 7 and 10 are those of one gate, 9 and 12 those of the next, at a corner.
    assert mesh.ports[7].gate == mesh.ports[10].gate != mesh.ports[9].gate == mesh.ports[12].gate
    assert forced_exits(mesh, [7, 12]) == {7: 12, 12: 7}
    assert forced_exits(mesh, [9, 10]) == {}
    assert dead_end(mesh, [(7, 40), (12, 50)]) == (7, 12)
    assert dead_end(mesh, [(7, 12)]) is None
    assert dead_end(mesh, [(7, 10), (12, 50)]) is None
    for pairs in ([(7, 12)], [(7, 10), (12, 50)]):
        assert route(mesh, pairs) is not None


@given(st.permutations(range(28)), st.integers(2, 6))
@settings(max_examples=25, deadline=None)
def test_what_the_corners_forbid_no_solver_finds(order: list[int], count: int) -> None:
    from controllers.mesh.exact import _Program

    mesh = Mesh.of(3, 3)
    pairs = [(min(p), max(p)) for p in zip(order[:count], order[count : 2 * count], strict=True)]
    if dead_end(mesh, pairs) is not None:
        assert _Program(mesh, pairs, None).solve(5, None) == "INFEASIBLE"
