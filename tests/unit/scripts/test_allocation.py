from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from checkout import ROOT
from script_runs import called


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )


def test_quick_leaves_a_results_folder_that_can_be_drawn_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("allocation.py", "--quick", "--racks", 16, "--seed", 3, "--out", out, "--json", tmp_path / "rows.json")
    assert done.returncode == 0, done.stderr
    assert "paper" in done.stdout
    rows = json.loads((out / "summary.json").read_text())
    assert rows == json.loads((tmp_path / "rows.json").read_text())
    assert {row["study"] for row in rows} == {"fragmentation", "protocols", "overprovision"}
    served = [row for row in rows if row["system"] == "morphlux" and row["protocol"] == "per-rack"]
    assert served and all(not row["failed"] for row in served)
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["seed"], manifest["ended"]) == (3, "complete")
    again = run("plot.py", out, "--quiet")
    assert again.returncode == 0, again.stderr
    assert len(again.stdout.split()) == 4, "figures and the report"


def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    for wrong in (("--racks", -1), ("--freed", 2), ("--torus", "4x4x3", "--server", "2x2x2"), ("--mix", "x")):
        done = called("run", "allocation", *wrong, "--out", tmp_path / "out")
        assert done.returncode == 2
        assert done.stderr.startswith("railyard: ")
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
