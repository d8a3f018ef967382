"""The client of ovsdb-server against a server that answers as the test says."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.errors import MachineError
from topos.kernel.ovsdb import Ovsdb, as_map, as_set, insert

Serve = Callable[[socket.socket], None]


class Server:
    """Listens at a path, serves one connection and keeps the requests that it got."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.requests: list[dict[str, Any]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread()

    def serve(self, *replies: bytes) -> Ovsdb:
        """A client, whose requests are answered by ``replies`` in turn; then the connection ends."""
        client = Ovsdb(self.path, timeout_s=5)
        peer, _ = self._listener.accept()

        def run() -> None:
            with peer:
                for reply in replies:
                    self.requests.append(json.loads(peer.recv(1 << 16)))
                    peer.sendall(reply)

        self._thread = threading.Thread(target=run)
        self._thread.start()
        return client

    def close(self) -> None:
        if self._thread.ident is not None:
            self._thread.join(10)
        self._listener.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "db.sock")
    yield made
    made.close()


def reply(number: int, result: Any, error: object = None) -> bytes:
    return json.dumps({"id": number, "result": result, "error": error}).encode()


def test_a_transaction_names_the_database_and_returns_each_result(server: Server) -> None:
    client = server.serve(reply(1, [{"uuid": ["uuid", "x"]}, {}]), reply(2, [{"rows": []}]))
    operation = insert("Bridge", {"name": "rail0", "other_config": as_map({"a": "b"})}, "b0")
    assert client.transact(operation, {"op": "comment"}) == [{"uuid": ["uuid", "x"]}, {}]
    assert client.transact({"op": "select"}) == [{"rows": []}]
    client.close()
    server.close()
    assert [request["id"] for request in server.requests] == [1, 2]
    assert server.requests[0]["method"] == "transact"
    assert server.requests[0]["params"] == ["Open_vSwitch", operation, {"op": "comment"}]
    assert operation == {
        "op": "insert",
        "table": "Bridge",
        "row": {"name": "rail0", "other_config": ["map", [["a", "b"]]]},
        "uuid-name": "b0",
    }
    assert as_set([1, 2]) == ["set", [1, 2]] and "uuid-name" not in insert("Port", {})


def test_an_echo_is_answered_before_the_result_comes(server: Server) -> None:
    echo = json.dumps({"method": "echo", "params": ["are you there"], "id": "echo"}).encode()
    client = server.serve(echo, reply(1, [{}]))
    assert client.transact({"op": "comment"}) == [{}]
    client.close()
    server.close()
    assert server.requests[1] == {"id": "echo", "result": ["are you there"], "error": None}


def test_answers_to_other_requests_are_passed_over(server: Server) -> None:
    client = server.serve(reply(7, [{"of": "another"}]) + b"\n " + reply(1, [{"of": "this"}]))
    assert client.transact({"op": "comment"}) == [{"of": "this"}]
    client.close()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (reply(1, [{}, {"error": "constraint violation", "details": "twice"}]), "constraint violation (twice)"),
        (reply(1, [None, {"error": "aborted"}]), "Open vSwitch refused: aborted (no details)"),
        (reply(1, None, "unknown database"), "Open vSwitch refused: unknown database"),
        (b'{"id": 1, "resu', "the private ovsdb-server closed the connection"),
    ],
)
def test_what_went_wrong_is_one_sentence(server: Server, answer: bytes, sentence: str) -> None:
    client = server.serve(answer)
    with pytest.raises(MachineError) as caught:
        client.transact({"op": "comment"})
    assert sentence in str(caught.value)
    client.close()


def test_a_server_that_does_not_answer_is_named(server: Server) -> None:
    client = Ovsdb(server.path, timeout_s=0.01)
    with pytest.raises(MachineError, match="Open vSwitch did not answer in time"):
        client.transact({"op": "comment"})
    client.close()


class Pieces:
    """A connection on which an answer comes in pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def sendall(self, data: bytes) -> None:
        pass

    def recv(self, size: int) -> bytes:
        return self.pieces.pop(0)


@given(text=st.text(max_size=40), cuts=st.lists(st.integers(1, 200), max_size=6).map(sorted))
def test_an_answer_may_come_in_any_pieces(text: str, cuts: list[int]) -> None:
    data = json.dumps({"id": 1, "result": [{"name": text}], "error": None}, ensure_ascii=False).encode()
    ends = [*cuts, len(data)]
    pieces = [data[a:b] for a, b in zip([0, *cuts], ends, strict=True) if data[a:b]]
    with patch("topos.kernel.ovsdb.connect_unix", lambda path, longest_s: Pieces(pieces)):
        assert Ovsdb(Path("db.sock")).transact({"op": "select"}) == [{"name": text}]
    assert not pieces


def test_a_server_that_has_gone_is_named_also_when_it_is_asked(server: Server) -> None:
    client = server.serve(reply(1, [{}]))
    client.transact({"op": "comment"})
    server.close()
    for _ in range(2):
        with pytest.raises(MachineError, match="the private ovsdb-server closed the connection"):
            client.transact({"op": "comment"})
    client.close()
