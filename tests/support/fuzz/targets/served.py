"""Whole calls of the REST interface and whole sessions of the job channel, with a controller behind them."""

from __future__ import annotations

import json
import socket
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import Any

from core_world import World
from fabric_plans import pip_plan

from controllers.northbound import bodies, http_server, rest
from fuzz.mutation import TEXTS, mutated_tree, number
from fuzz.target import Target
from fuzz.targets.control import BODIES, REQUESTS

_TOKEN = "s3cret"
_HEADERS = (
    *("Host: localhost", f"Authorization: Bearer {_TOKEN}", "Content-Type: application/json", "Connection: close"),
    *("Content-Length: 5", "Transfer-Encoding: chunked", "Expect: 100-continue", "Host: elsewhere", "Accept: */*"),
)
_PATHS = (
    *("/jobs", "/switches", "/circuits", "/circuits/rail0", "/ocs/rail0/gates", "/faults", "/circuits/rail9", "/"),
    *(f"/ocs/rail0/api/data/{bodies.CROSS_CONNECTS}", f"/ocs/rail0/api/data/{bodies.CROSS_CONNECTS}/pair=1"),
)
_VERBS = ("GET", "PUT", "PATCH", "POST", "DELETE", "HEAD", "OPTIONS", "TRACE")
_MOST_LINES = 200


class AnsweringWorld(World):
    """A controller whose switches answer before a call waits for them."""

    def answered(self, core_call: Any, request: Any, requester: Any) -> None:
        """Execute a request, then let the clock go on until the switches have answered."""
        core_call(request, requester)
        self.clock.advance(120)


@lru_cache(maxsize=1)
def _server() -> http_server.HttpServer:
    """A server, in each process once; its calls come over socket pairs and are served in the calling thread."""
    server, hosts = http_server.listen("127.0.0.1:0")
    world = AnsweringWorld(pip_plan(4))
    world.join()
    world.core.execute = partial(world.answered, world.core.execute)  # type: ignore[method-assign]
    server.set_app(rest.make_app(world.core, _TOKEN, hosts))
    return server


def _rest(data: bytes, folder: Path) -> None:
    """A call as the bytes of a connection; a status of 5xx other than 501 and 505 is a defect."""
    server = _server()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        server.finish_request(theirs, ("127.0.0.1", 1))
        theirs.close()
        status = ours.recv(1 << 16).partition(b"\r\n")[0].split(b" ")[1:2]
    if status and status[0][:1] == b"5" and status[0] not in (b"501", b"505"):
        raise AssertionError(f"answered with {status[0]!r}")


def _session(data: bytes, folder: Path) -> None:
    """Lines of one connection of the job channel, to a controller with switches."""
    world = World(pip_plan(4))
    world.join()
    world.clock.advance(1)
    connection = _Connection()
    for line in data.split(b"\n")[:_MOST_LINES]:
        world.core.handle(line, connection)
        world.clock.advance(0.1)
    world.clock.advance(120)
    world.core.closed(connection)


class _Connection:
    """A connection of the job channel; answers are dropped."""

    trusted = True

    def answer(self, request_id: object, answer: bytes) -> None:
        json.loads(answer)


# ---- inputs by the grammars ----------------------------------------------------------------------------------------


def _call(verb: str, path: str, body: bytes = b"", headers: tuple[str, ...] = _HEADERS[:3]) -> bytes:
    sized = (*headers, f"Content-Length: {len(body)}") if body else headers
    return "\r\n".join([f"{verb} {path} HTTP/1.1", *sized, "", ""]).encode() + body


def _own_call(chance: Random) -> bytes:
    body = json.dumps(mutated_tree(chance, chance.choice(BODIES))).encode() if chance.random() < 0.6 else b""
    path = chance.choice(_PATHS)
    if chance.random() < 0.2:
        path = f"{path}/{chance.choice((*TEXTS, str(number(chance))))}"
    headers = tuple(each for each in _HEADERS[:3] if chance.random() < 0.95)
    headers += tuple(chance.choice(_HEADERS) for _ in range(chance.choice((0, 0, 1, 2))))
    return _call(chance.choice(_VERBS), path.replace("\n", " ").replace("\0", ""), body, headers)


def _own_session(chance: Random) -> bytes:
    lines: list[Any] = [chance.choice(REQUESTS) for _ in range(chance.randrange(1, 9))]
    return b"\n".join(
        json.dumps(mutated_tree(chance, each) if chance.random() < 0.3 else each).encode() for each in lines
    )


def targets() -> list[Target]:
    """The targets of this module."""
    calls = [_call("GET", path) for path in _PATHS[:5]]
    calls += [
        _call(verb, path, json.dumps(body).encode())
        for body in BODIES
        for verb, path in (("PUT", "/circuits/rail0"), ("POST", "/faults"), ("PUT", _PATHS[4]), ("PATCH", _PATHS[8]))
    ]
    words = [f"{header}\r\n".encode() for header in _HEADERS]
    words += [f"{verb} ".encode() for verb in _VERBS] + [path.encode() for path in _PATHS]
    sessions = [b"\n".join(json.dumps(each).encode() for each in REQUESTS)]
    return [
        Target("rest-call", _rest, calls, (), words, _own_call),
        Target("job-session", _session, sessions, (), make=_own_session),
    ]
