"""Which points count, and which of them are one point in several repeats."""

from __future__ import annotations

from typing import Any

from measure.results.manifest import counting_points, left_out


def attempt(place: int, repeat: int, points: list[int], *, disturbed: bool = False) -> dict[str, Any]:
    piece = {"piece": f"piece {place}", "place": place, "repeat": repeat, "points": points}
    return {**piece, "faithful": not disturbed, "disturbed": disturbed}


def test_points_of_one_place_in_several_repeats_stand_together() -> None:
    manifest = {
        "attempts": [
            attempt(0, 0, [0, 1], disturbed=True),
            attempt(0, 0, [2, 3]),
            attempt(1, 0, [4]),
            attempt(0, 1, [5, 6]),
            attempt(1, 1, [7], disturbed=True),
        ]
    }
    assert counting_points(manifest) == [(2, 5), (3, 6), (4,)]
    assert left_out(manifest) == {0, 1, 7}


def test_where_every_repeat_was_disturbed_all_count() -> None:
    manifest = {"attempts": [attempt(0, 0, [0], disturbed=True), attempt(0, 1, [1], disturbed=True)]}
    assert counting_points(manifest) == [(0, 1)]
    assert left_out(manifest) == set()


def test_repeats_with_different_numbers_of_points_are_not_told_apart() -> None:
    assert counting_points({"attempts": [attempt(0, 0, [0, 1]), attempt(0, 1, [2])]}) == [(0, 1, 2)]


def test_a_folder_without_attempts_leaves_nothing_out() -> None:
    assert (counting_points({}), left_out({})) == ([], set())
