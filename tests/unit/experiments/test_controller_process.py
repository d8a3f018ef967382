"""Waiting for a controller ends when it says that it is ready, when time is up, or when its switches are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.controller_process import ControllerFiles, ControllerProcess
from railyard.errors import ControlError, MachineError


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[ControllerProcess, int]]:
    """A controller that has not been started, and the end of the pipe to which it would write."""
    controller = object.__new__(ControllerProcess)
    controller.files = ControllerFiles(*(tmp_path / name for name in ("plan", "channel", "events", "log")))
    controller._ready_read, writing = os.pipe()
    yield controller, writing
    os.close(writing)
    os.close(controller._ready_read)


def test_the_message_of_a_ready_controller_is_returned(pipe: tuple[ControllerProcess, int]) -> None:
    controller, writing = pipe
    os.write(writing, b'{"ready": true, "rest": "127.0.0.1:1"}\n')
    assert controller.wait_ready()["ready"]
    assert controller.rest_address == "127.0.0.1:1"


def test_a_controller_that_is_late_is_said_to_be(pipe: tuple[ControllerProcess, int]) -> None:
    with pytest.raises(ControlError, match=r"the controller was not ready within 0\.01 s: its log is empty"):
        pipe[0].wait_ready(0.01)


def test_switches_that_have_ended_are_not_waited_for(pipe: tuple[ControllerProcess, int]) -> None:
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])

    def check() -> None:
        if ended.poll() is not None:
            raise MachineError("the private ovs-vswitchd ended")

    with pytest.raises(MachineError, match="ovs-vswitchd"):
        pipe[0].wait_ready(30, check)
