"""Where the project's own files are, in a checkout or in the site-packages of an environment, and those of runs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from railyard.ownership import invoker

_PACKAGE = Path(__file__).resolve().parent
ROOT = next(folder for folder in (_PACKAGE / "tree", _PACKAGE.parent) if folder.is_dir())
"""The folder with ``topos/``, ``commands/`` and the other packages: in an installed wheel ``railyard/tree``."""
SETUP = ROOT / "scripts" / "setup.sh"
"""The set-up script; it exists in a checkout only."""

REGISTRY = Path("/run/railyard")
"""The folder in which each run on this machine has one (``topos.kernel.run_registry``)."""

TEMPORARY = Path("/tmp")
"""Where ovsdb-server keeps a file, whatever ``TMPDIR`` says."""

NEEDS_ROOT = "network namespaces and Open vSwitch need root"
"""Beginning of the sentence that says what to type as root, by which the Python API knows it."""


def as_root(command: str) -> str:
    """``command`` as a person types it to execute it as root: after sudo, unless the person is root without that.

    Root of a container works for a user outside, and has no sudo there.
    """
    is_root = os.geteuid() == 0 and (invoker() is None or shutil.which("sudo") is None)
    return command if is_root else f"sudo {command}"


def railyard_as_root(arguments: str) -> str:
    """The command line for ``railyard`` with ``arguments`` as root; in full, since sudo searches other folders."""
    return as_root(f"{shlex.quote(str(Path(sys.prefix) / 'bin' / 'railyard'))} {arguments}")
