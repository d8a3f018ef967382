"""The command lines of the documents of 0.4.0 keep working: each is parsed as the script of its name parses it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from checkout import ROOT, SCRIPTS

from experiments.command.main import COMMANDS
from experiments.command.run import experiment_of, kind_of, parser_of
from experiments.show import parser as show_parser

LINES = (ROOT / "tests" / "unit" / "scripts" / "command_lines_0.4.0.txt").read_text().splitlines()
SHIM = re.compile(r"_venv\.railyard\((.*)\)$", re.M)


def words_of(script: str) -> list[str]:
    """The words of the command that a script stands for."""
    found = SHIM.search((ROOT / script).read_text())
    assert found is not None, script
    return [word.strip(' "') for word in found[1].split(",")]


def test_every_script_is_a_shim_of_a_command() -> None:
    for script in SCRIPTS.glob("*.py"):
        if script.name != "_venv.py":
            assert words_of(f"scripts/{script.name}")[0] in ("", *COMMANDS)
            code = [line for line in script.read_text().splitlines() if line and not line.startswith(("#", '"'))]
            assert len(code) == 2


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_of_0_4_0(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    Path("my_experiment.yaml").write_text("workload: smoke\nmodes: [electrical]\n")
    Path("demand.csv").write_text("0,1\n1,0\n")
    script, *arguments = shlex.split(line)
    command, *words = words_of(script)
    if command == "show":
        show_parser().read(arguments)
        return
    if command == "plot":
        return
    names = words or [command]
    kind, rest = kind_of([*names, *arguments])
    options = parser_of(kind).read(rest)
    experiment_of(kind, options)
