from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from commands.sweep.workers import remote_point, worker_task
from railyard.errors import MachineError


def started(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small program stand for ``railyard sweep remote-point``."""
    monkeypatch.setattr(worker_task, "railyard", lambda *_, root: [sys.executable, "-c", f"import sys\n{code}"])


def test_a_calibration_is_stopped_by_the_end_of_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    started("line = sys.stdin.readline(); sys.stdin.read(); sys.exit(f'stopped {line}')", monkeypatch)
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(worker_task.calibrate()))
    thread.start()
    while not worker_task._running:
        time.sleep(0.001)
    thread.join(0.3)
    assert thread.is_alive()
    worker_task.stop_tasks()
    thread.join(10.0)
    assert said == ["stopped calibrate"] and not worker_task._running


def test_a_calibration_that_fails_says_why_and_one_that_does_not_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started("sys.exit('railyard: no rights')", monkeypatch)
    assert worker_task.calibrate() == "no rights"
    started("sys.stdin.readline()", monkeypatch)
    assert worker_task.calibrate() == ""


def test_a_point_whose_process_ends_at_once_has_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    started("sys.exit('railyard: no rights')", monkeypatch)
    with pytest.raises(MachineError, match="a point has ended without results: no rights"):
        worker_task.run_task({"predict": False, "much": "x" * 1_000_000}, root=False)


@pytest.mark.parametrize(("status", "printed"), [(0, ""), (3, "too busy\n")])
def test_the_line_of_a_calibration_runs_the_command(
    status: int, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = os.pipe()
    os.write(ends[1], remote_point.CALIBRATE)
    ran: list[list[str]] = []

    def run(command: list[str], log: Path) -> int:
        ran.append(command)
        log.write_text("railyard: too busy\n")
        return status

    monkeypatch.setattr(remote_point, "run_command", run)
    with open(ends[0]) as source:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=source.fileno))
        monkeypatch.setattr(remote_point, "_stop_at_end", lambda source: None)
        assert remote_point.main() == status
    os.close(ends[1])
    assert ran == [["railyard", "calibrate", "--quick"]] and capsys.readouterr().err == printed
