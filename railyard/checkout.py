"""Where the project's own files are: in a checkout, or in the site-packages of an environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The folder that holds ``railyard/``, ``topos/`` and the other packages, independent of the working directory."""
SETUP = ROOT / "scripts" / "setup.sh"
"""The set-up script; it exists in a checkout only."""


def sudo(arguments: str) -> str:
    """The command line for ``railyard`` with ``arguments`` as root; in full, since sudo searches other folders."""
    return f"sudo {Path(sys.prefix) / 'bin' / 'railyard'} {arguments}"


def child_environment(**more: str) -> dict[str, str]:
    """Environment variables of this process, and ``more``, for a child Python that imports the project's packages.

    The child takes them from where this process has them, whatever its working directory is.
    """
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **more}
