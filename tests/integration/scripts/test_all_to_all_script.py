"""The all-to-all script as a person runs it, on real packets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from script_runs import ONCE

pytestmark = [pytest.mark.root, pytest.mark.beside]
FINISHED = (0, 8)
"""A run that ended; 8 says that this machine was too busy, which is no affair of these tests."""
ASKED = (
    "experiment fabric policy n bytes_per_pair reconfiguration_delay_ms slot_ms time_s predicted_time_s slots "
    "duty_cycle misdelivered faithful"
)


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    once = () if name == "plot.py" else ONCE
    command = [sys.executable, str(ROOT / "scripts" / name), *once, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, cwd=ROOT)


def test_rows_figures_and_tables_that_plot_draws_again(tmp_path: Path) -> None:
    out = tmp_path / "results"
    options = ("--ranks", "4", "--sizes", "100000,200000", "--iterations", "1", "--slots", "0,60", "--verify")
    done = script("all_to_all.py", "--study", "grid", "--policies", "rotor", *options, "--out", str(out))
    assert done.returncode in FINISHED, done.stderr
    rows = json.loads((out / "summary.json").read_text())
    for row in rows:
        assert set(ASKED.split()) <= row.keys()
        assert (row["experiment"], row["fabric"], row["policy"], row["n"]) == ("all-to-all", "ocs", "rotor", 4)
        assert (row["misdelivered"], row["wrong"]) == (0, 0)
    assert [(row["bytes_per_pair"], row["slot_ms"]) for row in rows] == [
        (size, slot) for size in (100_000, 200_000) for slot in (None, 60)
    ]
    assert rows[0]["slots"] == 3
    assert "rotor: time / formula" in done.stdout
    assert "No packet arrived at a host other than its destination" in done.stdout
    for name in ("manifest.json", "points/000/events.jsonl", "summary.csv", "trace.json"):
        assert (out / name).stat().st_size > 0
    assert (out / "figures" / "all_to_all_bytes.png").exists()
    again = script("plot.py", str(out))
    assert again.returncode == done.returncode and "figures/" in again.stdout
