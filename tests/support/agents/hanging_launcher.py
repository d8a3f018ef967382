"""The agent launcher for tests: an agent that gets SIGUSR1 hangs in its loop while its heartbeats go on."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

import pytest
from checkout import ROOT

from railyard.process.start import start_python
from workloads.agent import launcher_server

HANG = signal.SIGUSR1


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let launchers that are started from now on be this one."""

    path = f"{ROOT}:{ROOT / 'tests' / 'support'}"

    def start(module: str, *arguments: str, environment: dict[str, str], **options: Any) -> Any:
        own = {**environment, "PYTHONPATH": path}
        return start_python("agents.hanging_launcher", *arguments, environment=own, **options)

    monkeypatch.setattr("workloads.agent.launcher.start_python", start)


def hang(number: int, frame: FrameType | None) -> None:
    """Never return to the loop, which runs in the main thread, as signal handlers do."""
    while True:
        signal.pause()


def main() -> None:
    """Run the process of the launcher."""
    signal.signal(HANG, hang)
    launcher_server.main()
