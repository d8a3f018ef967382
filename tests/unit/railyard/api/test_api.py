"""The API as a user's program has it, by real predictions beside folders that are called as packages of ours."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy
import pytest
from checkout import ROOT

import railyard as ry
from railyard.errors import ConfigError

DELAYS: Any = {"workload": "smoke", "modes": ["electrical", "on-demand"], "delays_ms": [0, 200]}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with packages of the user's own."""
    folder = tmp_path_factory.mktemp("mine")
    for name in ("experiments", "topos", "commands"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise RuntimeError('mine')\n")
    (folder / "mine.py").write_text(
        "from controllers.policies.opus import OpusPolicy\nprint('hello')\nclass Mine(OpusPolicy):\n    'Opus again.'\n"
    )
    return folder


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


@pytest.fixture(scope="module")
def predicted(place: Path) -> ry.Results:
    with pytest.MonkeyPatch.context() as here:
        here.chdir(place)
        return ry.predict("rails", **DELAYS)


@pytest.fixture(scope="module")
def kept(place: Path) -> ry.Results:
    """The same in a folder, ``kept`` of the working directory."""
    with pytest.MonkeyPatch.context() as here:
        here.chdir(place)
        return ry.predict("rails", out=place / "kept", **DELAYS)


def test_an_import_loads_neither_packages_of_others_nor_the_tree() -> None:
    code = (
        "import sys; import railyard as ry; assert not [m for m in sys.modules if m.startswith('railyard.')]\n"
        "ry.predict, ry.up, ry.Results; print(*{name.partition('.')[0] for name in sys.modules})"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    own = set(done.stdout.split()) - set(sys.stdlib_module_names) - {"__main__"}
    assert own == {"railyard"}


def test_names_of_the_api_are_there_and_no_others() -> None:
    assert set(ry.__all__) <= set(dir(ry)) and all(getattr(ry, name).__doc__ for name in ry.__all__)
    with pytest.raises(AttributeError, match="no attribute 'perdict'"):
        _ = ry.perdict  # type: ignore[attr-defined]


def test_a_prediction_has_rows_and_no_verdict(predicted: ry.Results) -> None:
    assert [(row.mode, row["reconfiguration_delay_ms"]) for row in predicted] == [
        *(("electrical", 0), ("on-demand", 0), ("on-demand", 200)),
    ]
    law = predicted[1].predicted_step_time_s + 2 * 0.2
    assert predicted[2].predicted_step_time_s == pytest.approx(law) and len(predicted[1:]) == 2
    assert predicted.faithful is None and predicted.verdict == "predicted only" and predicted.folder is None
    assert predicted.frame()["mode"].tolist() == ["electrical", "on-demand", "on-demand"]
    assert "predicted only" in repr(predicted) and predicted.events() == []


def test_tables_are_those_of_the_command_and_escaped(predicted: ry.Results, kept: ry.Results, tmp_path: Path) -> None:
    tables = str(predicted)
    assert tables.startswith("smoke, seed 1 (MODEL ONLY, nothing was measured)\n") and "timetable" not in tables
    shown = predicted._repr_html_()
    assert "<td>on-demand</td>" in shown and "1.6734</td>" in shown and "<b>predicted only</b>" in shown
    again = copytree("kept", tmp_path / "again")
    (again / "summary.json").write_text(json.dumps([{**row, "mode": "<script>"} for row in kept]))
    shown = ry.load(again)._repr_html_()
    assert "<script" not in shown and "&lt;script&gt;" in shown


def test_a_row_is_a_mapping_whose_keys_are_attributes(predicted: ry.Results) -> None:
    row = predicted[0]
    assert "mode" in row and "mode" in dir(row) and dict(row)["mode"] == row.mode
    assert pickle.loads(pickle.dumps(row)) == copy.deepcopy(row) == row
    with pytest.raises(AttributeError, match='no column step_tim; did you mean "step_time_s"'):
        _ = row.step_tim


def test_a_figure_is_drawn_when_it_is_asked_for_and_goes_with_the_results() -> None:
    found = ry.predict("rails", **DELAYS)
    with pytest.raises(ConfigError, match="no figure gantt; use overhead, step-time"):
        found.figure("gantt")
    figure = found.figure("step-time")
    assert figure.path.exists() and figure._repr_png_().startswith(b"\x89PNG")
    del found
    assert not figure.path.exists()


def test_results_in_a_folder_are_loaded_again(tmp_path: Path, predicted: ry.Results, kept: ry.Results) -> None:
    folder = copytree("kept", tmp_path / "kept")
    again = ry.load(folder)
    assert list(again) == list(kept) == list(predicted) and again.folder == folder
    before = sorted(tmp_path.rglob("*"))
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "railyard_results": 1}))
    with pytest.raises(ConfigError, match="has format 1 and this version reads"):
        ry.load(folder)
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(ConfigError, match="is not a Railyard results folder; it does not exist"):
        ry.load("nosuch")


def test_a_file_has_its_keys_and_keywords_go_before_them_also_in_a_rule_about_two(place: Path) -> None:
    (place / "x.yaml").write_text("workload: smoke\nsteps: 30\nmodes: [provisioned]\ndelays_ms: [100]\n")
    (row,) = ry.predict("x.yaml", delays_ms=numpy.array([1]), profile_steps=10)
    assert (row.mode, row.reconfiguration_delay_ms) == ("provisioned", 1)
    with pytest.raises(ConfigError, match=r"^steps: must be more than profile_steps 30"):
        ry.predict(place / "x.yaml", profile_steps=30)


def test_notes_of_a_prediction_are_with_its_tables() -> None:
    timed = ry.predict("rails", workload="smoke", modes=["on-demand"], delays_ms=[0], events="1s fail rail0:1")
    for shown in (str(timed), timed._repr_html_()):
        assert "Not predicted: what the timetable (events)" in shown


def test_an_experiment_without_packets_has_rows_too(tmp_path: Path) -> None:
    found = ry.run("mesh", width=3, height=3, ports=8, only=1, out=tmp_path / "mesh", quiet=True)
    assert [row.routable for row in found] == [True] and found.verdict == "computed without packets"
    assert list(ry.load(tmp_path / "mesh")) == list(found)


def test_a_class_of_a_file_in_the_working_directory_and_what_it_prints_is_no_result() -> None:
    (row,) = ry.predict("rails", workload="smoke", modes=["on-demand"], delays_ms=[0], policy="mine.py:Mine")
    assert row.policy.endswith("mine.py:Mine")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ry.predict("rails", delay_ms=[0]), 'delay_ms: there is no such key; did you mean "delays_ms"?'),
        (lambda: ry.predict("rails", scale={"tiem": 2}), 'scale.tiem: there is no such key; did you mean "time"?'),
        (lambda: ry.predict("rails", steps=object()), "steps: must be text, a number, or a list or mapping of such"),
        (lambda: ry.predict("--help"), "what: must be an experiment or a file, not '--help'"),
        (lambda: ry.predict("rials"), "experiment: 'rials' is not an experiment; did you mean \"rails\"?"),
    ],
)
def test_wrong_keys_are_named_as_they_were_written(call: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()  # type: ignore[operator]
    assert str(caught.value) == sentence


def test_a_sweep_of_a_mapping_and_its_folder_again(tmp_path: Path) -> None:
    sweep = {"sweep": "mine", "experiment": "rails", "base": {"workload": "smoke", "modes": ["on-demand"]},
             "grid": {"delays_ms": [0, 100]}, "predict": True}  # fmt: skip
    found = ry.sweep(sweep, out=tmp_path / "swept", quiet=True)
    assert [row.delays_ms for row in found] == [0, 100] and found.faithful is None
    assert list(ry.sweep(tmp_path / "swept", quiet=True)) == list(found)
    assert "2 of 2 points done" in str(found) and "<table>" in found._repr_html_()
    with pytest.raises(ConfigError, match=f"by point; load one, such as {tmp_path}/swept/points/"):
        found.events()
    for drawn in (tmp_path / "swept" / "figures").glob("*.png"):
        drawn.unlink()
    with pytest.raises(ConfigError, match="these results have no figure nosuch; use step_time_s"):
        found.figure("nosuch")
    with pytest.raises(ConfigError, match="is that of a sweep, whose results are in the folders below"):
        ry.load(tmp_path / "swept")
