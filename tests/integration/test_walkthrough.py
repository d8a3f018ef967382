"""The walkthrough and the texts of the labs as a reader types them: each block, in order, with the outputs shown.

    RAILYARD_RENEW=1 .venv/bin/python -m pytest tests/integration/test_walkthrough.py -k walkthrough

writes the outputs of this machine into the documents.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import blocks
from checkout import ROOT
from reader import documents, follow, like_the_checkout
from terminal import Terminal, programs

pytestmark = [pytest.mark.root, pytest.mark.beside]
RENEW = "RAILYARD_RENEW" in os.environ


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_says_happens_as_it_shows(document: Path, tmp_path: Path) -> None:
    if document.name == "torch.md":
        pytest.importorskip("torch", reason="needs the extra torch (docs/torch.md)")
    folder = tmp_path / "half-hour"
    folder.mkdir()
    if document.name in ("README.md", "torch.md"):
        like_the_checkout(folder)
    text = document.read_text(encoding="utf-8")
    with Terminal(folder, programs(tmp_path / "programs"), apart=True) as terminal:
        done = follow(text, folder, terminal, renew=RENEW)
    if RENEW:
        document.write_text(done, encoding="utf-8")


def test_sudo_finds_the_commands_of_the_environment(tmp_path: Path) -> None:
    """By the first block of the walkthrough, though sudo has a path of its own (here: a program that does as it)."""
    checkout, shims = tmp_path / "checkout", programs(tmp_path / "programs")
    (shims / "sudo").write_text('#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin exec "$@"\n')
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"], check=True)
    (shims / "railyard").rename(checkout / ".venv" / "bin" / "railyard")
    block = blocks((ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8"))[0]
    with Terminal(checkout, shims, apart=False) as terminal:
        terminal.enter("sudo railyard --version")
        assert terminal.status == 127
        for line in block.text.splitlines():
            terminal.enter(line)
            assert terminal.status == 0, line
        assert terminal.enter("sudo railyard --version")[0].startswith("railyard ")
        assert terminal.enter("pwd") == [str(checkout / "half-hour")]
