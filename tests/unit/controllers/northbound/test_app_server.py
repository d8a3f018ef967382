"""The sockets of an app in the loop, with the module that apps import at the other end, and switches in memory."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fabric_plans import pipeline_groups, rail_plan
from fake_openflow import FakeSwitch

from controllers.engine.jobs import Job
from controllers.northbound import channel
from controllers.northbound.app_bridge import LINE_BYTES
from controllers.northbound.app_core import AppCore
from controllers.northbound.app_server import AppServer
from controllers.openflow import flows
from railyard.app_channel import AppChannel
from railyard.errors import ControlError
from railyard.protocol import to_json

PATIENCE_S = 10.0


class Served:
    """A core that an app can connect to at ``path``; ``error`` is what ended it."""

    trusted = True

    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.sock"
        self.switch = FakeSwitch()
        self.answers: dict[object, Any] = {}
        self.error = ""
        management = socket.socket(socket.AF_UNIX)
        management.bind(str(folder / "rail0.mgmt"))
        management.listen()
        self._spawn(lambda: self._be_a_switch(management))
        self.core = AppCore(rail_plan(4), lambda event: None)
        self.core.start()
        self.server = AppServer(channel.listen(self.path), self.core, folder)
        self._spawn(self._serve)

    def _spawn(self, run: Callable[[], None]) -> None:
        threading.Thread(target=run, daemon=True).start()

    def _serve(self) -> None:
        try:
            self.server.serve()
        except ControlError as error:
            self.error = str(error)

    def _be_a_switch(self, management: socket.socket) -> None:
        connection, _ = management.accept()
        while data := connection.recv(1 << 16):
            self.switch.take(data)
            sent, self.switch.sent = self.switch.sent, []
            for kind, xid in sent:
                if kind != "flows":
                    continue  # of the app's bundle
                connection.sendall(flows.header(2, 9, 4) + b"echo")
                entries = self.switch.statistics()
                for part, more in ((entries[:80], 1), (entries[80:], 0)):
                    body = struct.pack("!HH4x", flows.MULTIPART_FLOW, more) + part
                    connection.sendall(flows.header(19, xid, len(body)) + body)

    def answer(self, request_id: object, answer: bytes) -> None:
        self.answers[request_id] = json.loads(answer)

    def ask(self, request_id: str, **message: Any) -> Any:
        self.core.handle(to_json({"id": request_id, **message}), self)
        return self.wait(lambda: self.answers.get(request_id))

    def register(self) -> Any:
        job = Job("j", pipeline_groups(2, 2), "x", 0.01)
        return self.ask("register", op="register", policy="opus", job=job)

    def wait(self, found: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE_S
        while not (what := found()):
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.005)
        return what

    def raw(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(PATIENCE_S)
        sock.connect(str(self.path))
        return sock


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.core.app.end = served.core.app.end or "the test is over"


def app(served: Served) -> AppChannel:
    """An app that does what it is asked for."""
    own = AppChannel(str(served.path))

    def run() -> None:
        for message in own.messages():
            if message["op"] == "request":
                ways = [way for a, b in message["circuits"] for way in ((a, b), (b, a))]
                served.switch.take(flows.bundle([flows.no_flows(), *(flows.circuit_flow(*way) for way in ways)], 1))
            if message["op"] in ("hello", "request"):
                own.up(message)

    threading.Thread(target=run, daemon=True).start()
    served.wait(lambda: served.core.datapaths.complete)
    return own


def test_an_app_serves_a_job_and_a_second_one_is_refused(served: Served) -> None:
    own = app(served)
    assert served.register() == {"ok": True}
    assert served.switch.flows
    with served.raw() as second:
        refused = json.loads(second.makefile().read())
    assert refused["op"] == "error" and "is connected already" in refused["error"]
    assert own._socket is not None
    own._socket.shutdown(socket.SHUT_RDWR)  # as the kernel does for a process that is killed
    assert served.wait(lambda: served.error) == "your controller left while a job ran"


def test_an_app_that_comes_again_before_there_is_a_job_is_welcome(served: Served) -> None:
    with served.raw() as first:
        assert json.loads(first.makefile().readline())["op"] == "hello"
    app(served)
    assert served.register() == {"ok": True}


def test_a_line_without_an_end_is_answered_and_ends_the_connection(served: Served) -> None:
    with served.raw() as endless:
        words = endless.makefile()
        assert json.loads(words.readline())["op"] == "hello"
        endless.sendall(b"x" * (LINE_BYTES + 1))
        error, *rest = words.read().splitlines()
    assert json.loads(error)["op"] == "error" and not rest
    assert not served.error
