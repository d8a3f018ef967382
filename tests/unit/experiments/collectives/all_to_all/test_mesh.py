"""An all-to-all on a photonic mesh: the slots of a cover, and round trips by the gates that light crosses."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from experiments.collectives.all_to_all.experiment import AllToAll, AllToAllSettings
from experiments.collectives.all_to_all.formula import formula, slots_of
from experiments.collectives.all_to_all.routes import RouteRow
from experiments.settings import validated

CORNERS = "3x3@0/1/6/7/12/14/18/21"
"""Ports of which corners keep pairs apart, and which a path joins all the same."""


def made(**values: Any) -> AllToAll:
    return AllToAll(validated(AllToAllSettings, {"studies": ["delay"], "policies": ["rotor"], **values}))


def test_the_slots_are_those_of_the_cover_and_the_formula_counts_them() -> None:
    (trial,) = made(mesh=CORNERS, cover=True, delays_ms=[10]).trials
    assert trial.cycle is not None
    matchings = trial.cycle.matchings
    assert len(matchings) == 13, "one for each pair at ports 1 and 6, which a corner keeps apart"
    assert sorted(pair for matching in matchings for pair in matching) == list(combinations(range(8), 2))
    joined = [[tuple(sorted((a, b))) for a, _, b, _ in slot.paths] for slot in slots_of(trial)]
    assert [sorted(pairs) for pairs in joined] == [sorted(pairs) for pairs in matchings]
    seconds = 1_250_000 / (formula(trial) / 13 - 0.01)
    assert 0.99 * 50e6 / 8 < seconds < 50e6 / 8


def test_a_round_trip_is_predicted_for_each_circuit_by_its_gates() -> None:
    rows = [row for row in made(mesh="5x5", studies=["route"], gate_us=200.0).predict() if isinstance(row, RouteRow)]
    assert sorted(tuple(row.pair) for row in rows) == list(combinations(range(8), 2))
    assert [row.predicted_round_trip_ms for row in rows] == pytest.approx([0.4 * row.gates for row in rows])
    assert all(row.loss_db == row.gates / 2 for row in rows)


def test_no_path_is_over_the_loss_budget() -> None:
    def longest(**values: Any) -> int:
        rows = made(mesh="5x3", studies=["route"], cover=True, **values).predict()
        return max(row.gates for row in rows if isinstance(row, RouteRow))

    assert longest(loss_budget_db=6.5) <= 13 < longest()
