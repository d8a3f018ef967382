"""What goes wrong in the middle of a rotation: the run ends with one sentence, and the machine is clean."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from script_runs import PATIENCE_S, descendants, finish, kill_controller, runs_of, start, wait_for_agents

from controllers.northbound.client import ChannelClient
from topos.kernel.run_registry import RegisteredRun

pytestmark = [pytest.mark.root, pytest.mark.beside]

RANKS = 4
SLOTS_BEFORE = 5


def turning(out: Path, *options: str) -> tuple[subprocess.Popen[str], RegisteredRun]:
    """An all-to-all that would go on for long, some slots after its first."""
    process = start(
        "all_to_all.py", "--study", "grid", "--policies", "rotor", "--ranks", str(RANKS), "--sizes", "200000",
        "--iterations", "500", "--out", str(out), *options,
    )  # fmt: skip
    wait_for_agents(process)
    (run,) = runs_of(process.pid)
    events = out / "points" / "000" / "controller.jsonl"
    end = time.monotonic() + PATIENCE_S
    while not events.exists() or events.read_text().count('"slot"') < SLOTS_BEFORE:
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.02)
    return process, run


def an_agent(process: subprocess.Popen[str], run: RegisteredRun) -> None:
    os.kill(wait_for_agents(process, rank=2), signal.SIGKILL)


def the_controller(process: subprocess.Popen[str], run: RegisteredRun) -> None:
    kill_controller(process)


def a_port(process: subprocess.Popen[str], run: RegisteredRun) -> None:
    with ChannelClient(run.path / "job.sock") as people:
        people.call("fault", switch="rail0", port=3, state="failed")


SIZE, LENGTH = (), ("--slots", "60")
"""Options: slots that last until all have sent, and such that last 60 ms."""


@pytest.mark.parametrize(
    ("breaks", "slots", "status", "said"),
    [
        (an_agent, SIZE, 6, "the agent of rank 2 was killed by signal 9 (SIGKILL)"),
        (the_controller, LENGTH, 5, "the controller ended during the run"),
        (a_port, SIZE, 6, "port 3 of rail0 has failed"),
        pytest.param(a_port, LENGTH, 6, "port 3 of rail0 has failed", marks=pytest.mark.thorough),
    ],
)
def test_trouble_in_a_rotation_ends_it_with_one_sentence(
    tmp_path: Path,
    breaks: Callable[[subprocess.Popen[str], RegisteredRun], None],
    slots: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    out = tmp_path / "results"
    process, run = turning(out, *slots)
    everybody = list(descendants(process.pid))
    breaks(process, run)
    began = time.monotonic()
    found, _, errors = finish(process)
    took_s = time.monotonic() - began
    assert found == status, errors
    assert said in errors and "Traceback" not in errors
    (sentence,) = [line for line in errors.splitlines() if line.startswith("railyard: ")]
    assert said in sentence
    assert took_s < 20
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["ended"] == f"stopped: {sentence.removeprefix('railyard: ')}"
    assert '"slot"' in (out / "points" / "000" / "events.jsonl").read_text(), "what was measured is kept"
    assert not runs_of(process.pid) and not run.path.exists()
    assert not [pid for pid in everybody if Path(f"/proc/{pid}").exists()]
