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


@pytest.mark.parametrize(
    ("rooms", "count"), [("formats fabrics", 1000), ("settings", 300), ("control served wires kernel results", 8_000)]
)
def test_readers_raise_only_the_errors_that_they_document_within_their_limits(
    rooms: str, count: int, tmp_path: Path
) -> None:
    found = [target for room in rooms.split() for target in ROOMS[room].targets()]
    names = [word for target in found for word in ("--target", target.name)]
    command = [sys.executable, "-m", "fuzz", "--count", str(count), "--seed", "15", "--keep", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests' / 'support'}:{ROOT}"}
    done = subprocess.run([*command, *names], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"\n{count} inputs, seed 15, " in done.stdout
