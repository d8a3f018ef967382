from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

from railyard.checkout import child_environment


def test_a_child_imports_the_project_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/already/there")
    environment = child_environment(OMP_NUM_THREADS="1")
    assert environment["PYTHONPATH"] == f"{ROOT}:/already/there"
    assert environment["OMP_NUM_THREADS"] == "1"
    code = "import railyard; print(railyard.__file__)"
    child = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert child.stdout.strip() == str(ROOT / "railyard" / "__init__.py")
