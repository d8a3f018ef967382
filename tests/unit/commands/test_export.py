"""``railyard export``: the crate of a complete, a partial and a foreign folder, and what the specification asks for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from checkout import ROOT

from commands.export import CRATE, HeldFile, crate_of, licence_address
from commands.main import main
from measure.results.manifest import build_manifest
from measure.results.results import Results
from railyard import AUTHORS, LICENSE, __version__
from railyard.scale import Scale

MANIFEST: dict[str, Any] = {
    "railyard_results": 2,
    "written": "2026-01-31T12:00:00+0100",
    "ended_at": "2026-01-31T12:03:20+0100",
    "ended": "complete",
    "experiment": {"experiment": "rails"},
    "versions": {"railyard": "0.5.0", "kernel": "6.1", "machine": "x86_64, 2 cores", "os-ken": "4.0.0"},
    "git": {"commit": "abc", "changed": True},
    "machine": {"cpu": "A CPU", "clock_source": "tsc", "load_before": [0.1, 0.2, 0.3], "steal": 0.0},
    "command": "railyard run rails --workload my.yaml",
    "inputs": [{"file": "jobs/my.yaml", "bytes": 20, "sha256": "00ff"}],
}
FILES = [HeldFile(PurePosixPath("summary.csv"), 10), HeldFile(PurePosixPath("figures/step time.png"), 20)]


RUN = build_manifest(experiment={"experiment": "rails"}, seed=1, scale=Scale(1.0), plans=[], groups={})


def folder_of(path: Path, **manifest: Any) -> Results:
    results = Results.create(path, {**RUN, "planned": 0, "ended": "complete", **manifest})
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
        ({"railyard_results": 99}, "has format 99 and this version reads 2; use the version that wrote it"),
        (
            {**RUN, "railyard_results": 1, "versions": {"railyard": "0.2"}},
            "reads 2; Railyard 0.2 wrote it, and this is",
        ),
        ({**RUN, "inputs": ["x"]}, "manifest.json: inputs.0: "),
        ({**RUN, "versions": [1]}, "manifest.json: versions: "),
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


# ---- the specification ---------------------------------------------------------------------------------------------


def crate(manifest: dict[str, Any] = MANIFEST, partial: str | None = None, under_way: bool = False) -> dict[str, Any]:
    """The entities of a crate by their id."""
    made = crate_of(manifest, FILES, published="2026-02-01", partial=partial, under_way=under_way)
    assert made["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    entities = {entity["@id"]: entity for entity in made["@graph"]}
    assert len(entities) == len(made["@graph"]), "no id is given twice"
    return entities


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if set(value) == {"@id"}:
            yield value["@id"]
        else:
            for item in value.values():
                yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_the_crate_has_what_the_specification_requires() -> None:
    """RO-Crate 1.1, sections "RO-Crate Metadata File Descriptor" and "Direct properties of the Root Data Entity"."""
    found = crate()
    descriptor, root = found[CRATE], found["./"]
    assert descriptor["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"} and descriptor["about"] == {"@id": "./"}
    assert root["@type"] == "Dataset" and root["name"] and root["description"]
    assert root["datePublished"] == "2026-02-01"
    assert "license" not in root and "author" not in root, "the results are those of the person who ran it"
    assert found["#railyard"]["license"] == {"@id": f"https://spdx.org/licenses/{LICENSE}"}
    assert root["hasPart"] == [{"@id": "summary.csv"}, {"@id": "figures/step%20time.png"}]
    assert found["summary.csv"]["encodingFormat"] == "text/csv" and found["summary.csv"]["contentSize"] == "10"
    assert found["figures/step%20time.png"] == {
        "@id": "figures/step%20time.png",
        "@type": "File",
        "name": "step time.png",
        "contentSize": "20",
        "encodingFormat": "image/png",
    }
    described = set(found) | {"https://w3id.org/ro/crate/1.1", "http://schema.org/CompletedActionStatus"}
    assert set(references(list(found.values()))) <= described


def test_the_run_is_an_action_with_its_command_times_inputs_and_results() -> None:
    found = crate()
    run = found["#run"]
    assert run["@type"] == "CreateAction" and run["description"] == MANIFEST["command"]
    assert (run["startTime"], run["endTime"]) == ("2026-01-31T12:00:00+01:00", "2026-01-31T12:03:20+01:00")
    assert run["result"] == found["./"]["hasPart"] and run["actionStatus"]["@id"].endswith("/CompletedActionStatus")
    (given,) = run["object"]
    assert found[given["@id"]]["sha256"] == "00ff" and found[given["@id"]]["name"] == "my.yaml"
    software = found[run["instrument"]["@id"]]
    assert software["softwareVersion"] == "0.5.0" and software["identifier"] == "git commit abc (changed)"
    assert software["processorRequirements"].startswith("machine: x86_64, 2 cores; cpu: A CPU; clock source: tsc")
    assert [found[each["@id"]]["name"] for each in software["softwareRequirements"]] == ["kernel", "os-ken"]


def test_partial_results_say_so() -> None:
    sentence = "PARTIAL 2 of 8 points: stopped: rank 3 died"
    found = crate({**MANIFEST, "ended": "stopped: rank 3 died"}, sentence)
    assert found["./"]["creativeWorkStatus"] == sentence and sentence in found["./"]["description"]
    assert found["#run"]["actionStatus"]["@id"].endswith("/FailedActionStatus")
    assert found["#run"]["error"] == "stopped: rank 3 died"
    killed = crate({key: value for key, value in MANIFEST.items() if "ended" not in key}, sentence)["#run"]
    assert killed["error"] == sentence and "endTime" not in killed
    active = crate(MANIFEST, sentence, under_way=True)["#run"]
    assert active["actionStatus"]["@id"].endswith("/ActiveActionStatus") and "error" not in active


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("CC-BY-4.0", "https://spdx.org/licenses/CC-BY-4.0"),
        ("cc0-1.0", "https://spdx.org/licenses/CC0-1.0"),
        (LICENSE, f"https://spdx.org/licenses/{LICENSE}"),
        ("https://example.org/terms", "https://example.org/terms"),
    ],
)
def test_the_results_have_the_licence_that_is_asked_for(given: str, address: str) -> None:
    assert licence_address(given) == address
    made = crate_of(MANIFEST, FILES, published="", partial=None, under_way=False, licensed=address)["@graph"]
    assert [each["license"] for each in made if each["@id"] == "./"] == [{"@id": address}]
    assert sum(each["@id"] == address for each in made) == 1
    for wrong in ("my own", "NOSUCH", "LicenseRef-mine", "MIT OR Apache-2.0", ""):
        with pytest.raises(ValueError, match=f"{wrong!r} is no identifier of a licence; give one of SPDX"):
            licence_address(wrong)


def test_author_and_licence_are_those_of_the_citation() -> None:
    citation = yaml.safe_load(Path(ROOT / "CITATION.cff").read_text())
    assert (citation["license"], citation["version"]) == (LICENSE, __version__)
    assert [author["name"] for author in citation["authors"]] == [AUTHORS]
