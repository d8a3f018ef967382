"""The command ``railyard watch`` as a process of its own, for as long as a test looks at its page."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkout import ROOT
from script_runs import hear_signals

END_S = 60.0
"""A server runs only when nothing else has work, so a busy machine lets it wait."""
RAILYARD = (sys.executable, "-m", "commands.main")


@dataclass(frozen=True)
class Served:
    """A page: its address, which ends with the token and /, and the process that serves it."""

    url: str
    process: subprocess.Popen[str]

    @property
    def origin(self) -> str:
        return self.url.rsplit("/", 2)[0]


@contextmanager
def watching(folder: Path, control: bool = False) -> Iterator[Served]:
    """Serve the page of a folder; it ends as with Ctrl-C, unless the test kills it."""
    command = [*RAILYARD, "watch", str(folder), *(["--control"] if control else [])]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, **pipes, cwd=ROOT, env=environment, preexec_fn=hear_signals)
    assert process.stdout is not None and process.stderr is not None
    try:
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), url + process.stderr.read()
        yield Served(url, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(END_S) in (0, -signal.SIGKILL), process.stderr.read()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
