"""Where the project's own files are: in a checkout, or in the site-packages of an environment."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The folder that holds ``railyard/``, ``topos/`` and the other packages, independent of the working directory."""
SETUP = ROOT / "scripts" / "setup.sh"
"""The set-up script; it exists in a checkout only."""


def sudo(arguments: str) -> str:
    """The command line for ``railyard`` with ``arguments`` as root; in full, since sudo searches other folders."""
    return f"sudo {Path(sys.prefix) / 'bin' / 'railyard'} {arguments}"
