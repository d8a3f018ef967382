"""A cover of all pairs of given ports: it is one, its bound holds, and what nothing joins is left out."""

from __future__ import annotations

from itertools import combinations

import pytest

from controllers.mesh.corners import dead_end
from controllers.mesh.cover import Cover, cover, keeping_apart
from controllers.mesh.exact import route_exact
from controllers.mesh.light_paths import Infeasible, check
from topos.mesh import Mesh, evenly_spaced


def checked(mesh: Mesh, ports: tuple[int, ...], found: Cover) -> Cover:
    """``found`` if its light goes where it says, and every pair is once in it or is left out."""
    for routed in found.matchings:
        check(mesh, routed, routed.paths)
    joined = [pair for routed in found.matchings for pair in routed.paths]
    assert sorted([*joined, *found.apart]) == sorted(combinations(sorted(ports), 2))
    assert len(found.matchings) >= found.bound
    return found


@pytest.mark.parametrize(
    ("width", "height", "n", "fewest", "apart"),
    [(3, 3, 8, 7, 0), (5, 5, 9, 9, 0), (3, 3, 12, 20, 2), (7, 7, 24, 43, 2), (3, 3, 28, 49, 8)],
)
def test_the_fewest_matchings_are_found_and_proved(width: int, height: int, n: int, fewest: int, apart: int) -> None:
    mesh = Mesh.of(width, height)
    ports = evenly_spaced(mesh, n)
    found = checked(mesh, ports, cover(mesh, ports))
    assert (len(found.matchings), found.bound, len(found.apart)) == (fewest, fewest, apart)
    assert len(found.matchings) == found.bound


def test_a_search_without_time_is_a_cover_all_the_same() -> None:
    mesh = Mesh.of(7, 3)
    found = checked(mesh, evenly_spaced(mesh, 16), cover(mesh, evenly_spaced(mesh, 16), time_s=0.1))
    assert found.bound == 15
    assert len(found.matchings) >= 15


def test_pairs_of_a_set_have_no_way_beside_each_other_and_pairs_left_out_none_alone() -> None:
    mesh = Mesh.of(3, 3)
    ports = evenly_spaced(mesh, 12)
    found = cover(mesh, ports)
    assert found.apart == ((7, 9), (21, 23))
    for pair in found.apart:
        assert isinstance(route_exact(mesh, [pair]), Infeasible)
    joined = [pair for routed in found.matchings for pair in routed.paths]
    for pairs in keeping_apart(mesh, ports, joined).values():
        for one, other in combinations(sorted(pairs), 2):
            assert {*one} & {*other} or dead_end(mesh, [one, other])


def test_no_path_is_longer_than_the_most() -> None:
    mesh = Mesh.of(5, 5)
    ports = evenly_spaced(mesh, 6)
    found = checked(mesh, ports, cover(mesh, ports, most=11))
    assert max(len(path) for routed in found.matchings for path in routed.paths.values()) <= 11
    nearer = cover(mesh, ports, most=9, time_s=2)
    assert nearer.apart
    assert isinstance(route_exact(mesh, [nearer.apart[0]], most=9), Infeasible)


def test_a_seed_makes_the_same_cover_again() -> None:
    mesh = Mesh.of(3, 3)
    ports = evenly_spaced(mesh, 8)
    covers = [cover(mesh, ports, seed=seed) for seed in (3, 3, 4)]
    assert covers[0] == covers[1] != covers[2]
