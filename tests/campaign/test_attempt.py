"""An attempt whose run ends by itself before the fault is made: what counts as tried, and what as a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign import attempt
from tests.campaign.attempt import Attempt, FailedBefore, Missed
from tests.campaign.expectation import Outcome
from tests.campaign.fault import Fault, Place
from tests.campaign.launch import Launch


@pytest.mark.parametrize(
    ("command", "goes_on", "error", "says"),
    [
        ("exit 0", True, Missed, "^$"),
        ("exit 8", True, Missed, "^$"),
        ("exit 3", True, FailedBefore, "ended with status 3 before the fault was made"),
        ("exit 3", False, Missed, "^$"),
        ("exec sleep 60", True, FailedBefore, "hung for 1 s before the fault was made"),
    ],
)
def test_a_run_that_fails_by_itself_is_not_a_fault_that_was_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, goes_on: bool, error: type[Exception], says: str
) -> None:
    monkeypatch.setattr(attempt, "HANG_S", 0.6)
    launch = Launch(tmp_path / "run", "a mark of this test")
    launch.command = ["sh", "-c", command]
    fault = Fault(0, 1, Place("signal", "controller", "KILL", "step"))
    with pytest.raises(error, match=says):
        Attempt(fault, launch, lambda: goes_on).run()


def test_a_plot_that_does_not_end_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "_PLOT_S", 0.2)
    launch = Launch(tmp_path / "run", "a mark of this test")
    monkeypatch.setattr(launch, "railyard", lambda *arguments: ["sh", "-c", "exec sleep 60"])
    fault = Fault(0, 1, Place("signal", "controller", "KILL", "step"))
    tried = Attempt(fault, launch, lambda: True)
    assert tried._plot(Outcome(0, "")) == ["plot does not end within 0.2 s"]
