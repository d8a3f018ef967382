"""Sharing switches out to processes."""

from __future__ import annotations

import pytest

from railyard.errors import ConfigError
from topos.switch_groups import check_processes, most_processes, switch_groups

RAILS = {"rail0": 8, "rail1": 8, "srv0": 2, "srv1": 2, "srv2": 2, "srv3": 2}


def test_rails_are_apart_and_scale_up_switches_spread() -> None:
    assert switch_groups(RAILS, [], 2) == [["rail0", "srv0", "srv2"], ["rail1", "srv1", "srv3"]]
    assert switch_groups(RAILS, [], 1) == [list(RAILS)]


def test_no_more_groups_than_independent_parts() -> None:
    assert switch_groups({"s1": 4, "s2": 4}, [], 64) == [["s1"], ["s2"]]
    assert switch_groups({"s1": 4, "s2": 4}, [("s1", "s2"), ("s2", "s1")], 64) == [["s1", "s2"]]
    assert switch_groups({}, [], 4) == []


def test_a_path_of_links_keeps_switches_together_whatever_its_order() -> None:
    ports = dict.fromkeys("abcdef", 2)
    for links in ([("a", "b"), ("b", "c"), ("d", "e")], [("c", "b"), ("e", "d"), ("b", "a"), ("a", "c")]):
        assert sorted(map(sorted, switch_groups(ports, links, 9))) == [["a", "b", "c"], ["d", "e"], ["f"]]


def test_switches_without_ports_are_spread_too() -> None:
    assert switch_groups({"a": 0, "b": 0, "c": 0}, [], 3) == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize(("processors", "most"), [(1, 1), (2, 1), (3, 1), (4, 2), (16, 8)])
def test_auto_leaves_half_of_the_processors_to_the_hosts(processors: int, most: int) -> None:
    assert most_processes("auto", processors) == most and most_processes(5, processors) == 5


@pytest.mark.parametrize("asked", ["auto", 1, 64])
def test_what_can_be_asked_for(asked: object) -> None:
    assert check_processes(asked) == asked  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", ["many", 0, -1, 65, 1.5, True, None, "2"])
def test_what_cannot_be_asked_for_is_said(asked: object) -> None:
    with pytest.raises(ConfigError, match=r"switch_processes.*auto or a whole number from 1 to 64, not"):
        check_processes(asked)  # type: ignore[arg-type]
