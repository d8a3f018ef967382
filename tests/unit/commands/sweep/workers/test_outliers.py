from __future__ import annotations

from random import Random

import pytest

from commands.sweep.workers.outliers import Number, off, ratios, sentences


def numbers(factors: dict[str, float], points: int = 4, repeats: int = 2, noise: float = 0.003) -> list[Number]:
    drawn = Random(7)
    return [
        Number(f"p{point}", machine, (point + 1) * factor * (1 + drawn.gauss(0, noise)))
        for point in range(points)
        for machine, factor in factors.items()
        for _ in range(repeats)
    ]


def test_ratios_are_to_the_median_over_machines_of_the_same_point() -> None:
    found = ratios(
        [
            Number("p", "a", 1.0),
            Number("p", "a", 3.0),  # the number of a is 2
            Number("p", "b", 4.0),
            Number("p", "c", 8.0),
            Number("q", "a", 5.0),  # measured by a alone
            Number("r", "a", 0.0),
            Number("r", "b", 0.0),
        ]
    )
    assert found == {"a": [0.25, 0.75], "b": [1.0], "c": [2.0]}


def test_a_slow_machine_is_named_with_its_difference_and_no_other_is() -> None:
    found = ratios(numbers({"a": 1.0, "b": 1.0, "slow": 1.1}))
    assert [machine for machine in found if off(machine, found) is not None] == ["slow"]
    assert off("slow", found) == pytest.approx(0.1, abs=0.01)
    (sentence,) = sentences(found, "step time")
    assert sentence.startswith("slow is an outlier: its step time is ") and sentence.endswith(
        "above that of the others."
    )


def test_a_fast_machine_is_named_too() -> None:
    (sentence,) = sentences(ratios(numbers({"a": 1.0, "b": 1.0, "fast": 0.8})), "step time")
    assert "fast is an outlier" in sentence and "below" in sentence


def test_machines_that_agree_are_not_outliers_and_that_is_said() -> None:
    found = ratios(numbers({"a": 1.0, "b": 1.003, "c": 0.998}))
    assert sentences(found, "step time") == ["No machine is an outlier: step time agrees between a, b, c."]


def test_a_difference_within_the_spread_of_the_others_is_none() -> None:
    found = ratios(numbers({"a": 1.0, "b": 1.0, "c": 1.05}, noise=0.06))
    assert off("c", found) is None


def test_of_two_machines_it_cannot_be_said_which_is_off() -> None:
    (sentence,) = sentences(ratios(numbers({"a": 1.0, "b": 1.2})), "step time")
    assert sentence.startswith("a and b differ by 1") and "third machine" in sentence


def test_too_few_repeats_are_said_and_one_machine_is_not_judged() -> None:
    found = ratios(numbers({"a": 1.0, "b": 1.5, "c": 1.0}, points=1))
    assert sentences(found, "time") == ["Too few repeats to say whether a machine is an outlier: a, b, c."]
    assert sentences(ratios(numbers({"a": 1.0})), "time") == []
