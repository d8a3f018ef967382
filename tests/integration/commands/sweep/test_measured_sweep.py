"""A sweep of measurements: stopped and killed in a run, resumed, and nothing left behind."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout import ROOT
from script_runs import PATIENCE_S, called

from commands.sweep.folder import SweepFolder
from topos.kernel.run_registry import REGISTRY

pytestmark = [pytest.mark.root, pytest.mark.beside]
TEXT = """experiment: rails
base: {workload: smoke, delays_ms: [0.0], attempts: 1}
grid: {modes: [[electrical], [on-demand]]}
together: [modes]
tries: 1
"""


def start(*arguments: object, **environment: str) -> subprocess.Popen[bytes]:
    """The command ``railyard sweep`` as a child."""
    words = [sys.executable, "-m", "commands.main", "sweep", *map(str, arguments)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(words, cwd=ROOT, stdout=quiet, stderr=quiet, env={**os.environ, **environment})


def runs() -> set[str]:
    """The runs on this machine."""
    return {run.name for run in REGISTRY.glob("*-*")}


def wait_for_a_point(folder: Path) -> None:
    """Wait until a run of the sweep has begun a point."""
    end = time.monotonic() + PATIENCE_S
    while not list(folder.glob("points/*/attempt-1/results/points/000/point.jsonl")):
        assert time.monotonic() < end, "no run has begun"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "status"), [pytest.param(signal.SIGTERM, 130, marks=pytest.mark.thorough), (signal.SIGKILL, -9)]
)
def test_a_sweep_that_is_ended_in_a_run_goes_on_and_leaves_nothing(number: int, status: int, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(TEXT)
    folder = tmp_path / "folder"
    with start(tmp_path / "sweep.yaml", "--out", folder) as process:
        wait_for_a_point(folder)
        mine = {name for name in runs() if str(folder) in _command_line(name)}
        assert mine
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == status
    end = time.monotonic() + 10
    while mine & runs() and time.monotonic() < end:
        time.sleep(0.05)
    assert not mine & runs()
    sweep = SweepFolder.open(folder)
    assert (sweep.states().pending, sweep.states().claimed) == (2, 0)
    with start(folder, SUDO_UID="12345", SUDO_GID="12345") as process:
        assert process.wait(PATIENCE_S) in (0, 8)
    assert sweep.states().done == 2
    assert len(list(folder.glob("points/*/attempt-1.cut"))) == 1
    with open(folder / "rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["modes"] for row in rows} == {"electrical", "on-demand"}
    assert all(1.2 < float(row["step_time_s"]) < 2 for row in rows)
    made_later = [*folder.glob("*.csv"), *folder.glob("points/*/done.json"), *folder.glob("points/*/attempt-1/**/*")]
    assert len(made_later) > 10 and {path.stat().st_uid for path in made_later} == {12345}
    assert called("sweep", "merge", folder, "--no-figures").returncode in (0, 8)


def _command_line(run: str) -> str:
    """The command line of the owner of a run; empty if it has ended."""
    try:
        return Path(f"/proc/{run.partition('-')[0]}/cmdline").read_text()
    except OSError:
        return ""
