"""A small campaign over every target: only documented errors, within 2 s of processor time and 512 MB an input.

On request with more inputs: ``PYTHONPATH=tests/support python -m fuzz --count 1000000 --seed 1 --jobs 2``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.catalog import ROOMS

from railyard.checkout import ROOT

COUNTS = {"formats": 3000, "settings": 1500, "control": 10_000, "wires": 6000, "kernel": 10_000, "results": 3000}


@pytest.mark.parametrize("room", ROOMS)
def test_readers_raise_only_the_errors_that_they_document_within_their_limits(room: str, tmp_path: Path) -> None:
    names = [word for target in ROOMS[room].targets() for word in ("--target", target.name)]
    command = [sys.executable, "-m", "fuzz", "--count", str(COUNTS[room]), "--seed", "15", "--keep", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests' / 'support'}:{ROOT}"}
    done = subprocess.run([*command, *names], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"\n{COUNTS[room]} inputs, seed 15, " in done.stdout
