"""Kills: how they are written, and which make sense."""

from __future__ import annotations

import pytest

from experiments.racks.kill import Kill, check_kills, parse_kills, random_kill
from railyard.errors import ConfigError


def test_a_step_and_a_time_after_the_kill_before() -> None:
    first, second = parse_kills("1@4.5, 16@+0.25")
    assert first == Kill(1, step=4.5)
    assert second == Kill(16, after_s=0.25)
    assert f"{first},{second}" == "1@4.5,16@+0.25"


@pytest.mark.parametrize("text", ["1", "1@", "@3", "1@-3", "a@3", "1@3s", "1@+", "1.5@3"])
def test_what_is_not_a_kill_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="RANK@STEP"):
        parse_kills(text)


def test_the_first_kill_cannot_count_from_one_before() -> None:
    with pytest.raises(ConfigError, match="there is none"):
        parse_kills("1@+0.5")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("99@1", "ranks 0 to 19"),
        ("7@1", "neither a member of a job nor a spare; use one of 0, 1, 16"),
        ("1@10", "10 steps"),
    ],
)
def test_kills_that_cannot_be(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_kills(parse_kills(text), ranks=20, steps=10, known=[16, 1, 0])


def test_random_kills_are_the_same_for_the_same_seed_and_inside_the_job() -> None:
    drawn = [random_kill(seed, (0, 1, 4, 5), 8) for seed in range(50)]
    assert drawn == [random_kill(seed, (0, 1, 4, 5), 8) for seed in range(50)]
    assert {kill.rank for kill in drawn} == {0, 1, 4, 5}
    assert all(kill.step is not None and 0 < kill.step < 8 for kill in drawn)
    assert len({kill.step for kill in drawn}) > 40
