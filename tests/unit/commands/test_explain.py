"""``railyard explain``: what is said of critical paths that went different ways, and of a prediction."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands.explain import ExplainedPoint, _path_lines
from commands.main import main
from measure.metrics.explain import Explanation, Ledger


def lines_of(measured: Ledger, other_ranks: float) -> list[str]:
    predicted: Ledger = {("c", "c", "compute"): 6.0, ("d", "d", "wire"): 4.0}
    return list(
        _path_lines([ExplainedPoint(4, "provisioned 200 ms", 1, Explanation(1, measured, predicted, other_ranks), {})])
    )


def test_a_prediction_alone_explains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["predict", "rails", "--workload", "smoke", "--modes", "electrical", "--no-figures", "--out", out]) == 0
    assert main(["explain", out]) == 2
    assert f"{out} was predicted, not measured; explain compares both" in capsys.readouterr().err


def test_paths_that_differ_are_said() -> None:
    measured: Ledger = {("c", "c", "compute"): 5.322, ("d", "d", "wire"): 3.696, ("d", "d", "peers"): 1.035}
    assert lines_of(measured, 0.34) == [
        "#4 provisioned 200 ms: the critical paths differ: for 34% of a step they run over other ranks, and 982 ms "
        "went from one kind of cost to another; the sum still holds."
    ]


def test_costs_that_do_not_stand_for_each_other_need_no_word() -> None:
    dearer: Ledger = {("c", "c", "compute"): 6.0, ("d", "d", "wire"): 4.0, ("d", "d", "peers"): 1.0}
    assert lines_of(dearer, 0.34) == []
    swapped: Ledger = {("c", "c", "compute"): 5.0, ("d", "d", "wire"): 5.0}
    assert lines_of(swapped, 0.0) == []
