"""What a worker of Dask does: it describes its machine, and runs points as subprocesses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from commands.sweep.model import ModelProcess
from commands.sweep.point import SweepPoint
from commands.sweep.workers.archive import MOST_BYTES
from commands.sweep.workers.machine_check import inspected
from commands.sweep.workers.remote_point import CALIBRATE, NAME, Sent, measured
from railyard.child import child_environment, python_command
from railyard.errors import MachineError, shortened
from railyard.validation import from_plain

_HEAD_BYTES = 4096
_SUDO_S = 10.0
_STOP_S = 40.0
"""Seconds that points have to end when they are stopped: half a minute to take their fabric down, and some more."""
_running: set[subprocess.Popen[bytes]] = set()
_lock = threading.Lock()
_model = ModelProcess()


def describe(files: Sequence[str], measured: bool) -> dict[str, Any]:
    """A ``machine_check.MachineReport`` of this machine as plain data; ``files`` are those whose content counts.

    Root and what the machine lacks are looked at for points that are ``measured`` alone.
    """
    return asdict(inspected(files, _becomes_root() if measured else "", measured=measured))


def _becomes_root() -> str:
    """How this process runs something as root: ``root``, ``sudo``, or empty if it cannot."""
    if os.geteuid() == 0:
        return "root"
    try:
        done = subprocess.run(
            [*_railyard_as_root(), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SUDO_S,
            check=False,
            env=child_environment(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "sudo" if done.returncode == 0 else ""


def _railyard_as_root() -> list[str]:
    return ["sudo", "-n", "--", str(Path(sys.prefix) / "bin" / "railyard")]


def railyard(*arguments: str, root: bool) -> list[str]:
    """The command line of ``railyard`` with ``arguments`` for this process; with sudo if it needs ``root``."""
    if root and os.geteuid() != 0:
        return [*_railyard_as_root(), *arguments]
    return python_command("commands.main", *arguments)


def calibrate() -> str:
    """Calibrate this machine (``railyard calibrate --quick``); returns the last line that it printed if that failed."""
    with _asked(CALIBRATE, root=True) as (process, said):
        return _last_line(said) if process.wait() else ""


def run_task(point: Mapping[str, Any], *, root: bool) -> dict[str, Any]:
    """Run a point (``SweepPoint`` as plain data); returns the fields of ``remote_point.Sent``, and ``archive``.

    Predictions come from a process that stays for the next one. ``MachineError`` if there is no outcome, with the last
    line that the command printed.
    """
    if point["predict"]:
        sent, data = measured(from_plain(SweepPoint, dict(point), "a point"), _model)
        return {**asdict(sent), "archive": data}
    with _asked(json.dumps(point).encode() + b"\n", root=root) as (process, said):
        assert process.stdout
        return _outcome(process.stdout, said)


@contextmanager
def _asked(line: bytes, *, root: bool) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """``remote_point`` as a subprocess that got ``line``, and what it prints on standard error; stopped at the end."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            railyard("sweep", NAME, root=root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            cwd="/",
            env=child_environment(),
            start_new_session=True,
        )
        assert process.stdin and process.stdout
        with _lock:
            _running.add(process)
        try:
            with suppress(BrokenPipeError):  # it has ended: what it printed says why
                process.stdin.write(line)
                process.stdin.flush()  # and left open: its end would stop the point
            yield process, said
        finally:
            _ask_to_stop(process)
            process.stdout.close()
            process.wait()
            with _lock:
                _running.discard(process)


def _outcome(source: IO[bytes], said: IO[bytes]) -> dict[str, Any]:
    line = source.readline(_HEAD_BYTES)
    if not line.endswith(b"\n"):
        raise _no_outcome(said)
    sent = from_plain(Sent, line, "an outcome")
    data = source.read(sent.size) if sent.size <= MOST_BYTES else b""
    if len(data) != sent.size:
        raise _no_outcome(said)
    return {**asdict(sent), "archive": data}


def _no_outcome(said: IO[bytes]) -> MachineError:
    return MachineError(f"a point has ended without results: {_last_line(said)}")


def _last_line(said: IO[bytes]) -> str:
    said.seek(max(0, said.seek(0, os.SEEK_END) - _HEAD_BYTES))
    lines = said.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
    return shortened(last.removeprefix("railyard: "))


def _ask_to_stop(process: subprocess.Popen[bytes]) -> None:
    """End the standard input of a point, which stops it unless it has ended."""
    assert process.stdin
    with suppress(BrokenPipeError, ValueError):
        process.stdin.close()


def stop_tasks() -> None:
    """Stop all that this process runs, in order; returns when they have ended, at the latest after 40 s."""
    with _lock:
        running = [*_running]
    for process in running:
        _ask_to_stop(process)
    for process in running:
        with suppress(subprocess.TimeoutExpired):  # that of root ends by itself
            process.wait(_STOP_S)
    _model.close()
