"""A run whose results are on a small disk of its own: the end is one sentence, and no process or folder stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from script_runs import PATIENCE_S, SMOKE

pytestmark = [pytest.mark.root, pytest.mark.beside]

SIZE = "1200k"
WITHIN = """
mount -t tmpfs -o size=$SIZE none "$DISK" && mount -o remount,ro "$DISK" || exit 77
"$PYTHON" "$SCRIPTS/rail_reconfiguration.py" $RUN --out "$DISK/out"; echo "read-only: $?"
mount -o remount,rw "$DISK"
{
    until grep -qs '"step"' "$DISK"/out/points/000/g0.jsonl; do sleep 0.1; done
    cat /dev/zero >"$DISK/another"
} 2>/dev/null &
"$PYTHON" "$SCRIPTS/rail_reconfiguration.py" $RUN --out "$DISK/out"; echo "full: $?"
mount -o remount,size=20m "$DISK"
"$PYTHON" "$SCRIPTS/plot.py" "$DISK/out" --quiet >"$DISK/../plotted"; echo "plot: $?"
"""


def test_a_full_disk_and_one_that_is_read_only(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    environment = {"DISK": str(disk), "SIZE": SIZE, "PYTHON": sys.executable, "SCRIPTS": str(ROOT / "scripts")}
    environment |= {
        "RUN": " ".join((*SMOKE, "--modes", "on-demand", "--delays", "0", "--steps", "1000", "--repeats", "1")),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", WITHIN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode == 77:
        pytest.skip("this machine lets nobody mount a tmpfs")
    said = [line.removeprefix("railyard: ") for line in done.stderr.splitlines() if line.startswith("railyard: ")]
    assert "Traceback" not in done.stderr, done
    unmeasured = f"No row was measured; what was recorded is in {disk}/out (railyard report {disk}/out shows it)"
    assert done.stdout.split("\n")[:4] == ["read-only: 2", unmeasured, "full: 3", "plot: 9"], done
    assert said[0] == f"--out: {disk}/out cannot be written (Read-only file system); name another folder"
    full = [line for line in said if "No space left on device" in line]
    assert full and all(f"0.0 of 1.2 MB are free in {disk}" in line for line in full)
    assert said[-1].startswith("PARTIAL 0 of 1 points: ")
