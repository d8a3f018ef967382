#!/usr/bin/python3 -EB
"""Runs a script in the project's virtual environment; every script imports this module first.

``sudo scripts/NAME.py`` starts the system's Python, which takes nothing from ``PYTHONPATH`` (-E) and leaves no cache
(-B). Importing this module then restarts the script with the virtual environment that ``scripts/setup.sh`` made, or
prints one sentence if there is none. As a program this module is the environment's Python: ``scripts/_venv.py -m
pytest``.

Any Python from 3.8 on may import this module, so it uses only the standard library of that version.
"""

from __future__ import annotations

import sys

# Python looks for modules in the script's folder first, where inspect.py would hide the standard module inspect: the
# folder goes to the end of the search path.
sys.path.sort(key=lambda entry: entry.rstrip("/") == __file__.rpartition("/")[0])

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

SHARED = Path("/var/lib/railyard/venv")
"""Folder of the environment if the project's folder cannot hold it."""
AGAIN = "RAILYARD_VENV_PID"
"""Environment variable with the id of a restarted process, so that a broken environment is not restarted for ever."""
NO_VENV_EXIT_STATUS = 3
_SYSTEM_PYTHON = "-EB"
"""Options of the first lines of scripts, which the environment's Python does not get."""


def candidates(checkout: Path, environ: Mapping[str, str]) -> list[Path]:
    """Folders in which the environment of ``checkout`` may be, in order of preference."""
    named = environ.get("RAILYARD_VENV")
    return [Path(named).absolute()] if named else [checkout / ".venv", SHARED]


def made_for(venv: Path, checkout: Path) -> Path | None:
    """The checkout that environment ``venv`` was made for; None if there is no environment.

    One that was made by hand has no record and counts as made for ``checkout``.
    """
    if not os.access(venv / "bin" / "python", os.X_OK):
        return None
    try:
        return Path((venv / "railyard.checkout").read_text().strip())
    except FileNotFoundError:
        return checkout


def find(checkout: Path, environ: Mapping[str, str]) -> Path | None:
    """The virtual environment of ``checkout``, or None if it is not set up."""
    return next((venv for venv in candidates(checkout, environ) if made_for(venv, checkout) == checkout), None)


def not_set_up(checkout: Path, environ: Mapping[str, str]) -> str:
    """The sentence that says where no environment of ``checkout`` was found, whose is there, and what to run."""
    places = []
    for venv in candidates(checkout, environ):
        other = made_for(venv, checkout)
        places.append(str(venv) if other in (None, checkout) else f"{venv} belongs to {other}")
    sudo = "" if os.geteuid() == 0 and "SUDO_UID" not in environ else "sudo "
    return f"Railyard is not set up ({', '.join(places)}); run: {sudo}{shlex.quote(f'{checkout}/scripts/setup.sh')}"


def command(venv: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment for ``execve``; ``arguments`` are those after the name of the interpreter."""
    changed = {**environ, AGAIN: str(os.getpid())}  # execve keeps the process id
    changed.pop("PYTHONHOME", None)
    if "PYTHONPATH" in changed:  # a relative or empty entry is the working directory, whose modules would run as root
        changed["PYTHONPATH"] = os.pathsep.join(filter(os.path.isabs, changed["PYTHONPATH"].split(os.pathsep)))
    own = arguments[1:] if arguments and arguments[0] == _SYSTEM_PYTHON else arguments
    return [str(venv / "bin" / "python"), *own], changed


def enter(checkout: Path, arguments: Sequence[str], *, always: bool = False) -> None:
    """Continue in the project's virtual environment: return if it is active, otherwise execute it with ``arguments``.

    Without an environment the process ends with status ``NO_VENV_EXIT_STATUS``.
    """
    venv = find(checkout, os.environ)
    inside = venv is not None and Path(sys.prefix).resolve() == venv.resolve()
    if inside and not always:
        return
    if venv is None or (not inside and os.environ.get(AGAIN) == str(os.getpid())):
        print(not_set_up(checkout, os.environ), file=sys.stderr)
        raise SystemExit(NO_VENV_EXIT_STATUS)
    # -m and -c would search the working directory first. An option, since scripts that are started from there need
    # their own folder, which the environment variable would take from them too
    safe = ["-P"] if always and not (venv / "lib" / "python3.10").is_dir() else []
    argv, environ = command(venv, [*safe, *arguments], os.environ)
    sys.stdout.flush()
    os.execve(argv[0], argv, environ)


def railyard(*words: str) -> None:
    """Run the ``railyard`` command ``words`` with the arguments of the script, and end with its exit status."""
    folder = Path(__file__).resolve().parent
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != folder]  # scripts/ holds an inspect.py
    sys.path[:] = [str(folder.parent), *others]
    from commands.main import main

    raise SystemExit(main([*words, *sys.argv[1:]]))


if __name__ == "__main__":
    enter(Path(__file__).resolve().parent.parent, sys.argv[1:], always=True)
elif __name__ == "_venv":  # imported by a script; a test loads it under another name
    enter(Path(__file__).resolve().parent.parent, getattr(sys, "orig_argv", [sys.executable, *sys.argv])[1:])
