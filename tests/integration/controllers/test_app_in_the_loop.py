"""An OpenFlow app of one's own carries out the circuits of a run: a good one, under both frameworks, and a bad one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from checkout import ROOT
from script_runs import ONCE, PATIENCE_S, SMOKE, finish, rows, runs_of, start, wait_for_step

from measure.results.results import Results
from railyard.app_channel import SOCKET_VARIABLE, default_socket

pytestmark = pytest.mark.root

APP = ROOT / "docs" / "examples" / "my_opus_app.py"
SUPPORT = ROOT / "tests" / "support" / "openflow"
RAN = (0, 8)
"""Finished: faithful, or not (the machine of a test may be busy with other tests)."""
JOB = (*SMOKE, "--modes", "on-demand", "--delays", "50", "--no-figures")
ENDS_S = 5.0


@contextmanager
def app(file: Path, framework: str = "osken") -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process with the app in ``file``, and the port that it listens on for switches."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, SOCKET_VARIABLE: default_socket(port)}
    manager = ROOT / "scripts" / f"{framework}-manager"
    command = [sys.executable, str(manager), "--ofp-tcp-listen-port", str(port), str(file)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield process, port
    finally:
        process.kill()
        process.wait()


def begin(port: int, out: Path, *options: str) -> subprocess.Popen[str]:
    remote = ("--controller", "remote", "--remote", f"127.0.0.1:{port}")
    return start("rail_reconfiguration.py", *ONCE, *JOB, *remote, "--out", str(out), *options)


@pytest.mark.beside
@pytest.mark.skipif(find_spec("ryu") is None, reason="Ryu is not installed")
def test_opus_as_an_app_of_ryu_runs_a_job_as_the_built_in_controller_does(tmp_path: Path) -> None:
    with app(APP, "ryu") as (_, port):
        run = begin(port, tmp_path / "out", "--steps", "2", "--verify")
        status, _, errors = finish(run)
    assert status in RAN, errors
    (row,) = rows(tmp_path / "out")
    assert row["reconfigurations_per_step"] == row["predicted_reconfigurations_per_step"] == 2
    assert (row["wrong"], row["packets_lost"], row["controller"]) == (0, 0, "remote")
    assert row["circuit_wait_s"] >= 0.095, "two changes of 50 ms, both on the critical path"
    changes = [e for e in Results.open(tmp_path / "out").events() if e.kind == "reconfigure"]
    assert changes and all("verified" not in change.fields for change in changes)
    assert not runs_of(run.pid) and not Path(default_socket(port)).exists()


@pytest.mark.beside
def test_an_app_that_lies_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    with app(SUPPORT / "lying_app.py") as (_, port):
        status, _, errors = finish(begin(port, tmp_path / "out", "--steps", "3"))
    assert status == 5, errors
    assert errors.splitlines()[-1].startswith("railyard: your controller said that rail"), errors
    assert "Traceback" not in errors and not Path(default_socket(port)).exists()


@pytest.mark.beside
def test_an_app_that_is_killed_in_mid_step_is_named_soon(tmp_path: Path) -> None:
    with app(APP) as (process, port):
        run = begin(port, tmp_path / "out", "--steps", "100")
        wait_for_step(run, tmp_path / "out")
        process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        status, _, errors = finish(run)
    assert status == 5 and time.monotonic() - killed < ENDS_S, errors
    assert "your controller left " in errors.splitlines()[-1] and "Traceback" not in errors
    assert any(event.kind == "ack" for event in Results.open(tmp_path / "out").events()), "what was is kept"
