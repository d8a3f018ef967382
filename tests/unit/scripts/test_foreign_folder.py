"""Code of the working directory never runs: not by the scripts, the command or a child Python, whatever the folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT, SCRIPTS

from railyard.process.start import child_environment, start_python
from railyard.tools import safe_path

_MODULES = (
    *("sitecustomize", "usercustomize", "json", "inspect", "numpy", "mininet", "yaml"),
    *("railyard", "topos", "controllers", "workloads", "measure", "experiments", "commands", "_venv"),
)
_PROGRAMS = (
    "mnexec",
    "ip",
    "tc",
    "ovs-vswitchd",
    "ovsdb-server",
    "ovsdb-tool",
    "setpriv",
    "nice",
    "dirname",
    "python3",
)
COMMAND = "import sys; from commands.main import main; sys.exit(main(['list']))"


def hostile_folder(folder: Path) -> Path:
    """Fill ``folder`` with code named like that of Railyard, of Python and others; returns the trace of its runs."""
    trace = folder.parent / "hostile-code-has-run"
    text = f"open({str(trace)!r}, 'a').write(__file__ + '\\n')\n"
    for name in _MODULES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(text)
        (folder / name / "main.py").write_text(text)
        (folder / f"{name}.py").write_text(text)
    for name in _PROGRAMS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >>'{trace}'\nexit 1\n")
        (folder / name).chmod(0o755)
    return trace


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The trace that hostile code leaves; the working directory is full of it, and on the search paths."""
    folder = tmp_path / "cwd"
    trace = hostile_folder(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"::.:cwd:{ROOT}")
    return trace


def ran(trace: Path) -> str:
    return trace.read_text() if trace.exists() else ""


def test_a_child_imports_nothing_from_the_working_directory(trace: Path) -> None:
    child = start_python("controllers.main", "--help", stdout=subprocess.PIPE)
    assert b"usage" in child.communicate(timeout=60)[0]
    assert ran(trace) == ""


@pytest.mark.parametrize("script", sorted(path.name for path in SCRIPTS.glob("[!_]*.??")))
def test_a_script_runs_nothing_from_the_working_directory(trace: Path, script: str) -> None:
    """Nor from its own: the name of scripts/inspect.py is that of a module that all others need."""
    done = subprocess.run([SCRIPTS / script, "--help"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, ran(trace)) == (0, ""), done.stderr
    assert "scripts/" in done.stdout or done.stdout.startswith("usage: ")


def test_the_python_of_the_environment_takes_nothing_from_the_working_directory(trace: Path) -> None:
    code = "import json, experiments; print(experiments.__file__)"
    done = subprocess.run([SCRIPTS / "_venv.py", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, ran(trace)) == (f"{ROOT}/experiments/__init__.py\n", ""), done.stderr


def test_the_installed_command_imports_nothing_from_the_working_directory(trace: Path, tmp_path: Path) -> None:
    """The installed program puts its own folder first, as Python does for each program in a file."""
    program = tmp_path / "railyard"
    program.write_text(COMMAND)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, timeout=60)
    assert "rails" in done.stdout, done.stderr
    assert ran(trace) == ""


def test_a_child_gets_the_absolute_folders_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/already/there::relative:.")
    monkeypatch.setenv("PATH", "/mine:.::relative:/usr/bin")
    environment = child_environment(OMP_NUM_THREADS="1")
    assert environment["PYTHONPATH"] == f"{ROOT}:/already/there"
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["PATH"] == safe_path() == "/mine:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"
