"""Results folders that somebody changed: plot, report and explain name the file, the row and the field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from watch.rail_results import rail_results

from commands.main import main
from measure.results.manifest import other_version
from railyard import __version__

Rows = Any


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A results folder of five points, of which the second and the third are not faithful."""
    return rail_results(tmp_path / "out")


def refused(command: list[str], folder: Path, capsys: pytest.CaptureFixture[str], file: str = "summary.json") -> str:
    """What ``command`` says of the file of a folder that it refuses."""
    assert main([*command, str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"railyard: {folder / file}: ") and said.count("\n") == 1
    return said.partition(f"{file}: ")[2].rstrip("\n")


def change(folder: Path, edit: Callable[[Rows], object], name: str = "summary.json") -> None:
    path = folder / name
    found = json.loads(path.read_text())
    edit(found)
    path.write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("number", "values", "sentence"),
    [
        (0, {"step_time_s": float("nan")}, "row 0: step_time_s: must be a finite number, not nan"),
        (0, {"step_time_s": float("-inf")}, "row 0: step_time_s: must be a finite number, not -inf"),
        (0, {"step_time_s": "quick"}, "row 0: step_time_s: must be a number, not 'quick'"),
        (0, {"step_time_s": True}, "row 0: step_time_s: must be a number, not True"),
        (0, {"step_time_s": [1.0]}, "row 0: step_time_s: must be a number; "),
        (0, {"samples": {"step_time_s": [1.0, float("inf")]}}, "row 0: samples.step_time_s.1: must be a finite number"),
        (0, {"mode": 3}, "row 0: mode: must be text, not 3"),
        (0, {"faithful": "yes"}, "row 0: faithful: must be true or false, not 'yes'"),
        (1, {"faithful": True}, "row 1: faithful: is true, but check "),
        (1, {"faithful": True, "checks": []}, "row 1: faithful: is true, but its verdict is NOT FAITHFUL; "),
    ],
)
def test_a_value_that_no_run_writes_is_named(
    number: int, values: dict[str, Any], sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(folder, lambda rows: rows[number].update(values))
    for command in ("plot", "report", "explain"):
        said = refused([command], folder, capsys)
        assert said.startswith(sentence) and said.endswith("; restore the file, or run the experiment again")


@pytest.mark.parametrize("command", [["plot"], ["explain"]])
@pytest.mark.parametrize("line", ["rubbish", "[]", "{}", '{"t": 1.0, "sour'])
def test_a_line_that_is_no_event_is_named(
    command: list[str], line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "points" / "000" / "events.jsonl"
    path.write_text(f"{line}\n{path.read_text()}")
    assert refused(command, folder, capsys, "points/000/events.jsonl:1").startswith("is no event; restore the file")


def test_a_row_of_another_version_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(folder, lambda rows: rows[2].pop("samples"))
    assert refused(["plot"], folder, capsys).startswith("row 2: samples: is missing; restore the file")
    change(folder, lambda manifest: manifest["versions"].update(railyard="0.3.0"), "manifest.json")
    remedy = f"Railyard 0.3.0 wrote it, and this is {__version__}: use that version, or run it again"
    for command in ("plot", "report", "explain"):
        assert refused([command], folder, capsys) == f"row 2: samples: is missing; {remedy}"
    change(folder, lambda manifest: manifest.pop("scale"), "manifest.json")
    assert refused(["plot"], folder, capsys, "manifest.json").endswith(f"needs it; {remedy}")


@pytest.mark.parametrize("versions", [None, [1], {}, {"railyard": 3}, {"railyard": __version__}])
def test_a_version_that_is_not_known_is_not_named(versions: object) -> None:
    assert other_version({"versions": versions}) is None
