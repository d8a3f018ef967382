"""The command without root: what it says of itself, the model's times, and mistakes in one sentence."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from script_runs import called


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables have room for all of their columns."""
    monkeypatch.setenv("COLUMNS", "200")


run = partial(called, "run", "all-to-all")


def predicted(*arguments: object) -> dict[str, list[float]]:
    """By the way of each row of the model's only table: the numbers in it."""
    done = run("--predict", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("MODEL ONLY, nothing was measured") == done.stdout.count("study: ")
    rows = [line.split() for line in done.stdout.splitlines() if line.rstrip().endswith((" ocs", " electrical"))]
    return {row[0]: [float(word) for word in row if word.replace(".", "").isdigit()] for row in rows}


def test_quick_needs_seconds_and_is_near_the_formula_where_slots_end_when_all_have_sent() -> None:
    done = run("--quick", "--predict")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.split("study: slot")[0].splitlines() if line.startswith("rotor")]
    times = {row[1]: [float(word) for word in row if word.count(".") == 1][-2:] for row in rows}
    assert set(times) == {"4", "8"}
    assert all(model_s < 1.05 * formula_s < 2 for model_s, formula_s in times.values())


def test_a_file_and_options_that_go_before_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("experiment: all-to-all\nstudies: [grid]\npolicies: [rotor]\nranks: [4]\nsizes: [1000000]\n")
    assert predicted(file, "--ranks", 6)["rotor"][0] == 6
