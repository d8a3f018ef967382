"""``railyard export``: the crate of a complete, a partial and a foreign folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from commands.main import main
from measure.results.folder import FolderLock
from measure.results.manifest import build_manifest
from measure.results.results import Results
from railyard.scale import Scale


def folder_of(path: Path, **manifest: Any) -> Results:
    plain = build_manifest(experiment={"experiment": "rails"}, seed=1, scale=Scale(1.0), plans=[], groups={})
    results = Results.create(path, {**plain, "planned": 0, "ended": "complete", **manifest})
    results.free()
    return results


def exported(folder: Path) -> dict[str, Any]:
    data = json.loads((folder / "ro-crate-metadata.json").read_text())
    return {entity["@id"]: entity for entity in data["@graph"]}


def test_a_run_is_exported_with_its_command_and_its_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, file = tmp_path / "out", tmp_path / "my.yaml"
    file.write_text("experiment: fabric-cost\ngpus: [512]\n")
    assert main(["run", str(file), "--out", str(out)]) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["command"] == f"railyard run {file} --out {out}"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert manifest["inputs"] == [{"file": str(file), "bytes": file.stat().st_size, "sha256": digest}]
    assert manifest["machine"]["cpu"] and len(manifest["machine"]["load_before"]) == 3
    assert manifest["ended_at"] >= manifest["written"]
    for _ in range(2):  # the second replaces the first, and does not describe it
        assert main(["export", str(out)]) == 0
    assert capsys.readouterr().out.endswith(f"{out / 'ro-crate-metadata.json'}\n")
    found = exported(out)
    names = {"manifest.json", "summary.json", "summary.csv", "figures/fabric-cost.png", "report.html"}
    assert {part["@id"] for part in found["./"]["hasPart"]} == names
    for name in names:
        assert found[name]["contentSize"] == str((out / name).stat().st_size)
    assert found["#run"]["description"] == manifest["command"] and found["#input-0"]["sha256"] == digest


def test_partial_results_are_exported_and_end_with_9(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path / "a", planned=4, ended="stopped: by a signal").folder
    assert main(["export", str(folder)]) == 9
    assert "PARTIAL 0 of 4 points: stopped: by a signal" in capsys.readouterr().out
    assert exported(folder)["./"]["creativeWorkStatus"] == "PARTIAL 0 of 4 points: stopped: by a signal"
    assert exported(folder)["#run"]["actionStatus"]["@id"].endswith("/FailedActionStatus")


def test_a_row_of_three_repeats_is_complete(tmp_path: Path) -> None:
    results = folder_of(tmp_path / "a", planned=3, experiment={"experiment": "rails", "repeats": 3})
    results.write("summary.json", json.dumps([{"samples": {"step_time_s": [1.0, 1.1, 1.2]}}]))
    assert main(["export", str(results.folder)]) == 0
    assert "creativeWorkStatus" not in exported(results.folder)["./"]


def test_a_run_under_way_is_said_to_be_active(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    lock = FolderLock.claim(tmp_path / "a")
    results = Results(tmp_path / "a")
    results.write_manifest({"railyard_results": 1, "planned": 2, "experiment": {"experiment": "rails"}})
    assert main(["export", str(results.folder)]) == 9
    lock.free()
    assert exported(results.folder)["#run"]["actionStatus"]["@id"].endswith("/ActiveActionStatus")


def test_neither_the_token_nor_links_are_described(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a").folder
    (folder / "rest-token").write_text("secret")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / ".summary.json.1").write_text("draft")
    assert main(["export", str(folder)]) == 0
    assert [part["@id"] for part in exported(folder)["./"]["hasPart"]] == ["manifest.json"]


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (None, "is not a Railyard results folder; it has no manifest.json by Railyard"),
        ({"railyard_results": 99}, "has format 99 and this version reads 1; use the version that wrote it"),
        ({"railyard_results": 1, "ended": "complete", "inputs": ["x"]}, "holds what Railyard "),
        ({"railyard_results": 1, "ended": "complete", "versions": [1]}, "holds what Railyard "),
    ],
)
def test_a_folder_that_is_no_results_folder_of_this_version(
    manifest: Any, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert main(["export", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
    assert not (tmp_path / "ro-crate-metadata.json").exists()
