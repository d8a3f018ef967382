"""The command ``railyard`` as a process of its own, which does the work of every call of the API."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from railyard.checkout import NEEDS_ROOT
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS, PARTIAL_EXIT_STATUS, ConfigError, MachineError, RailyardError
from railyard.tools import safe_path

_PACKAGE = Path(__file__).resolve().parents[1]
WITH_RESULTS = 0, NOT_FAITHFUL_EXIT_STATUS, PARTIAL_EXIT_STATUS
"""Exit statuses of a command that has results."""
_ERRORS = {kind.exit_status: kind for kind in RailyardError.__subclasses__()}
_STOPPED = 130
SAYS, SUDO_SAYS = "railyard: ", "sudo: "
"""Beginnings of a sentence of the command, and of sudo, on standard error."""
_OF_NOTEBOOKS = ("FORCE_COLOR", "CLICOLOR_FORCE", "MPLBACKEND")
"""Environment variables of a notebook about its own output, by which a command would take a file for a terminal."""
_LOOK_S = 0.2


def railyard(*words: object, root: bool = False, shown: bool = False, fine: Collection[int] = (0,)) -> str:
    """The output of ``railyard WORDS``.

    ``root``: it runs as root. ``shown``: its progress is shown meanwhile. An exit status that is not ``fine``, and 1
    without output, is the error of ``railyard.errors`` that has this status, with the sentence of the command.
    """
    command = command_line(*words)
    done = finished(as_root(command) if root else command, shown=shown)
    if done.returncode in fine and (done.stdout or done.returncode != RailyardError.exit_status):
        return done.stdout
    if done.returncode == _STOPPED:
        raise KeyboardInterrupt
    lines = [f"the command ended with status {done.returncode}", *done.stderr.strip().splitlines()]
    last = ([line for line in lines if line.startswith(SAYS)] or lines)[-1]
    if root and last.startswith(SUDO_SAYS):
        raise _needs_root(command)
    raise _ERRORS.get(done.returncode, RailyardError)(last.removeprefix(SAYS))


def as_root_if_needed(*words: object, shown: bool) -> str:
    """The output of ``railyard WORDS`` for this user or, where it says that it needs root, for root."""
    try:
        return railyard(*words, shown=shown, fine=WITH_RESULTS)
    except MachineError as error:
        if os.geteuid() == 0 or not str(error).startswith(NEEDS_ROOT):
            raise
    return railyard(*words, root=True, shown=shown, fine=WITH_RESULTS)


def command_line(*words: object) -> list[str]:
    """The command line of ``railyard`` with these arguments; it searches no module in the working directory."""
    return [sys.executable, str(_PACKAGE / "__main__.py"), *map(str, words)]


def as_root(command: Sequence[str]) -> list[str]:
    """``command`` as root's: after sudo, which asks for nothing, unless this process is root's."""
    if os.geteuid() == 0:
        return [*command]
    sudo = shutil.which("sudo", path=safe_path())
    if sudo is None:
        raise _needs_root(command)
    return [sudo, "-n", *command]


def _needs_root(command: Sequence[str]) -> MachineError:
    """The error that says what to type: this script again, or where there is none (a notebook) ``command``."""
    script = hasattr(sys.modules["__main__"], "__file__")
    typed = shlex.join([sys.executable, *sys.orig_argv[1:]] if script else command)
    return MachineError(f"this needs root, and there is no sudo without a password; type: sudo {typed}")


def finished(command: Sequence[str], *, shown: bool = False, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command to its end with ``given`` as its input.

    Ctrl-C is passed on to it and waits for its end. What the command leaves in the background is not waited for.
    """
    with TemporaryFile() as text, TemporaryFile() as out, TemporaryFile() as err:
        text.write(given.encode())
        text.seek(0)
        try:
            process = subprocess.Popen(command, stdin=text, stdout=out, stderr=err, env=_environment())
        except (OSError, ValueError) as error:  # values that are too long, or that no command can have
            raise ConfigError(f"no command can be given these values: {error}") from None
        try:
            _wait(process, err if shown else None)
        except KeyboardInterrupt:
            _interrupt(process)
            process.wait()
            raise
        out.seek(0)
        err.seek(0)
        printed, said = (file.read().decode(errors="replace") for file in (out, err))
        return subprocess.CompletedProcess(command, process.returncode, printed, said)


def _environment() -> dict[str, str]:
    """Environment variables of this process, and where the command finds the package that this process has."""
    path = os.pathsep.join(filter(None, (str(_PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    return {key: value for key, value in os.environ.items() if key not in _OF_NOTEBOOKS} | {"PYTHONPATH": path}


def _wait(process: subprocess.Popen[bytes], err: IO[bytes] | None) -> None:
    """Wait for the end of a process; meanwhile lines that it writes to ``err`` are passed on to standard error.

    Sentences of the command and of sudo are not: they are of an error, or notes on results.
    """
    at = 0
    while err is not None and process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_S)
        new = os.pread(err.fileno(), 1 << 20, at)
        lines = new[: new.rfind(b"\n") + 1]
        at += len(lines)
        said = lines.decode(errors="replace").splitlines(keepends=True)
        sys.stderr.writelines(line for line in said if not line.startswith((SAYS, SUDO_SAYS)))
    process.wait()


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Send SIGINT to a command; to root's by another sudo, as sudo may ignore signals from its own process group."""
    try:
        process.send_signal(signal.SIGINT)
    except PermissionError:
        subprocess.run(as_root(["kill", "-INT", str(process.pid)]), preexec_fn=os.setpgrp, check=False)
