"""``railyard sweep``: begin, list, run one point, status, merge, and one sentence for what is wrong."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from commands.completion import words
from commands.main import main
from commands.sweep.command import estimate_s, in_time
from commands.sweep.folder import Ended, SweepFolder
from commands.sweep.spec import read_spec

TEXT = "sweep: mine\nexperiment: fabric-cost\ngrid: {gpus: [[1024], [2048]]}\n"
MODEL = "experiment: rails\nbase: {workload: smoke, modes: [on-demand]}\ngrid: {delays_ms: [[0.0], [50.0]]}\n"


def file_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    return path


def test_listed_commands_run_the_points_and_merge_makes_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "it's mine"
    assert main(["sweep", str(file_of(tmp_path, TEXT)), "--out", str(folder), "--list"]) == 0
    commands = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert [command[1:4] for command in commands] == [["sweep", "point", str(folder)]] * 2
    assert main(commands[0][1:]) == 0
    assert "done" in capsys.readouterr().err
    assert main(commands[0][1:]) == 0
    assert "is done: nothing to do" in capsys.readouterr().err
    assert main(["sweep", "merge", str(folder)]) == 9
    assert "PARTIAL 1 of 2 points: 0 failed, 1 to be run" in capsys.readouterr().out
    assert main(["sweep", "status", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["total"], found["done"], found["pending"], found["running"]) == (2, 1, 1, [])
    assert found["left_s"] > 0
    assert main(["sweep", str(folder)]) == 0
    said = capsys.readouterr()
    assert "mine: fabric-cost, 2 of 2 points done, 0 failed\n" in said.out and "[2/2]" in said.err
    assert max(map(len, said.out.splitlines()[:-1])) <= 80
    assert len(json.loads((folder / "rows.json").read_text())) == 10
    assert (folder / "table.csv").read_text().startswith("sweep.gpus,sweep.repeats,sweep.host,sweep.attempts,experi")


def test_a_limit_and_the_same_file_again_with_its_folder_and_the_rows_of_predict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["sweep", str(file_of(tmp_path, MODEL)), "--predict", "--out", str(tmp_path / "folder"), "--no-figures"]
    assert main([*line, "--limit", "1"]) == 9
    assert main(line) == 0
    said = capsys.readouterr()
    assert "MODEL ONLY" in said.out and "[2/2] delays_ms " in said.err and ", repeat 1: done (" in said.err
    sweep = SweepFolder.open(tmp_path / "folder")
    point, ended = next(sweep.done())
    assert main(["predict", str(sweep.place(point) / "experiment.yaml"), "--json"]) == 0
    rows = sweep.place(point) / f"attempt-{ended.attempt}" / "rows.json"
    assert json.loads(rows.read_text()) == json.loads(capsys.readouterr().out)
    file_of(tmp_path, MODEL.replace("50.0", "60.0"))
    assert main(line) == 2
    assert "holds another sweep than" in capsys.readouterr().err


SEVERAL = """sweep: several
experiment: rails
base: {workload: smoke}
grid:
  modes: [[electrical, on-demand, provisioned]]
  delays_ms: [[0.0, 1.0], [0.0, 10.0, 100.0]]
  fabric.mtu: MTUS
"""


@pytest.mark.parametrize(("mtus", "drawn"), [("[4200, 9000]", True), ("[4200]", False)])
def test_a_table_of_several_modes_and_delays_a_point_has_the_columns_of_the_experiment(
    mtus: str, drawn: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_of(tmp_path, SEVERAL.replace("MTUS", mtus))
    assert main(["sweep", str(file), "--predict", "--out", str(tmp_path / "f")]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert max(map(len, lines[:-1])) <= 80 and "…" not in said
    same = "modes electrical,on-demand,provisioned" + ("" if drawn else ", fabric.mtu 4200")
    assert lines[1] == f"In all rows: {same}"
    assert (lines[2].split(), lines[3].split()) == (
        ["delay", "model"],
        ["delays_ms", *(["fabric.mtu"] if drawn else []), "mode", "ms", "s"],
    )
    assert lines[4].split()[-3:] == ["electrical", "0", "1.2734"]
    assert any(line.split()[-3:] == ["on-demand", "10", "1.2934"] for line in lines)
    assert ("No figure: " in said) is not drawn and any((tmp_path / "f").glob("figures/*.png")) is drawn


@pytest.mark.parametrize(
    ("of", "first", "second"), [("the model", ["--predict"], []), ("measurements", [], ["--predict"])]
)
def test_a_sweep_of_the_model_is_not_gone_on_with_as_one_of_measurements(
    of: str, first: list[str], second: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["sweep", str(file_of(tmp_path, MODEL)), "--out", str(tmp_path / "folder"), "--list"]
    assert main([*line, *first]) == main([*line, *first]) == 0
    assert main([*line, *second]) == 2
    assert f"{tmp_path / 'folder'} is a sweep of {of}; name a new folder" in capsys.readouterr().err


def test_a_point_that_has_failed_says_so_until_it_is_asked_for_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = SweepFolder.create(tmp_path / "folder", read_spec(file_of(tmp_path, TEXT)))
    point = sweep.points[0]
    sweep.begin(point)
    sweep.end_attempt(point, Ended(1, 5, "here", 1.0, said="no room"))
    assert main(["sweep", "point", str(sweep.path), point.name]) == 5
    assert f"{point.name} has failed: no room; it is run again after" in capsys.readouterr().err
    assert main(["sweep", str(sweep.path), "--list"]) == 0
    assert point.name not in capsys.readouterr().out
    assert main(["sweep", str(sweep.path), "--list", "--again"]) == 0
    assert point.name in capsys.readouterr().out
    assert main(["sweep", "point", str(sweep.path), point.name]) == 0


def test_what_is_said_of_rows_that_cannot_be_read_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = SweepFolder.create(tmp_path / "folder", read_spec(file_of(tmp_path, TEXT)))
    assert main(["sweep", str(sweep.path), "--no-figures"]) == 0
    place = sweep.place(sweep.points[0])
    (place / "attempt-1" / "results" / "summary.json").write_text("{")
    capsys.readouterr()
    assert main(["sweep", "merge", str(sweep.path), "--no-figures"]) == 2
    assert f"remove the folder of its point, {place}, and resume the sweep" in capsys.readouterr().err
    shutil.rmtree(place)
    assert main(["sweep", str(sweep.path), "--no-figures"]) == 0


def test_the_code_of_a_folder_of_someone_else_is_not_executed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tmp_path / "mine.py"
    code.write_text(
        "from experiments.fabric_cost.experiment import FabricCost\nclass Mine(FabricCost):\n    name = 'mine'\n"
    )
    folder, path = tmp_path / "folder", file_of(tmp_path, TEXT.replace("fabric-cost", f"{code}:Mine"))
    assert main(["sweep", str(path), "--out", str(folder), "--list"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f"--experiment {code}:Mine")
    code.write_text(code.read_text() + f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    assert main(["sweep", str(folder)]) == main(["sweep", "merge", str(folder)]) == 2
    assert "whose code is not part of Railyard; name it: --experiment" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("seconds", "left", "at_once", "found"),
    [([], 3, 1, None), ([2.0, 4.0], 3, 1, 9.0), ([2.0, 4.0], 3, 3, 3.0), ([1.0] + [5.0] * 20, 2, 0, 10.0)],
)
def test_the_estimate_is_the_mean_of_the_last_points(
    seconds: list[float], left: int, at_once: int, found: float | None
) -> None:
    assert estimate_s(seconds, left, at_once) == found


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(8.4, "8 s"), (119, "119 s"), (300, "5 min"), (7800, "2 h 10 min"), (200_000, "2 days 7 h")],
)
def test_durations_for_people(seconds: float, words: str) -> None:
    assert in_time(seconds) == words


def test_words_that_complete_a_command_line() -> None:
    assert "sweep" in words([]) and {"status", "merge", "point", "--list", "--out"} <= set(words(["sweep"]))
