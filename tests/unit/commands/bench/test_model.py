"""Benchmark ``model``: its parts are runs that can be made, rows compare measured with predicted."""

from __future__ import annotations

from typing import Any

import pytest

from commands.bench import ModelRow
from commands.bench.bed import Bed
from commands.bench.model import LIMIT, LIMIT_64, PARTS, compared, model_parts
from railyard.errors import MachineError


def row(measured: float | None, **more: Any) -> dict[str, Any]:
    times = {"after_arrival_s": measured, "predicted_after_arrival_s": 1.0}
    return {**times, "faithful": True, "algorithm": "ring", "n": 8, **more}


def test_every_part_is_an_experiment_that_passes_its_checks() -> None:
    for name in ("rails-on-demand", "moe-smoke", "collectives-4", "stragglar-circuits", "all-to-all", "failover"):
        made = PARTS[name].made(2, "auto")
        made.check()
        assert made.settings.repeats == 2 and made.settings.datapath == "auto" and made.pieces()


def test_a_row_keeps_its_limit_or_not() -> None:
    part = PARTS["collectives-8"]
    near, far, none = (compared("a", part, row(seconds, repeats=3))[0] for seconds in (0.985, 1.03, None))
    assert (near.ok, far.ok, none.ok) == (True, False, False)
    assert near.value == pytest.approx(-0.015) and near.n == 3 and near.limit == LIMIT and none.value is None
    assert near.name == "a: ring 8 ranks"
    assert compared("a", PARTS["collectives-64"], row(1.03))[0].ok and PARTS["collectives-64"].limit == LIMIT_64


def test_steps_before_and_after_a_failure_are_compared_where_they_are_predicted() -> None:
    given = {"step_time_before_s": 1.0, "predicted_step_time_before_s": 1.0, "step_time_after_s": 2.0}
    part = PARTS["failover"]
    assert [one.ok for one in compared("f", part, {**given, "faithful": True})] == [True]
    both = compared("f", part, {**given, "predicted_step_time_after_s": 1.9, "faithful": True})
    assert [one.name for one in both] == ["f:", "f: after"] and not both[1].ok


def test_rows_over_the_limit_come_first_and_a_part_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows_of(made: Any, repeats: int) -> list[dict[str, Any]]:
        if made.name == "rails":
            raise MachineError("no fabric")
        return [row(1.0), row(0.5), row(1.01)]

    monkeypatch.setattr("commands.bench.model.rows_of", rows_of)
    found = model_parts(Bed("bpf", parts=("smoke", "collectives-8")))
    assert [one.ok for one in found] == [False, False, True, True]
    assert {one.why_not for one in found if not isinstance(one, ModelRow)} == {"no fabric"}
