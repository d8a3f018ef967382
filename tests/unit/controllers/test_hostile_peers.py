"""A controller process goes on serving whatever one peer does: a switch, a client of the job channel or of REST."""

from __future__ import annotations

import json
import os
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pytest
from fabric_plans import rail_plan

from controllers.northbound.client import ChannelClient
from controllers.openflow import app
from railyard.process.start import child_environment

TOKEN = "s3cret"
PATIENCE_S = 20.0
HELLO = b"\x05\x00\x00\x08\x00\x00\x00\x01"
FEATURES_REQUEST = 5
CONNECTIONS = 30


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Controller:
    """``python -m controllers.main`` without root and without switches."""

    def __init__(self, framework: str, folder: Path) -> None:
        (folder / "plan.json").write_text(json.dumps(asdict(rail_plan(4))))
        self.openflow, self.rest = ("127.0.0.1", free_port()), ("127.0.0.1", free_port())
        self.channel, self.log = folder / "channel", folder / "log"
        command = [
            *(sys.executable, "-m", "controllers.main", "--plan", str(folder / "plan.json")),
            *("--channel", str(self.channel), "--events", str(folder / "events")),
            *("--framework", framework, "--openflow-port", str(self.openflow[1])),
            *("--rest", f"127.0.0.1:{self.rest[1]}", "--rest-token-fd", "0"),
        ]
        (folder / "token").write_text(TOKEN)
        with open(folder / "token") as token, self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdin=token, stdout=log, stderr=log, env=child_environment())
        self.until(lambda: socket.create_connection(self.openflow, timeout=1).close())

    def until(self, attempt: Callable[[], object]) -> None:
        """Try until no ``OSError`` comes."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                attempt()
            except OSError:
                assert time.monotonic() < end and self.process.poll() is None, self.log.read_text()
                time.sleep(0.05)
            else:
                return

    def switch(self, *messages: bytes) -> socket.socket:
        """A switch that has said ``messages``."""
        made = socket.create_connection(self.openflow, timeout=PATIENCE_S)
        made.sendall(b"".join(messages))
        return made

    def check_serving(self) -> None:
        """All three interfaces answer."""
        with self.switch(HELLO) as honest:
            said = b""
            while FEATURES_REQUEST not in said[9:10]:
                said += honest.recv(100)
        with ChannelClient(self.channel, PATIENCE_S) as people:
            assert people.call("jobs")["jobs"] == []
        with socket.create_connection(self.rest, timeout=PATIENCE_S) as call:
            call.sendall(b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret\r\n\r\n")
            assert b" 200 OK" in call.makefile("rb").readline()

    def cpu_s(self) -> float:
        """Processor time of the process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def may_open(self, files: int | None) -> None:
        """Let the process open so many files more than it has now (None: as many as this process)."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files is not None:
            limits = len(os.listdir(f"/proc/{self.process.pid}/fd")) + files, limits[1]
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, limits)


@pytest.fixture(scope="module", params=app.PACKAGES)
def controller(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    made = Controller(request.param, tmp_path_factory.mktemp("controller"))
    yield made
    made.process.kill()
    made.process.wait()


@pytest.mark.parametrize(
    "message",
    [
        b"\x05\x00\x00\x10\x00\x00\x00\x01" + struct.pack("!HHI", 9, 0, 0),
        b"\x04\x00\x00\x10\x00\x00\x00\x01" + struct.pack("!HHI", 9, 3, 0),
        b"\x05\x13\x00\x40\x00\x00\x00\x01" + struct.pack("!HHI", 13, 0, 0) + bytes(48),
        b"\x05\x00\x00\x00\x00\x00\x00\x00",
    ],
    ids=["hello element of no length", "element shorter than its header", "port of no length", "message of no length"],
)
def test_a_switch_that_sends_lengths_of_zero_is_disconnected(controller: Controller, message: bytes) -> None:
    with controller.switch(message, HELLO) as evil:
        while evil.recv(100):
            pass
    assert "a switch that breaks OpenFlow is disconnected" in controller.log.read_text()
    controller.check_serving()


def test_no_file_descriptors_left_is_no_end_and_no_spinning(controller: Controller) -> None:
    with ExitStack() as stack:
        controller.may_open(5)
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(controller.rest))
            stack.enter_context(controller.switch())
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(controller.channel))
        names = "the REST server", "the job channel", "the OpenFlow port"
        end = time.monotonic() + PATIENCE_S
        while not all(f"{name} accepts no connections for now" in controller.log.read_text() for name in names):
            assert time.monotonic() < end, controller.log.read_text()
            time.sleep(0.02)
        before = controller.cpu_s()
        time.sleep(0.5)
        assert controller.cpu_s() - before < 0.25, "it spins"
        controller.may_open(None)
        controller.check_serving()
    controller.check_serving()
    log = controller.log.read_text()
    assert all(log.count(f"{name} accepts no connections for now") < 5 for name in names) and "Traceback" not in log
