"""Wrong files and options, as people give them: one sentence that names the file, the option, and what would work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from checkout import ROOT

from commands.main import main
from railyard.errors import from_os_error

WORKLOAD: dict[str, Any] = {
    "name": "mine",
    "model": {"layers": 4, "hidden": 4096, "sequence": 4096, "heads": 32},
    "parallelism": {"tp": 2, "pp": 2, "dp": 2},
    "batch": {"local_batch": 8, "microbatch": 4},
    "compute": {"forward_ms": 55},
    "fabric": {"servers": 4, "gpus_per_server": 2},
}
LAYERS = "DATA\n1\nfirst\t-1\t592000\tNONE\t0\t592000\tNONE\t0\t592000\tALLREDUCE\t33554432\t100\n"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command line that is wrong says, without ``railyard:``."""
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("railyard: ") and said.err.count("\n") == 1
    return said.err.removeprefix("railyard: ").rstrip("\n")


def workload(folder: Path, **changed: Mapping[str, Any]) -> str:
    path = folder / "mine.yaml"
    sections = {key: {**WORKLOAD[key], **values} for key, values in changed.items()}
    path.write_text(yaml.safe_dump({**WORKLOAD, **sections}))
    return str(path)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"model": {"heads": 33}}, "model.heads: hidden 4096 must be a multiple of heads 33"),
        ({"model": {"layers": 5}}, "parallelism.pp: model.layers 5 must be a multiple of PP 2"),
        ({"fabric": {"servers": 8, "gpus_per_server": 1}}, "parallelism.tp: group tp.d0.s0 of 2 GPUs crosses servers"),
    ],
)
def test_a_wrong_workload_names_its_file(
    changed: dict[str, Any], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = workload(tmp_path, **changed)
    assert refused(capsys, "predict", "rails", "--workload", path).startswith(f"{path}: {sentence}")
    assert refused(capsys, "show", path).startswith(f"{path}: {sentence}")


def test_a_wrong_workload_of_an_experiment_file_names_its_own_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = workload(tmp_path, model={"heads": 33}), tmp_path / "experiment.yaml"
    file.write_text("workload: mine.yaml\n")
    assert refused(capsys, "predict", str(file)).startswith(f"{path}: model.heads: hidden 4096 must be")


def test_what_a_trace_does_not_say_is_asked_for_by_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the options that the errors name the trace is predicted."""
    path = tmp_path / "trace.txt"
    path.write_text(LAYERS)
    line = ["predict", "rails", "--modes", "electrical", "--workload", str(path)]
    unit = refused(capsys, *line)
    assert unit.startswith(f"{path}:3: compute_unit: layer first computes for 592000, and the file does not name")
    assert "; give it, such as --compute-unit ns: one of ns, us, ms, s, " in unit
    line += ["--compute-unit", "ns"]
    ranks = "ranks: the file does not say for how many ranks it is; give their number, such as --ranks 8"
    assert refused(capsys, *line) == f"{path}: {ranks}"
    assert main([*line, "--ranks", "8"]) == 0


@pytest.mark.parametrize("arguments", [["claims", "opus-slope"], ["show", "n\u00f6n\u00fc.yaml"]])
def test_characters_that_the_encoding_lacks_are_replaced(arguments: list[str]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "commands.main", *arguments], cwd=ROOT, env=environment, capture_output=True
    )
    assert b"Traceback" not in done.stderr and b"?" in done.stdout + done.stderr, done.stderr
    assert done.returncode == (0 if arguments[0] == "claims" else 2)


def test_a_file_system_without_inodes_is_not_said_to_lack_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(28, "No space left on device", str(tmp_path / "new" / "file"))
    full = SimpleNamespace(f_files=1024, f_favail=0, f_frsize=4096, f_bavail=3_000_000, f_blocks=3_000_000)
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    assert str(from_os_error(error)) == (
        f"{error.filename} cannot be written: No space left on device; no inodes are left in {tmp_path}: "
        "remove files there, or name another folder"
    )
    full.f_favail = 3  # by now, as the run has removed what it could not finish
    assert f"; 3 of 1,024 inodes are free in {tmp_path}: remove files" in str(from_os_error(error))
    full.f_files, full.f_bavail = 0, 0  # a file system that has as many inodes as it needs
    assert re.search(
        r"; 0\.0 of 12288\.0 MB are free in .*: make room there, or name another", str(from_os_error(error))
    )
