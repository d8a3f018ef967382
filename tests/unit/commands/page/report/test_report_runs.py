"""Where reports come from: predictions, runs that were stopped, two folders; and what the command prints."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from watch.rail_results import rail_results

from commands.main import main
from measure.results.folder import MANIFEST
from measure.results.results import REPORT


def data_in(path: Path) -> Any:
    page = path.read_text()
    found = re.search(r'id="railyard-data">([^<]+)<', page)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rail_results(tmp_path_factory.mktemp("results") / "run")


def test_a_report_has_every_point_its_stamps_and_ends_as_the_run_did(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.html"
    assert main(["report", str(measured), "--out", str(out)]) == 8
    assert capsys.readouterr().out == f"{out}\n"
    (run,) = data_in(out)["runs"]
    assert sorted(run["timelines"]) == sorted(run["strips"]) == ["0", "1", "2", "3", "4"]
    assert [stamp["kind"] for stamp in run["overview"]["stamps"]] == ["NOT FAITHFUL"]
    assert all(run["timelines"][n]["bars"] for n in run["timelines"])
    assert len(out.read_bytes()) < 1_000_000


def test_a_partial_run_is_stamped(measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(shutil.copytree(measured, tmp_path / "run"))
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "ended": "stopped: by a signal", "planned": 9}))
    assert main(["report", str(folder)]) == 9
    assert "PARTIAL" in [stamp["kind"] for stamp in data_in(folder / REPORT)["runs"][0]["overview"]["stamps"]]
    assert "PARTIAL" in (folder / REPORT).read_text().partition('id="record"')[2].partition("</details>")[0]


def test_a_prediction_has_a_report_that_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    line = ["rails", "--workload", "smoke", "--modes", "electrical", "--delays", "0", "--out", str(out)]
    assert main(["predict", *line]) == 0
    assert capsys.readouterr().out.endswith(f"Report (opens in a browser): {out / REPORT}\nResults in {out}\n")
    assert [stamp["kind"] for stamp in data_in(out / REPORT)["runs"][0]["overview"]["stamps"]] == ["MODEL ONLY"]
    before = (out / REPORT).stat().st_ino
    assert main(["plot", str(out), "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out / REPORT)
    assert (out / REPORT).stat().st_ino != before


def test_without_figures_there_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    line = ["rails", "--workload", "smoke", "--modes", "electrical", "--delays", "0", "--no-figures", "--out", str(out)]
    assert main(["predict", *line]) == 0
    assert not (out / REPORT).exists() and "Report" not in capsys.readouterr().out


def test_two_folders_are_printed_and_written(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    longer = rail_results(tmp_path / "longer", longer=1.1)
    assert main(["report", str(measured), str(longer)]) == 8
    said = capsys.readouterr().out
    assert "A: run\nB: longer\n" in said and said.endswith("comparison.html\n")
    assert said.count("+10.00") == 5 and "A, B: NO" in said and "95 % interval" not in said
    assert max(map(len, said.splitlines()[:-1])) <= 80
    data = data_in(tmp_path / "comparison.html")
    assert [run["overview"]["name"] for run in data["runs"]] == ["run", "longer"]
    assert data["comparison"]["names"] == ["run", "longer"]
    assert not (longer / REPORT).exists()


def test_a_report_that_cannot_be_written_is_one_sentence(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("commands.page.report.file.Results.write", refused)
    assert main(["report", str(measured), "--out", str(tmp_path / "x.html")]) == 2
    assert "belongs to another user; use sudo, or name another file" in capsys.readouterr().err
