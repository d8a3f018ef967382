"""Where the project's own files are, in a checkout or in the site-packages of an environment, and those of runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from railyard.ownership import invoker

ROOT = Path(__file__).resolve().parent.parent
"""The folder that holds ``railyard/``, ``topos/`` and the other packages, independent of the working directory."""
SETUP = ROOT / "scripts" / "setup.sh"
"""The set-up script; it exists in a checkout only."""

REGISTRY = Path("/run/railyard")
"""The folder in which each run on this machine has one (``topos.kernel.run_registry``)."""


def as_root(command: str) -> str:
    """``command`` as a person types it to execute it as root: after sudo, unless the person is root without that."""
    return command if os.geteuid() == 0 and invoker() is None else f"sudo {command}"


def railyard_as_root(arguments: str) -> str:
    """The command line for ``railyard`` with ``arguments`` as root; in full, since sudo searches other folders."""
    return as_root(f"{Path(sys.prefix) / 'bin' / 'railyard'} {arguments}")
