"""The overhead over packet switches: by the model beside the published one, in tables, figures and folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reports import printed

from commands.main import main
from experiments.rails.experiment import Rails
from experiments.rails.figures import overhead
from experiments.rails.overhead import published_overhead
from experiments.rails.row import RailRow


def predicted(workload: str, mode: Any, delay_ms: float, step_s: float) -> dict[str, Any]:
    row = RailRow(
        workload=workload,
        fabric="ocs",
        mode=mode,
        policy="opus",
        reconfiguration_delay_ms=delay_ms,
        link_recovery_ms=0.0,
        predicted_step_time_s=step_s,
    )
    return row.to_json()


LLAMA = [
    predicted("llama3-8b-16", "electrical", 0.0, 10.0),
    predicted("llama3-8b-16", "on-demand", 100.0, 10.6),
    predicted("llama3-8b-16", "provisioned", 30.0, 10.1),
]


def test_the_published_overhead_is_over_the_published_step_without_a_delay() -> None:
    assert [published_overhead(row) for row in LLAMA] == [None, pytest.approx((10.904 / 10.442 - 1) * 100), None]
    assert published_overhead({**LLAMA[2], "reconfiguration_delay_ms": 0.0}) == 0.0
    alone = predicted("pp-only", "on-demand", 100.0, 7.0)
    assert published_overhead(alone) == pytest.approx((7.732 / 7.747 - 1) * 100)
    assert published_overhead({**alone, "mode": "provisioned"}) is None
    assert published_overhead({**alone, "workload": "smoke"}) is None


def test_the_table_has_both_overheads_beside_each_other() -> None:
    lines = [line.split() for line in printed(Rails, LLAMA).splitlines()]
    assert ["on-demand", "100", "10.600", "+6", "+4.42", "opus"] in lines
    assert ["provisioned", "30", "10.100", "+1", "-", "opus"] in lines


def test_the_figure_has_lines_of_the_model_and_open_markers_of_what_was_published() -> None:
    figure = overhead(LLAMA)
    assert figure is not None
    (axes,) = figure.axes
    opened = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    (marker,) = [tuple(np.asarray(line.get_xydata()).ravel()) for line in opened]
    assert marker == pytest.approx((100.0, 4.42), abs=0.01)
    entries = [" ".join(text.get_text().split()) for legend in figure.legends for text in legend.get_texts()]
    assert "open: derived by us from authors' files, measured; over delay 0" in entries
    assert [legend.get_title().get_text() for legend in figure.legends] == ["lines: model", ""]
    assert overhead(LLAMA[:1]) is None
    assert overhead(LLAMA[1:]) is None, "there is no point on packet switches"


def test_measured_overheads_are_paired_within_a_repeat() -> None:
    """Both modes are 5 % longer in the second repeat, so that the overhead is the same and its interval is empty."""
    steps = {"electrical": [10.0, 10.5], "on-demand": [11.0, 11.55]}
    rows = [{**row, "samples": {"step_time_s": steps[row["mode"]]}, "faithful": True} for row in LLAMA[:2]]
    figure = overhead(rows)
    assert figure is not None
    bars = [np.asarray(line.get_ydata()) for line in figure.axes[0].lines if line.get_marker() == "_"]
    assert [list(bar) for bar in bars if bar.size == 2] == [pytest.approx([10.0, 10.0])]
    assert "n = 2, whiskers: 95 % interval" in figure.legends[0].get_title().get_text()


def test_a_prediction_can_be_kept_and_drawn_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    line = ["rails", "--workload", "smoke", "--modes", "electrical,on-demand", "--delays", "0.001", "--out", str(out)]
    assert main(["predict", *line]) == 0
    said = capsys.readouterr().out
    assert "MODEL ONLY" in said and said.endswith(f"Results in {out}\n")
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["predicted"], manifest["ended"], manifest["planned"]) == (True, "complete", 2)
    assert sorted(path.name for path in (out / "figures").iterdir()) == ["overhead.png", "step-time.png"]
    assert main(["plot", str(out)]) == 0
    assert "MODEL ONLY" in capsys.readouterr().out
    assert main(["predict", *line]) == 2
    assert "holds the results of a run of " in capsys.readouterr().err
