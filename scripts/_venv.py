#!/usr/bin/env python3
"""Puts a script under the project's virtual environment; every script imports this module first.

``sudo scripts/NAME.py`` starts whatever ``python3`` is first on root's path; importing this module starts the
script again with the virtual environment that ``scripts/setup.sh`` made, or says in one sentence that
there is none. As a program it is that environment's Python: ``scripts/_venv.py -m pytest``.

Standard library only, and nothing newer than Python 3.8 asks for: any Python may come along here.
"""

from __future__ import annotations

import sys

# Python looks for every module beside the script first, and one of the scripts has the name of a module of the standard
# library that others need (inspect): this folder goes to the end.
sys.path.sort(key=lambda entry: entry.rstrip("/") == __file__.rpartition("/")[0])

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

SHARED = Path("/var/lib/railyard/venv")
"""Where the environment is when the project's own folder cannot hold it."""
AGAIN = "RAILYARD_VENV_PID"
"""Process id that has already been started again: a broken environment must not start itself for ever."""
NO_VENV_EXIT_STATUS = 3


def candidates(checkout: Path, environ: Mapping[str, str]) -> list[Path]:
    """Folders where the environment of this checkout may be, best first."""
    named = environ.get("RAILYARD_VENV")
    return [Path(named).absolute()] if named else [checkout / ".venv", SHARED]


def belongs_to(venv: Path, checkout: Path) -> bool:
    """Whether the environment works and holds this checkout (one without a record was made by hand)."""
    if not os.access(venv / "bin" / "python", os.X_OK):
        return False
    try:
        recorded = (venv / "railyard.checkout").read_text().strip()
    except FileNotFoundError:
        return True
    return Path(recorded) == checkout


def find(checkout: Path, environ: Mapping[str, str]) -> Path | None:
    """The virtual environment of this checkout, or None if it is not set up."""
    return next((venv for venv in candidates(checkout, environ) if belongs_to(venv, checkout)), None)


def command(venv: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """What to execute: arguments and environment. ``arguments`` is what stands after the interpreter's name."""
    changed = {**environ, AGAIN: str(os.getpid())}  # execve keeps the process id
    changed.pop("PYTHONHOME", None)
    return [str(venv / "bin" / "python"), *arguments], changed


def enter(checkout: Path, arguments: Sequence[str], *, always: bool = False) -> None:
    """Go on under the project's virtual environment: return if this is it, else execute it with ``arguments``."""
    venv = find(checkout, os.environ)
    inside = venv is not None and Path(sys.prefix).resolve() == venv.resolve()
    if inside and not always:
        return
    if venv is None or (not inside and os.environ.get(AGAIN) == str(os.getpid())):
        where = " or ".join(str(path) for path in candidates(checkout, os.environ))
        print(f"Railyard is not set up ({where}); run: sudo {checkout}/scripts/setup.sh", file=sys.stderr)
        raise SystemExit(NO_VENV_EXIT_STATUS)
    argv, environ = command(venv, arguments, os.environ)
    sys.stdout.flush()
    os.execve(argv[0], argv, environ)


if __name__ == "__main__":
    enter(Path(__file__).resolve().parent.parent, sys.argv[1:], always=True)
elif __name__ == "_venv":  # imported by a script; a test loads it under another name
    enter(Path(__file__).resolve().parent.parent, getattr(sys, "orig_argv", [sys.executable, *sys.argv])[1:])
