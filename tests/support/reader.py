"""A reader who does what a document says, block by block, in one folder and one terminal."""

from __future__ import annotations

import difflib
import re
import shutil
from pathlib import Path

from blocks import Block, Step, blocks, renewed, replaced, steps
from checkout import ROOT
from script_runs import ONCE
from terminal import Terminal

NOT_FAITHFUL, STOPPED = 8, 130
"""Statuses of a command that did what it should, if it says that the machine was busy, or Ctrl-C was pressed."""
_RUN = re.compile(r"sudo (railyard run|scripts/run\.sh) \w+")


def documents() -> list[Path]:
    """The documents whose blocks are run."""
    pages = [ROOT / "README.md", ROOT / "docs" / "walkthrough.md", ROOT / "docs" / "torch.md"]
    return [*pages, *sorted((ROOT / "labs").glob("*/README.md"))]


def like_the_checkout(folder: Path) -> None:
    """Give ``folder`` what a reader finds in the checkout: labs, which are edited, and the rest, which is not."""
    for entry in ROOT.iterdir():
        if entry.name == "labs":
            shutil.copytree(entry, folder / "labs")
        elif not entry.name.startswith("."):
            (folder / entry.name).symlink_to(entry)


def follow(document: str, folder: Path, terminal: Terminal, renew: bool = False) -> str:
    """Do what a document says; the document with the outputs that were printed.

    Runs measure each point once, as numbers and verdicts are not compared, unless their outputs are to be shown.
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
            _typed(Step("$ ", "python block.py", ("...",)), block, terminal, 0, renew)
            continue
        outputs = []
        typed = steps(block)
        for step in typed:
            status = block.note("status") if step is typed[-1] else None
            outputs.append(_typed(step, block, terminal, int(status or 0), renew))
        if block.language == "console":
            done = replaced(done, blocks(done)[number], outputs)
    return done


def _typed(step: Step, block: Block, terminal: Terminal, status: int, renew: bool) -> list[str]:
    """Type a line; what a document shows of its output from now on."""
    where = f"line {block.first}: {step.prompt}{step.typed}"
    assert terminal.prompt == step.prompt, f"{where}: the prompt is {terminal.prompt}"
    stopped = "^C" in step.shown
    typed = step.typed if renew else _RUN.sub(rf"\g<0> {' '.join(ONCE)}", step.typed)
    printed = terminal.enter(typed, interrupt=stopped)
    printed = [line.replace(str(terminal.folder), "/home/you/half-hour").rstrip() for line in printed]
    disturbed = any("NOT FAITHFUL" in line for line in printed)
    terminal.disturbed |= disturbed  # so are later commands about the same results
    fine = {status, *([NOT_FAITHFUL] if terminal.disturbed else []), *([STOPPED] if stopped else [])}
    assert terminal.status in fine, "\n".join([f"{where}: status {terminal.status}", *printed])
    kept = renewed(step.shown, printed, exact=block.note("exact") is not None)
    if renew and not (disturbed and kept is not None):
        assert not disturbed, f"{where}: the machine was busy; renew the document at a quiet time"
        return kept or printed
    difference = difflib.unified_diff(step.shown, printed, "shown", "printed", lineterm="", n=99)
    assert kept is not None, "\n".join([where, *difference])
    return list(step.shown)
