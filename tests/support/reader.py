"""A reader who does what a document says, block by block, in one folder and one terminal."""

from __future__ import annotations

import difflib
import shutil
from pathlib import Path

from blocks import Block, Step, blocks, renewed, replaced, steps
from checkout import ROOT
from terminal import Terminal

RAN = (0, 8, 130)
"""Statuses of a command that did what it should; 8: on a machine that others kept busy, 130: until Ctrl-C."""


def documents() -> list[Path]:
    """The documents whose blocks are run."""
    return [ROOT / "README.md", ROOT / "docs" / "walkthrough.md", *sorted((ROOT / "labs").glob("*/README.md"))]


def like_the_checkout(folder: Path) -> None:
    """Give ``folder`` what a reader finds in the checkout: labs, which are edited, and the rest, which is not."""
    for entry in ROOT.iterdir():
        if entry.name == "labs":
            shutil.copytree(entry, folder / "labs")
        elif not entry.name.startswith("."):
            (folder / entry.name).symlink_to(entry)


def follow(document: str, folder: Path, terminal: Terminal, renew: bool = False) -> str:
    """Do what a document says; the document with the outputs that were printed.

    ``AssertionError``: a command fails, or prints something else than is shown, which ``renew`` allows.
    """
    done = document
    for number, block in enumerate(blocks(document)):
        if block.note("shown by") is not None:
            continue
        if block.title:
            (folder / block.title).write_text(block.text, encoding="utf-8")
            continue
        if block.language == "python":
            (folder / "block.py").write_text(block.text, encoding="utf-8")
            _typed(Step("$ ", "python block.py", ("...",)), block, terminal, RAN, renew)
            continue
        outputs = []
        typed = steps(block)
        for step in typed:
            status = block.note("status") if step is typed[-1] else None
            outputs.append(_typed(step, block, terminal, (int(status),) if status else RAN, renew))
        if block.language == "console":
            done = replaced(done, blocks(done)[number], outputs)
    return done


def _typed(step: Step, block: Block, terminal: Terminal, statuses: tuple[int, ...], renew: bool) -> list[str]:
    """Type a line; what a document shows of its output from now on."""
    where = f"line {block.first}: {step.prompt}{step.typed}"
    assert terminal.prompt == step.prompt, f"{where}: the prompt is {terminal.prompt}"
    printed = terminal.enter(step.typed, interrupt=step.shown[-1:] == ("^C",))
    printed = [line.replace(str(terminal.folder), "/home/you/half-hour").rstrip() for line in printed]
    assert terminal.status in statuses, "\n".join([f"{where}: status {terminal.status}", *printed])
    kept = renewed(step.shown, printed, exact=block.note("exact") is not None)
    disturbed = any("NOT FAITHFUL" in line for line in printed)
    if renew and not (disturbed and kept is not None):
        assert not disturbed, f"{where}: the machine was busy; renew the document at a quiet time"
        return kept or printed
    difference = difflib.unified_diff(step.shown, printed, "shown", "printed", lineterm="", n=99)
    assert kept is not None, "\n".join([where, *difference])
    return list(step.shown)
