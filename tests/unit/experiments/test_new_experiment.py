"""The example of docs/new_experiment.md: found by its path, predicted and reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkout import ROOT
from reports import printed, results_of

from commands.main import main
from experiments.redraw import redraw
from experiments.registry import find
from measure.results.plain import plain

FILE = ROOT / "docs" / "examples" / "incast.py"
NAME = f"{FILE}:Incast"


def test_the_model_is_near_the_bound_and_grows_with_the_senders(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", NAME, "--senders", "1,7", "--json"]) == 0
    one, seven = json.loads(capsys.readouterr().out)
    assert one["bound_s"] == pytest.approx((1 << 18) * 8 / 0.05e9, rel=0.02)
    for row in (one, seven):
        assert 1.0 <= row["predicted_step_time_s"] / row["bound_s"] < 1.1
    assert (one["faithful"], one["step_time_s"]) == (None, None)


def test_table_and_figure_come_from_the_folder_alone(tmp_path: Path) -> None:
    kind = find(NAME)
    rows = plain([row.to_json() for row in kind(kind.Settings()).predict()])
    rows = [{**row, "step_time_s": 1.01 * row["predicted_step_time_s"], "faithful": True} for row in rows]
    results = results_of(tmp_path / "out", NAME, kind.rows[0], rows)
    assert [path.name for path in redraw(results.folder, kind)] == ["trace.json", "incast.png"]
    said = printed(kind, rows)
    assert "Faithful: every point keeps every limit." in said
    assert "+1.0" in said and max(map(len, said.splitlines())) <= 80
