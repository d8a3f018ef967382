"""The HTTP server of the REST interface on real sockets: slow, greedy and broken clients are cut, others are served."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import cast

import pytest
from fabric_plans import rail_plan

from controllers.northbound import http_server, rest
from controllers.northbound.messages import AnyRequest
from controllers.northbound.pending_replies import Requester, success
from controllers.openflow.core import ControllerCore
from railyard.process.start import child_environment

PATIENCE_S = 10.0
HEAD = b"Host: localhost\r\nAuthorization: Bearer s3cret\r\nContent-Type: application/json\r\n"
JOBS = b"GET /jobs HTTP/1.1\r\n" + HEAD + b"\r\n"
FAULTS = b"POST /faults HTTP/1.1\r\n" + HEAD


class Core:
    """Answers every request at once, or only when ``go`` is set."""

    plan = rail_plan(2)

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.seen: list[AnyRequest] = []

    def execute(self, request: AnyRequest, requester: Requester) -> None:
        """Answer ``request``."""
        self.seen.append(request)
        self.go.wait(PATIENCE_S)
        requester.answer(None, success(jobs=[]))


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
def call(core: Core) -> Iterator[Callable[[bytes], socket.socket]]:
    """A function that connects to a server and sends some bytes."""
    server, hosts = http_server.listen("127.0.0.1:0")
    server.set_app(rest.make_app(cast("ControllerCore", core), "s3cret", hosts))
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()

    def connected(data: bytes = b"") -> socket.socket:
        made = socket.create_connection(server.server_address[:2], timeout=PATIENCE_S)  # type: ignore[arg-type]
        made.sendall(data)
        return made

    yield connected
    server.socket.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_S)
    server.server_close()
    assert not thread.is_alive()


Call = Callable[..., socket.socket]


def answer(client: socket.socket) -> tuple[int, str]:
    """The status and the sentence of the answer, after which the connection ends."""
    with client:
        head, _, body = client.makefile("rb").read().partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body).get("error", "")


def ended(client: socket.socket) -> bool:
    """Whether the server ends the connection without an answer."""
    with client:
        try:
            return client.recv(100) == b""
        except ConnectionResetError:
            return True


def test_calls_are_answered(call: Call) -> None:
    assert answer(call(JOBS)) == (200, "")
    chunks = b'Transfer-Encoding: chunked\r\n\r\n9\r\n{"rank": \r\n2\r\n1}\r\n0\r\n\r\n'
    assert answer(call(FAULTS + chunks)) == (200, "")


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (FAULTS + b"Content-Length: 9999999999\r\n\r\n" + b"x" * 100_000, 413, "longer than 1048576 bytes"),
        (FAULTS + b"Transfer-Encoding: chunked\r\n\r\n" + b"40000\r\n%b\r\n" % bytes(1 << 18) * 8, 413, "longer than"),
        (FAULTS + b"Content-Length: 1e9\r\n\r\n", 400, "Content-Length: must be a number of bytes"),
        (FAULTS + b"Transfer-Encoding: gzip\r\n\r\n", 400, "Transfer-Encoding: must be chunked, or be left out"),
        (FAULTS + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "a chunk of the body must begin"),
        (FAULTS + b"Content-Length: 100000\r\n\r\n" + b"[" * 100_000, 400, "nested at most 200 deep"),
        (FAULTS.replace(b"s3cret", b"guess") + b"Content-Length: 9999999\r\n\r\n", 401, "a token is needed"),
        (FAULTS.replace(b"s3cret", b"\xff\xfe") + b"\r\n", 401, "a token is needed"),
        (JOBS.replace(b"localhost", b"\xff"), 403, "the Host header must name"),
    ],
)
def test_what_is_wrong_is_one_sentence(call: Call, sent: bytes, status: int, reason: str) -> None:
    found, sentence = answer(call(sent))
    assert (found, reason in sentence) == (status, True), sentence


@pytest.mark.parametrize(
    "sent", [b"\x00" * 100, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/9\r\n\r\n",
             JOBS[:-2] + b"X: y\r\n" * 200 + b"\r\n", b"\r\n"],
)  # fmt: skip
def test_what_is_no_http_is_refused(call: Call, core: Core, sent: bytes) -> None:
    with suppress(OSError), call(sent) as client:  # it may be closed before all is sent
        client.shutdown(socket.SHUT_WR)
        assert b" 200 " not in client.makefile("rb").readline()
    assert not core.seen and answer(call(JOBS)) == (200, "")


@pytest.mark.parametrize("begun", [b"", JOBS[:-2], FAULTS + b"Content-Length: 1000\r\n\r\n"])
def test_a_client_that_sends_a_byte_a_moment_is_cut(
    call: Call, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], begun: bytes
) -> None:
    monkeypatch.setattr(http_server, "READ_S", 0.3)
    began, client = time.monotonic(), call(begun)
    client.settimeout(0.05)
    with client:
        while True:
            try:
                client.sendall(b"x")
                if not client.recv(100):
                    break
            except TimeoutError:
                assert time.monotonic() - began < PATIENCE_S
            except OSError:
                break
    assert "Traceback" not in capfd.readouterr().err


def test_a_client_that_does_not_read_is_cut(
    call: Call, core: Core, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(http_server, "WRITE_S", 0.2)
    large = success(jobs=["x" * (16 << 20)])
    monkeypatch.setattr(core, "execute", lambda request, requester: requester.answer(None, large))
    before = threading.active_count()
    with call(JOBS):
        end = time.monotonic() + PATIENCE_S
        while threading.active_count() <= before:
            assert time.monotonic() < end
            time.sleep(0)
        while threading.active_count() > before:
            assert time.monotonic() < end, "the thread of the call goes on"
            time.sleep(0.01)
    assert "Traceback" not in capfd.readouterr().err


def test_of_too_many_connections_that_send_nothing_the_oldest_is_cut(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MOST_UNREAD", 4)
    with ExitStack() as stack:
        silent = [stack.enter_context(call()) for _ in range(4)]
        assert answer(call(JOBS)) == (200, "")
        assert ended(silent[0])
        for other in silent[1:]:
            other.sendall(JOBS)
            assert answer(other) == (200, "")


def test_slow_and_greedy_clients_end_under_green_threads_too() -> None:
    """The tests of this file, in a process whose standard library ryu has patched."""
    script = (
        "from controllers.openflow import app; app.prepare('ryu'); import os, pytest, sys;"
        "os._exit(pytest.main(['-q', '--noconftest', *sys.argv[1:]]))"
    )
    plugins = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")  # it imports what green threads cannot patch
    command = [sys.executable, "-W", "ignore", "-c", script, *plugins, "-k", "cut or served_at_once", __file__]
    found = subprocess.run(command, env=child_environment(), capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stdout + found.stderr


def test_more_calls_than_are_served_at_once_are_refused(
    call: Call, core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.go.clear()
    with ExitStack() as stack:
        waiting = [stack.enter_context(call(JOBS)) for _ in range(rest.MOST_CALLS)]
        end = time.monotonic() + PATIENCE_S
        while len(core.seen) < rest.MOST_CALLS:
            assert time.monotonic() < end
            time.sleep(0.01)
        status, sentence = answer(call(JOBS))
        assert (status, sentence) == (503, "32 calls are being served; call again when one of them is over")
        assert answer(call(JOBS.replace(b"s3cret", b"guess")))[0] == 401
        core.go.set()
        assert [answer(client)[0] for client in waiting] == [200] * rest.MOST_CALLS
    assert answer(call(JOBS)) == (200, "")
