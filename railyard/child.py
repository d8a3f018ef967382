"""Processes of our own beside a run: samplers, probes, background traffic.

Each is a module that reads its settings as one line of JSON on standard input, prints ``ready`` when it has begun,
and is ended by the process id of the one that started it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from railyard.checkout import ROOT
from railyard.errors import MachineError

_START_S = 10.0


def start_child(
    module: str, settings: Mapping[str, Any], fds: Collection[int], what: str, *, own_session: bool = False
) -> subprocess.Popen[str]:
    """Run ``module`` and return when it said that it is ready.

    ``fds`` stay open in it under their numbers (namespaces, sockets). ``own_session``: what ends the terminal's
    foreground (Ctrl-C) does not reach it. Raises ``MachineError`` saying that ``what`` did not start.
    """
    root = str(ROOT)
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=tuple(fds),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))},
        start_new_session=own_session,
        text=True,
    )
    assert process.stdin and process.stdout
    try:
        with suppress(BrokenPipeError):  # it ended already; its silence is reported below
            process.stdin.write(json.dumps(settings) + "\n")
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _START_S)
        if not ready or process.stdout.readline() != "ready\n":
            raise MachineError(f"{what} did not start; its message is above")
    except BaseException:
        end_child(process)
        raise
    return process


def tell_to_stop(process: subprocess.Popen[str]) -> None:
    """Ask for the end: a line, since other processes may hold the pipe open, so that its own end may not come."""
    assert process.stdin
    with suppress(BrokenPipeError):
        process.stdin.write("stop\n")
        process.stdin.close()


def end_child(process: subprocess.Popen[str], patience_s: float = 0.0) -> None:
    """Wait ``patience_s`` for the end of a process, then kill it; its pipes are closed."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
