"""Kills: how they are written, and which make sense."""

from __future__ import annotations

from experiments.racks.setting import Kill, parse_kills, random_kill


def test_a_step_and_a_time_after_the_kill_before() -> None:
    first, second = parse_kills("1@4.5, 16@+0.25")
    assert first == Kill(1, step=4.5)
    assert second == Kill(16, after_s=0.25)
    assert f"{first},{second}" == "1@4.5,16@+0.25"


def test_random_kills_are_the_same_for_the_same_seed_and_inside_the_job() -> None:
    drawn = [random_kill(seed, (0, 1, 4, 5), 8) for seed in range(50)]
    assert drawn == [random_kill(seed, (0, 1, 4, 5), 8) for seed in range(50)]
    assert {kill.rank for kill in drawn} == {0, 1, 4, 5}
    assert all(kill.step is not None and 0 < kill.step < 8 for kill in drawn)
    assert len({kill.step for kill in drawn}) > 40
