"""Builds the site as CONTRIBUTING.md says, into another folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from checkout import ROOT

WITHIN_S = 120
"""A build that takes longer hangs: it takes some seconds."""


def build_site(folder: Path, checkout: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Build the documents of ``checkout`` into ``folder``; its code is that under test."""
    command = [sys.executable, "-m", "mkdocs", "build", "-f", str(checkout / ".ci/mkdocs.yml"), "--strict"]
    quiet = {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [*command, "--site-dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        env={**os.environ, **quiet},
        check=False,
    )
