"""The labs that the model marks: what is there at the start has no points, what solves them has all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import nbformat
import pytest
from checkout import ROOT
from nbclient import NotebookClient

from commands.exercises.check import main
from commands.exercises.exercise import Missing
from commands.exercises.hide_reconfiguration import EXERCISE as HIDE
from commands.exercises.model import chooses, gives

LESSONS = ("ring-and-tree", "straggler", "rotor", "opus-slope", "hide-reconfiguration")
SOLUTIONS = Path(__file__).parent / "solutions"
POINTS = [((2.0, 3.0), {"sum": 5.0, "product": 6.0})]


def copied(name: str, folder: Path) -> Path:
    return shutil.copytree(ROOT / "labs" / name, folder / name)


@pytest.mark.parametrize("name", LESSONS)
def test_a_solution_has_all_points(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = copied(name, tmp_path)
    shutil.copytree(SOLUTIONS / name, place, dirs_exist_ok=True)
    status, printed = main([str(place)]), capsys.readouterr().out
    assert (status, printed.splitlines()[-1]) == (0, "10 of 10 points"), printed


@pytest.mark.parametrize("name", LESSONS)
def test_a_notebook_is_kept_without_outputs_and_writes_the_start_file(name: str) -> None:
    notebook = nbformat.read(ROOT / "labs" / name / "notebook.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") for cell in notebook.cells)
    (written,) = (cell.source for cell in notebook.cells if cell.source.startswith("%%writefile "))
    first, _, text = written.partition("\n")
    assert (ROOT / "labs" / name / first.split()[1]).read_text() == text + "\n"


@pytest.mark.parametrize(
    "name", ["rotor", *(pytest.param(name, marks=pytest.mark.thorough) for name in LESSONS if name != "rotor")]
)
def test_a_notebook_runs_to_its_points(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell runs; the last one checks the start file, which has no points."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    place = copied(name, tmp_path)
    notebook = nbformat.read(place / "notebook.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(place)}}).execute()
    assert "0 of 10 points" in notebook.cells[-1].outputs[0]["text"]
    shown = [kind for cell in notebook.cells for output in cell.get("outputs", []) for kind in output.get("data", {})]
    assert "image/png" in shown, json.dumps(shown)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("return a * b", r"^law\(2, 3\) returns 6; the model gives 5$"),
        ("return None", r"^law\(2, 3\) returns None; return a number$"),
        ("return True", "return a number$"),
        ("return float('nan')", "return a number$"),
        ("return '5'", "return a number$"),
    ],
)
def test_a_wrong_law_gets_a_sentence(body: str, sentence: str, tmp_path: Path) -> None:
    tmp_path.joinpath("laws.py").write_text(f"def law(a, b):\n    {body}\n")
    with pytest.raises(Missing, match=sentence):
        gives("law", lambda: POINTS, "sum", 0.01)(tmp_path / "laws.py")


def test_a_law_may_be_off_by_the_share_that_is_allowed(tmp_path: Path) -> None:
    tmp_path.joinpath("laws.py").write_text("def law(a, b):\n    return 5.04\n")
    gives("law", lambda: POINTS, "sum", 0.01)(tmp_path / "laws.py")
    with pytest.raises(Missing):
        gives("law", lambda: POINTS, "sum", 0.001)(tmp_path / "laws.py")


def test_a_choice_counts_where_it_is_clear(tmp_path: Path) -> None:
    tmp_path.joinpath("laws.py").write_text("def law(a, b):\n    return 'product'\n")
    chooses("law", lambda: POINTS, 1.3)(tmp_path / "laws.py")
    with pytest.raises(Missing, match=r"^law\(2, 3\) returns 'product'; the model gives sum 5, product 6$"):
        chooses("law", lambda: POINTS, 1.1)(tmp_path / "laws.py")


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ("{}", "dp.t0.s0 has asked and has no circuit"),
        ("self.joined(group, {})", "when dp.t0.s1 asks, dp.t0.s0 loses a circuit on which it may be sending"),
    ],
)
def test_a_policy_must_keep_and_give_circuits(wanted: str, sentence: str, tmp_path: Path) -> None:
    place = copied("hide-reconfiguration", tmp_path)
    text = (place / HIDE.file).read_text()
    (place / HIDE.file).write_text(
        text.replace('raise NotImplementedError("say which circuits must exist")', f"return {wanted}")
    )
    with pytest.raises(Missing, match=sentence):
        HIDE.parts[0].check(place / HIDE.file)


@pytest.mark.parametrize(("part", "sentence"), [(1, "at 220 ms a step takes"), (3, "at 77 ms a step takes")])
def test_a_policy_that_changes_as_opus_does_hides_nothing(part: int, sentence: str, tmp_path: Path) -> None:
    place = copied("hide-reconfiguration", tmp_path)
    (place / HIDE.file).write_text("from controllers.policies.opus import OpusPolicy as Hide\n")
    with pytest.raises(Missing, match=sentence):
        HIDE.parts[part].check(place / HIDE.file)
    HIDE.parts[2].check(place / HIDE.file)


@pytest.mark.parametrize("paths", ["[]", "group_paths(group)"])
@pytest.mark.parametrize("part", range(len(HIDE.parts)))
def test_a_policy_without_circuits_has_no_points(part: int, paths: str, tmp_path: Path) -> None:
    """It asks for nothing, so nothing is dark; and no packet would arrive."""
    tmp_path.joinpath(HIDE.file).write_text(
        "from controllers.policies.policy import StandingPolicy\n"
        "from controllers.policies.wiring import group_paths\n"
        f"class Hide(StandingPolicy):\n    def paths(self, group, current):\n        return {paths}\n"
    )
    with pytest.raises(Missing, match=r"dp.t0.s0 has asked and has no circuit"):
        HIDE.parts[part].check(tmp_path / HIDE.file)
