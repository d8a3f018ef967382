"""What the command prints fits into a terminal of 80 columns, and long lines go on after whole words."""

from __future__ import annotations

import shlex
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from commands.main import COMMANDS, main
from experiments.progress import RunProgress, wrapped
from experiments.registry import ENTRIES

HELP = [
    "--help",
    "show smoke",
    "list",
    *(f"{name} --help" for name, (place, _) in COMMANDS.items() if " " not in place),
]


@pytest.mark.parametrize("line", [*HELP, *(f"run {entry.name} --help" for entry in ENTRIES)])
def test_help_fits_into_80_columns(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    try:
        main(line.split())
    except SystemExit as ended:
        assert ended.code == 0
    said = capsys.readouterr()
    assert said.out and not said.err
    assert [each for each in said.out.splitlines() if len(each.rstrip()) > 80] == []


def test_an_example_of_two_lines_is_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "collective", "--help"])
    text = capsys.readouterr().out
    command = next(part for part in text.replace("\\\n", "").splitlines() if "stragglar,direct" in part)
    assert shlex.split(command)[:5] == ["railyard", "run", "collective", "--algorithms", "ring,stragglar,direct"]
    assert shlex.split(command)[-1] == "--verify"


@given(st.lists(st.text("abc/-1", min_size=1, max_size=100), min_size=1), st.integers(40, 120), st.integers(0, 6))
def test_a_long_line_is_wrapped_after_whole_words(words: list[str], width: int, indent: int) -> None:
    text = " " * indent + " ".join(words)
    lines = wrapped(text, width).split("\n")
    assert " ".join(lines).split() == words
    assert all(len(line) <= width or len(line.split()) == 1 for line in lines)
    assert wrapped(f"{text}\n{text}", width) == f"{text}\n{text}"


@pytest.mark.parametrize("terminal", [False, True])
def test_a_line_of_a_run_is_wrapped_on_a_terminal_alone(terminal: bool) -> None:
    console = Console(file=StringIO(), width=80, force_terminal=terminal)
    text = "  electrical, 0 ms: step 1.312 s (model 1.278 s), NOT FAITHFUL: all cores were busy 100% of the time"
    RunProgress(console).say(text)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert (printed == text + "\n") is not terminal
    assert printed.split() == text.split() and (max(map(len, printed.split("\n"))) <= 80) is terminal
