"""RO-Crate metadata: what the specification asks for, and the run with its command, software, inputs and end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from checkout import ROOT

from measure.results.crate import CRATE, HeldFile, crate_of, licence_address
from railyard import AUTHORS, LICENSE, __version__

MANIFEST: dict[str, Any] = {
    "railyard_results": 1,
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


def test_a_manifest_of_an_earlier_version_gives_what_it_has() -> None:
    old = {key: MANIFEST[key] for key in ("railyard_results", "written", "experiment", "ended")}
    found = crate({**old, "versions": {"kernel": "6.1"}})
    assert "description" not in found["#run"] and "object" not in found["#run"] and "endTime" not in found["#run"]
    assert "softwareVersion" not in found["#railyard"] and "processorRequirements" not in found["#railyard"]
    assert "predicted by its model" in crate({**old, "predicted": True})["./"]["description"]


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
