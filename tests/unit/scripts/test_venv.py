from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from checkout import ROOT

SCRIPT = ROOT / "scripts" / "_venv.py"


@pytest.fixture
def venv_module() -> ModuleType:
    """The module under another name: under its own it acts on import."""
    spec = importlib.util.spec_from_file_location("venv_under_test", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_venv(folder: Path, checkout: Path | None = None) -> Path:
    """A stand-in whose Python says what it was called with."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text('#!/bin/sh\necho "entered $*"\n')
    python.chmod(0o755)
    if checkout is not None:
        (folder / "railyard.checkout").write_text(f"{checkout}\n")
    return folder


def test_the_projects_own_venv_comes_before_the_shared_one(venv_module: ModuleType, tmp_path: Path) -> None:
    assert venv_module.candidates(tmp_path, {}) == [tmp_path / ".venv", venv_module.SHARED]


def test_the_command_keeps_arguments_and_drops_a_foreign_home(venv_module: ModuleType) -> None:
    argv, environ = venv_module.command(Path("/v"), ["-u", "x.py", "--quick"], {"PYTHONHOME": "/bad", "A": "1"})
    assert argv == ["/v/bin/python", "-u", "x.py", "--quick"]
    assert environ == {"A": "1", venv_module.AGAIN: str(os.getpid())}


def test_a_script_under_another_python_is_started_again_with_its_arguments(tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "hello.py"
    script.parent.mkdir()
    (script.parent / "_venv.py").write_text(SCRIPT.read_text())
    script.write_text("import _venv\nprint('not reached')\n")
    make_venv(tmp_path / ".venv")
    environ = {key: value for key, value in os.environ.items() if key != "RAILYARD_VENV"}
    run = subprocess.run(
        [sys.executable, "-u", str(script), "--delays", "0,50"], capture_output=True, text=True, env=environ, check=True
    )
    assert run.stdout == f"entered -u {script} --delays 0,50\n"


def test_a_script_without_a_venv_says_what_to_run(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "-c", "pass"],
        capture_output=True,
        text=True,
        env={**os.environ, "RAILYARD_VENV": str(tmp_path / "none")},
    )
    assert run.returncode == 3
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert "scripts/setup.sh" in run.stderr


def test_an_environment_of_another_checkout_is_named_with_its_checkout(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv", checkout=tmp_path / "other")
    command = [sys.executable, str(SCRIPT), "-c", "pass"]
    environ = {**os.environ, "RAILYARD_VENV": str(venv), "SUDO_UID": "1000"}
    run = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert run.returncode == 3
    assert run.stderr == (
        f"Railyard is not set up ({venv} belongs to {tmp_path}/other); run: sudo {ROOT}/scripts/setup.sh\n"
    )


def test_a_venv_whose_python_is_not_in_it_does_not_start_itself_for_ever(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (venv / "bin" / "python").chmod(0o755)
    script = tmp_path / "hello.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(SCRIPT.parent)!r})\nimport _venv\nprint('reached')\n")
    environ = {**os.environ, "RAILYARD_VENV": str(venv)}
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environ, timeout=20)
    assert run.returncode == 3
    assert "reached" not in run.stdout
