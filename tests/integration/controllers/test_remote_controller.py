"""Runs with a controller of the user's own that goes away, or installs nothing, name it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from checkout import ROOT
from listeners import listeners_of
from neighbour_app import neighbour_app
from script_runs import ONCE, finish, rows, wait_for_step

from measure.results.results import Results
from topos.kernel.fastpath import openflow

pytestmark = [pytest.mark.root, pytest.mark.beside]

RAILS = (sys.executable, "-m", "commands.main", "run", "rails")
COMMON = ("--workload", "pp-only", "--controller", "remote", "--fabric", "ocs", "--time", "0.5", "--no-figures")
NOT_FAITHFUL, CONTROL = 8, 5


def started(*options: str) -> subprocess.Popen[str]:
    """A run of rails as a child in a session of its own."""
    command, pipe = [*RAILS, *options], subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, stdout=pipe, stderr=pipe)


@contextmanager
def idle_app() -> Iterator[int]:
    """A controller that greets switches, answers their echoes, and does nothing else; its port on loopback."""

    def serve(switch: socket.socket) -> None:
        buffer = bytearray()
        with switch, suppress(OSError):
            switch.sendall(openflow.message(openflow.HELLO, 0))
            while data := switch.recv(1 << 16):
                buffer += data
                for message in openflow.split(buffer):
                    if message[1] == openflow.ECHO_REQUEST:
                        switch.sendall(openflow.message(openflow.ECHO_REPLY, int.from_bytes(message[4:8], "big")))

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]


def test_an_app_that_installs_nothing_is_asked_for_circuits(tmp_path: Path) -> None:
    with idle_app() as port:
        status, _, errors = finish(
            started(*COMMON, *ONCE, "--remote", f"127.0.0.1:{port}", "--ack-timeout", "8", "--out", str(tmp_path / "r"))
        )
    assert status == CONTROL, errors
    assert re.search(r"rail[0-3] has no flow between ports \d+ and \d+; does your app install circuits\?", errors), (
        errors
    )
    assert "Traceback" not in errors


@contextmanager
def app_of_the_job(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The example app for the fabric of the job, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    plan = started(*COMMON[:-1], "--print-plan").communicate()[0]
    (tmp_path / "plan.json").write_text(plan)
    with neighbour_app(tmp_path / "plan.json", port) as app:
        yield app, port


def test_an_app_that_leaves_in_the_middle_is_in_the_row_and_on_the_timeline(tmp_path: Path) -> None:
    out = tmp_path / "results"
    with app_of_the_job(tmp_path) as (app, port):
        options = ("--remote", f"127.0.0.1:{port}", "--steps", "4", "--out", str(out))
        process = started(*COMMON, *ONCE, *options)
        wait_for_step(process, out, 1)
        assert listeners_of(app.pid) == [f"tcp 127.0.0.1:{port}"]
        app.kill()
        status, output, errors = finish(process)
    assert status == NOT_FAITHFUL, errors
    (row,) = rows(out)
    assert row["faithful"] is False
    assert "your controller left at " in output + errors
    (left,) = [e for e in Results(out).events() if (e.source, e.kind) == ("run", "left")]
    assert left["what"].startswith("your controller left at ")
