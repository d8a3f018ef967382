"""The command lines of the documents work: each is parsed as the command parses it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from checkout import ROOT, SCRIPTS

from commands.main import COMMANDS
from commands.run import experiment_of, kind_of, mode_of, parser_of
from commands.show import parser as show_parser

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "labs").glob("*/README.md"))]
START = r"(?:sudo )?(railyard (?:run|predict) |scripts/(?:run\.sh|\w+\.py)(?![\w:]))"
COMMAND = re.compile(rf"^(?:\$ )?{START}([^#>\n]*)|`{START}([^`]*)`", re.M)
PLACEHOLDER = re.compile(r"[A-Z]{3,}|\.\.\.|NAME")
"""A word in capitals stands for something else."""
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


def lines_of(page: Path) -> list[str]:
    """The command lines of runs and predictions that a document shows, each once."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    found = [" ".join("".join(groups).split()) for groups in COMMAND.findall(text)]
    return [line for line in dict.fromkeys(found) if not PLACEHOLDER.search(line) and "/_" not in line]


SHOWN = sorted({line for page in PAGES for line in lines_of(page)})


@pytest.mark.parametrize("line", SHOWN)
def test_a_command_line_of_the_documents(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    Path("my_experiment.yaml").write_text("workload: smoke\nmodes: [electrical]\n")
    Path("job.yaml").symlink_to(ROOT / "labs" / "opus-slope" / "job.yaml")
    Path("demand.csv").write_text("0,1\n1,0\n")
    Path("my_schedule.xml").write_text("<algo/>")
    script, *arguments = shlex.split(line)
    if script.endswith("run.sh"):
        command, words = "run", [] if arguments and not arguments[0].startswith("-") else ["rails"]
    elif script == "railyard":
        command, words = arguments.pop(0), []
    else:
        command, *words = words_of(script)
    if command == "show":
        show_parser().read(arguments)
        return
    if command == "plot":
        return
    names = words if command in ("run", "predict") else [command]
    kind, rest = kind_of([*names, *arguments])
    options = parser_of(kind, mode_of(kind, rest, predict=command == "predict")).read(rest)
    experiment_of(kind, options)
