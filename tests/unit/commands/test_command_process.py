from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout import ROOT

CATALOG = """
runs: {long: {arguments: rails --steps 100000, verb: predict, minutes: 9, root: false}}
claims: {a: {system: X, says: Y, run: long, number: {take: value, column: n}, source: law, expected: 1}}
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_ends_with_the_one_that_started_it(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that is stopped waits for its child, which the kernel ends with one that is killed."""
    (tmp_path / "claims.yaml").write_text(CATALOG)
    command = [sys.executable, "-m", "commands.main", "claims", "--run", "--docs", str(tmp_path)]
    command += ["--out", str(tmp_path / "out")]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None and not children.read_text():
            time.sleep(0.001)
        child = os.pidfd_open(int(children.read_text().split()[0]))
        process.send_signal(number)
    waiting = select.poll()
    waiting.register(child, select.POLLIN)
    has_ended = bool(waiting.poll(0 if number == signal.SIGTERM else 10_000))
    if not has_ended:
        signal.pidfd_send_signal(child, signal.SIGKILL)
    os.close(child)
    assert has_ended, "the child still runs"
    assert not (tmp_path / "measured").exists()
