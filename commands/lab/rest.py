"""The lab over REST, in a fork of its daemon: each call is one request to the daemon's socket.

Every call needs the token (``Authorization: Bearer TOKEN``). ``GET /`` lists the paths, ``GET /lab`` tells what is up;
``POST /lab/VERB`` with ``{"words": ["rail0", "1", "3"]}`` does what ``railyard VERB rail0 1 3`` does, and answers
``{"text": ...}``. Errors are ``{"error": "one sentence"}`` with status 400, or 409 where the lab refuses.
"""

from __future__ import annotations

import json
import socket
from functools import partial
from ipaddress import ip_address
from typing import Any

import bottle

from commands.lab.client import open_lab
from controllers.northbound.bodies import read_object
from controllers.northbound.http_server import HttpServer, check_access, check_json, errors_as_json
from controllers.northbound.rest_address import LOOPBACK, read_address, reserve
from railyard.errors import ConfigError, RailyardError

VERBS = "connect", "disconnect", "fail", "restore", "set", "at", "mark", "verdict"
"""What can be done over REST; programs on hosts cannot be started by it."""
HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Names in the Host header that are served."""
_ANSWER_S = 60.0


def reserved(address: str) -> socket.socket:
    """A socket that listens at ``address``, ``IP:PORT`` on loopback; ``ConfigError`` for any other."""
    host, _ = read_address(address)
    if not ip_address(host).is_loopback:
        raise ConfigError(f"must be an address of loopback such as {LOOPBACK}:8080, not {address}", key="--rest")
    return reserve(address)


def serve(held: socket.socket, token: str, name: str) -> int:
    """Serve the lab ``name`` on the listening socket ``held`` until the process is ended."""
    server = HttpServer(held, "lab: the REST server")
    server.set_app(make_app(token, name))
    server.serve()
    return 0


def make_app(token: str, name: str) -> bottle.Bottle:
    app = bottle.Bottle()
    app.add_hook("before_request", partial(check_access, token, HOSTS))
    app.route("/", "GET", lambda: {"GET": ["/lab"], "POST": [f"/lab/{verb}" for verb in VERBS]})
    app.route("/lab", "GET", partial(_status, name))
    for verb in VERBS:
        app.route(f"/lab/{verb}", "POST", partial(_do, name, verb))
    app.default_error_handler = errors_as_json("the lab failed; railyard status says more")
    return app


def _status(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(_asked(name, "status", ["--json"]))
    return facts


def _do(name: str, verb: str) -> dict[str, Any]:
    environ = bottle.request.environ
    check_json(environ)
    try:
        words = read_object(environ["wsgi.input"].read()).get("words", [])
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ConfigError('must be a list of text, as in {"words": ["rail0:3"]}', key="words")
    except ConfigError as error:
        raise bottle.HTTPError(400, str(error)) from None
    return {"text": _asked(name, verb, words)}


def _asked(name: str, verb: str, words: list[str]) -> str:
    try:
        lab = open_lab(name)
        try:
            return str(lab.call(verb, words=words, timeout_s=_ANSWER_S))
        finally:
            lab.close()
    except RailyardError as error:
        raise bottle.HTTPError(400 if isinstance(error, ConfigError) else 409, str(error)) from None
