"""Acts from the page: which call of the REST interface each is, and the sentence of each that cannot be done."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import bottle
import pytest

from commands.page import control as control_module
from commands.page.control import MOST_BYTES, Control, Refused, call_of
from controllers.northbound import http_server
from experiments.rest_access import TOKEN_FILE
from railyard.errors import ConfigError

TOKEN = "s3cret"


class Rest:
    """A REST interface that keeps calls, and answers with ``status`` and ``answer``."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any, str]] = []
        self.status, self.answer = 200, b"{}"
        self.delay = threading.Event()
        self.delay.set()
        self.server, _ = http_server.listen("127.0.0.1:0")
        app = bottle.Bottle()
        app.route("/<path:path>", ["PUT", "POST"], self._take)
        self.server.set_app(app)
        self.thread = threading.Thread(target=self.server.serve, daemon=True)
        self.thread.start()

    def _take(self, path: str) -> bytes:
        request = bottle.request
        said = request.get_header("Authorization", "")
        self.calls.append((request.method, f"/{path}", json.loads(request.environ["wsgi.input"].read()), said))
        self.delay.wait(5)
        bottle.response.status = self.status
        return self.answer

    def close(self) -> None:
        with suppress(OSError):
            self.server.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(5)
        self.server.server_close()


@pytest.fixture
def rest() -> Iterator[Rest]:
    made = Rest()
    yield made
    made.close()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A function that makes the results folder of a run that is under way."""
    lock = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def made(address: str | None, **manifest: Any) -> Path:
        found = {"railyard_results": 2, "experiment": {"rest": "127.0.0.1:0"}, **manifest}
        if address is not None:
            found["rest"] = address
        (tmp_path / "manifest.json").write_text(json.dumps(found))
        (tmp_path / TOKEN_FILE).write_text(TOKEN)
        (tmp_path / TOKEN_FILE).chmod(0o600)
        return tmp_path

    yield made
    os.close(lock)


REWIRE = {"act": "rewire", "switch": "rail0", "circuits": [[1, 5]]}
FAIL = {"act": "fail", "switch": "rail0", "port": 3}


@pytest.mark.parametrize(
    ("act", "call"),
    [
        (REWIRE, ("PUT", "/circuits/rail0", {"circuits": [[1, 5]]})),
        (REWIRE | {"update": "overwrite"}, ("PUT", "/circuits/rail0", {"circuits": [[1, 5]], "update": "overwrite"})),
        (REWIRE | {"switch": "../faults?x#"}, ("PUT", "/circuits/..%2Ffaults%3Fx%23", {"circuits": [[1, 5]]})),
        (REWIRE | {"switch": "a\r\nb\0é"}, ("PUT", "/circuits/a%0D%0Ab%00%C3%A9", {"circuits": [[1, 5]]})),
        (FAIL, ("POST", "/faults", {"switch": "rail0", "port": 3, "state": "failed"})),
        (FAIL | {"act": "restore"}, ("POST", "/faults", {"switch": "rail0", "port": 3, "state": "restored"})),
        (
            {"act": "fail-chip", "rank": 5},
            ("POST", "/faults", {"rank": 5, "cause": "reported on the page"}),
        ),
    ],
)
def test_each_act_is_one_call(act: dict[str, Any], call: tuple[str, str, dict[str, Any]]) -> None:
    assert call_of(act) == call


def test_an_act_reaches_the_run_with_its_token(rest: Rest, live: Callable[..., Path]) -> None:
    control = Control(live(rest.server.address))
    control.check()
    control.act(json.dumps(FAIL).encode())
    wanted = {"switch": "rail0", "port": 3, "state": "failed"}
    assert rest.calls == [("POST", "/faults", wanted, f"Bearer {TOKEN}")]
    Control(live(rest.server.address), "another").act(json.dumps(REWIRE).encode())
    assert rest.calls[1] == ("PUT", "/circuits/rail0", {"circuits": [[1, 5]]}, "Bearer another")


def refusal(control: Control, body: bytes = json.dumps(FAIL).encode()) -> tuple[int, str]:
    with pytest.raises(Refused) as refused:
        control.act(body)
    return refused.value.status, str(refused.value)


@pytest.mark.parametrize(
    ("status", "answer", "found"),
    [
        (404, b'{"error": "there is no switch rail9"}', (404, "there is no switch rail9")),
        (409, b'{"error": "port 3 of rail0 has failed"}', (409, "port 3 of rail0 has failed")),
        (500, b"<html>", (500, "the REST interface of the run refused, and did not say why")),
        (400, b'{"error": ["x"]}', (400, "the REST interface of the run refused, and did not say why")),
        (302, b"[]", (502, "the REST interface of the run refused, and did not say why")),
    ],
)
def test_the_sentence_of_a_refusal_is_passed_on(
    rest: Rest, live: Callable[..., Path], status: int, answer: bytes, found: tuple[int, str]
) -> None:
    rest.status, rest.answer = status, answer
    assert refusal(Control(live(rest.server.address))) == found


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"x" * (MOST_BYTES + 1), 413, f"an act is at most {MOST_BYTES} bytes long"),
        (b"", 400, "the body must be JSON"),
        (b"[]", 400, "the body must be a JSON object"),
        (b'{"act": "fail", "act": "fail"}', 400, "act: is given twice; give it once"),
        (b'{"act": NaN}', 400, "NaN is not a number of JSON"),
        (b"[" * 60_000, 400, "the body must be JSON, nested at most 200 deep"),
        (b'{"act": "fail", "id": 1}', 400, "id is not a key of a body"),
        (b"\xff", 400, "the body must be JSON"),
    ],
)
def test_a_body_that_is_no_act(rest: Rest, live: Callable[..., Path], body: bytes, status: int, sentence: str) -> None:
    assert refusal(Control(live(rest.server.address)), body) == (status, sentence)
    assert rest.calls == []


def test_a_run_that_cannot_be_reached(live: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, rest: Rest) -> None:
    assert refusal(Control(live(None))) == (503, "the run has no fabric that is up now; try again")
    status, said = refusal(Control(live("192.0.2.1:80")))
    assert (status, said) == (502, "192.0.2.1 is not an address of this machine; run railyard watch where the run is")
    assert refusal(Control(live("evil.example:80")))[0] == 502
    assert refusal(Control(live("127.0.0.1:80@evil.example:80")))[0] == 502
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        status, said = refusal(Control(live(f"127.0.0.1:{taken.getsockname()[1]}")))
    assert status == 502 and said.startswith("the REST interface of the run cannot be reached: [Errno 111]")
    monkeypatch.setattr(control_module, "ANSWER_S", 0.1)
    rest.delay.clear()
    status, said = refusal(Control(live(rest.server.address)))
    assert (status, said) == (504, "the run did not answer within 0.1 s; the act may still follow")
    rest.delay.set()


def test_an_address_of_all_interfaces_is_that_of_loopback(live: Callable[..., Path], rest: Rest) -> None:
    Control(live(f"0.0.0.0:{rest.server.server_port}")).act(json.dumps(FAIL).encode())
    assert len(rest.calls) == 1


def test_a_run_that_has_ended_is_not_acted_on(tmp_path: Path, rest: Rest) -> None:
    found = {"railyard_results": 2, "experiment": {"rest": ":0"}, "rest": rest.server.address}
    (tmp_path / "manifest.json").write_text(json.dumps(found))
    assert refusal(Control(tmp_path, TOKEN)) == (409, "the run has ended")
    with pytest.raises(ConfigError, match=r"^--control: .* holds a run that has ended; leave --control out$"):
        Control(tmp_path, TOKEN).check()


def test_what_a_live_run_must_have_is_checked_at_the_start(live: Callable[..., Path]) -> None:
    folder = live(None, experiment={"rest": None})
    with pytest.raises(ConfigError, match=r"^--control: the run has no REST interface; start it with "):
        Control(folder).check()
    folder = live(None)
    Control(folder).check()  # its fabric may come up later
    (folder / TOKEN_FILE).chmod(0o644)
    with pytest.raises(ConfigError, match="is open to other users"):
        Control(folder).check()
    (folder / TOKEN_FILE).unlink()
    with pytest.raises(ConfigError, match="takes its token from a file of its own; give that with --rest-token-file"):
        Control(folder).check()
    Control(folder, TOKEN).check()
