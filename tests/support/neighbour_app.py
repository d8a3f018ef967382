"""The example app of a user's own controller, which joins neighbours, as a child that a test can trouble."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checkout import ROOT


@contextmanager
def neighbour_app(plan: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The app for the fabric in the file ``plan``, from when it listens on ``port`` until the block ends."""
    app = subprocess.Popen(
        [sys.executable, str(ROOT / "docs" / "examples" / "my_ryu_app.py"), "--ofp-tcp-listen-port", str(port)],
        env={**os.environ, "RAILYARD_PLAN": str(plan)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for_port(port)
        yield app
    finally:
        app.kill()
        app.wait()


def _wait_for_port(port: int) -> None:
    listening = f":{port:04X} "
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if any(listening in line and " 0A " in line for line in Path("/proc/net/tcp").read_text().splitlines()):
            return
        time.sleep(0.05)
    raise AssertionError("the Ryu app does not listen")
