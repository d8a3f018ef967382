from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from checkout import ROOT


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
    assert {row["study"] for row in rows} == {"fragmentation", "protocols", "overprovision", "reserve"}
    served = [row for row in rows if row["system"] == "morphlux" and row["protocol"] == "per-rack"]
    assert served and all(not row["failed"] for row in served)
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["seed"], manifest["ended"]) == (3, "complete")
    again = run("plot.py", out, "--quiet")
    assert again.returncode == 0, again.stderr
    assert len(again.stdout.split()) == 4, "figures and the report"
