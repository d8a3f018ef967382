"""Claims in the report of a run: judged by the run where it is that of the claim, else as the documents have them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from commands.claims.claim import DOCS, FILE
from commands.main import main
from commands.page.report.comparison import Side
from commands.page.report.record import concerning
from measure.results.folder import MANIFEST


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the run ``mesh`` of the claims, which is computed in a second."""
    out = tmp_path_factory.mktemp("results") / "out"
    words = ["mesh", "--width", "3", "--height", "3", "--ports", "8", "--exact"]
    assert main(["run", *words, "--no-figures", "--out", str(out)]) == 0
    return out


@pytest.fixture
def mesh(computed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(computed, tmp_path / "out"))


def evidence(folder: Path, **more: Any) -> dict[str, tuple[str, str]]:
    side = Side.read(folder)
    found = concerning(side.kind, side.recorded, **more)
    return {} if found is None else {row["cells"][0].partition(":")[0]: row["cells"][-2:] for row in found["rows"]}


def test_a_claim_is_judged_by_the_run_that_is_its_own(mesh: Path) -> None:
    found = evidence(mesh)
    assert found["pip-matchings"] == ["holds", "this run"]
    assert found["pip-32"][0] == "holds" and found["pip-32"][1].startswith("documents: 20")
    assert evidence(mesh, docs=mesh) == {}
    shutil.copy(DOCS / FILE, mesh)
    assert evidence(mesh, docs=mesh) == {"pip-matchings": ["not measured", "-"], "pip-32": ["not measured", "-"]}


@pytest.mark.parametrize(("key", "value"), [("ports", 6), ("exact", False), ("seed", 9)])
def test_a_run_with_another_setting_is_not_the_claims(mesh: Path, key: str, value: object) -> None:
    manifest = json.loads((mesh / MANIFEST).read_text())
    manifest["experiment"][key] = value
    (mesh / MANIFEST).write_text(json.dumps(manifest))
    assert evidence(mesh)["pip-matchings"][1].startswith("documents: ")
    side = Side.read(mesh)
    found = concerning(side.kind, side.recorded)
    assert found is not None and "neither supports nor refutes" in found["notes"][0]


def test_a_claim_of_the_run_that_does_not_hold_says_so(mesh: Path) -> None:
    rows = json.loads((mesh / "summary.json").read_text())
    rows[2]["routable"] = False
    (mesh / "summary.json").write_text(json.dumps(rows))
    assert evidence(mesh)["pip-matchings"] == ["does not hold", "this run"]
    manifest = json.loads((mesh / MANIFEST).read_text())
    (mesh / MANIFEST).write_text(json.dumps({**manifest, "predicted": True}))
    assert evidence(mesh)["pip-matchings"][1].startswith("documents: ")


def test_settings_that_this_version_does_not_know_are_those_of_no_claim(mesh: Path) -> None:
    manifest = json.loads((mesh / MANIFEST).read_text())
    for settings in ({"experiment": "mesh", "nothing": 1}, {"experiment": "mesh", "width": "wide"}):
        (mesh / MANIFEST).write_text(json.dumps({**manifest, "experiment": settings}))
        assert evidence(mesh)["pip-matchings"][1].startswith("documents: ")
