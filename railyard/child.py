"""Child processes that accompany a run: samplers, probes, background traffic.

A child runs one module, reads its settings as one line of JSON on standard input and prints ``ready`` once it works.
It is stopped by a line on its standard input or killed by its process id.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from railyard.checkout import child_environment
from railyard.errors import MachineError

_START_S = 10.0


def start_child(
    module: str, settings: Mapping[str, Any], fds: Collection[int], what: str, *, own_session: bool = False
) -> subprocess.Popen[str]:
    """Run ``module`` as a child process and return once it has printed ``ready``.

    The descriptors ``fds`` (namespaces, sockets) stay open in the child under the same numbers. With ``own_session``
    the child has a session of its own, so Ctrl-C in the terminal does not reach it. Raises ``MachineError`` naming
    ``what`` if the child is not ready within 10 s.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=tuple(fds),
        env=child_environment(),
        start_new_session=own_session,
        text=True,
    )
    assert process.stdin and process.stdout
    try:
        with suppress(BrokenPipeError):  # the child has ended already; the missing ``ready`` is reported below
            process.stdin.write(json.dumps(settings) + "\n")
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _START_S)
        if not ready or process.stdout.readline() != "ready\n":
            raise MachineError(f"{what} did not start; its message is above")
    except BaseException:
        end_child(process)
        raise
    return process


def request_stop(process: subprocess.Popen[str]) -> None:
    """Ask a child to stop by a line on its standard input.

    Closing the pipe would not be enough, since other processes may hold it open.
    """
    assert process.stdin
    with suppress(BrokenPipeError):
        process.stdin.write("stop\n")
        process.stdin.close()


def end_child(process: subprocess.Popen[str], patience_s: float = 0.0) -> None:
    """Wait up to ``patience_s`` seconds for a process to end, then kill it, and close its pipes."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
