"""Runs a command line of ``railyard`` as a process of its own, which ends with the one that started it."""

from __future__ import annotations

import math
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from railyard.errors import MachineError, shortened
from railyard.ownership import open_binary
from railyard.process.start import die_with_parent, start_python
from railyard.signals import held_back

_PATIENCE_S = 30.0
"""Seconds that a run has after SIGTERM to take its fabric down, by default."""
_IN_ORDER = {"PYTHONUNBUFFERED": "1"}
"""So that the last line of a log is what was said last, on whichever stream."""
_LOOK_S = 0.1
_TAIL_BYTES = 8192


def run_command(
    command: list[str],
    log: Path,
    *,
    longest_s: float | None = None,
    patience_s: float = _PATIENCE_S,
    meanwhile: Callable[[], None] | None = None,
) -> int:
    """Run a command line of ``railyard``, with its output in ``log``; returns its exit status, 128 + N of signal N.

    It ends with this process. If this process is stopped, or the command runs for over ``longest_s`` (then
    ``MachineError``), it is told to end in order, and is killed with its process group if it has not after
    ``patience_s``. ``meanwhile`` is called ten times a second until it ends.
    """
    process, pidfd = None, -1
    try:
        with held_back(), open_binary(log, "wb") as out:
            process = start_python(__name__, *command[1:], environment=_IN_ORDER, stdout=out, stderr=subprocess.STDOUT)
            pidfd = os.pidfd_open(process.pid)
        end = math.inf if longest_s is None else time.monotonic() + longest_s
        while not _ended(pidfd, longest_s if meanwhile is None else _LOOK_S):
            if time.monotonic() >= end:
                raise MachineError(f"it did not end within {longest_s:g} s")
            if meanwhile is not None:
                meanwhile()
        status = process.wait()
    except BaseException:
        if process is not None:
            with held_back():
                _end(process, pidfd, patience_s)
        raise
    finally:
        if pidfd >= 0:
            os.close(pidfd)
    return status if status >= 0 else 128 - status


def last_line(log: Path, left_out: str = "") -> str:
    """The last line of a log that says something, shortened, and without ``left_out``."""
    try:
        with open(log, "rb") as file:
            return last_line_of(file, left_out)
    except OSError:
        return "it left no log"


def last_line_of(file: IO[bytes], left_out: str = "") -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
    lines = file.read().decode(errors="replace").replace(left_out, "").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    return re.sub(r"[^\x20-\x7e]", "?", shortened(last.removeprefix("railyard: ")))


def _end(process: subprocess.Popen[bytes], pidfd: int, patience_s: float) -> None:
    """Tell a process to end, and kill its process group if it has not after ``patience_s`` seconds."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        if not _ended(pidfd, patience_s):
            os.killpg(process.pid, signal.SIGKILL)  # it is not waited for yet, so the id is still its own
    process.wait()


def _ended(pidfd: int, longest_s: float | None) -> bool:
    """Wait for the end of a process; whether it has ended within ``longest_s`` seconds."""
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    return bool(waiting.poll(None if longest_s is None else longest_s * 1e3))


def main() -> int:
    """Run a command line of ``railyard`` that ends with the process that started it."""
    from commands.main import main as run

    die_with_parent()
    return run()
