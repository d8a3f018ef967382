"""REST for people and scripts, and the face of an OCS as real ones have it (cross-connect pairs, as Polatis).

Loopback without a token, or anywhere with one (``Authorization: Bearer TOKEN``). A body must be
``application/json``, so that a web page in somebody's browser cannot post here. Errors are
``{"error": "one sentence"}`` with the HTTP status that fits.

====== ===================================== =======================================================
verb   path                                  does
====== ===================================== =======================================================
GET    /jobs                                 the registered jobs and their groups
GET    /switches                             all switches: connected, circuits, port states
GET    /circuits, /circuits/SWITCH           circuits only
PUT    /circuits/SWITCH                      rewire: ``{"circuits": [[1, 4]], "update": "update"}``
GET    /ocs/SWITCH/cells                     of a switch that is a mesh: ``cells`` (the state of each, bar or
                                             cross), ``ports`` (which of the mesh are behind those of the
                                             switch), ``blocked`` (ports without a circuit), ``paths``, ...
PUT    /ocs/SWITCH/cells                     ``{"cells": ["bar", "cross", ...], "blocked": []}``: the circuits
                                             that light makes of them, between the ports that are not blocked
POST   /faults                               ``{"switch": "rail0", "port": 3, "state": "failed"}``, or a whole
                                             chip: ``{"rank": 5, "cause": "it smells of smoke"}``
GET    CROSS                                 ``{"optical-switch:cross-connects": {"pair": [...]}}``
PUT    CROSS                                 these pairs and no others
PATCH  CROSS                                 these pairs, the others stay
DELETE CROSS, CROSS/pair=PORT                no pairs, or not this one
====== ===================================== =======================================================

CROSS is ``/ocs/SWITCH/api/data/optical-switch:cross-connects``.
A pair is ``{"ingress": 1, "egress": 4}``; light goes both ways. Changes answer when the switch is tuned.
"""

from __future__ import annotations

import hmac
import json
import socketserver
import threading
from collections.abc import Callable
from ipaddress import ip_address
from socketserver import ThreadingMixIn
from typing import Any, TypeVar, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import bottle

from controllers.openflow.core import ANSWER_S, ControllerCore
from railyard.errors import ConfigError, MachineError

WAIT_S = ANSWER_S + 590.0
"""How long a change may take (slow switches need minutes) before a call gives up waiting."""
STATUS = {"ConfigError": 400, "CircuitError": 409, "ControlError": 409}
CROSS_CONNECTS = "optical-switch:cross-connects"
BODY_BYTES = 1 << 20

View = TypeVar("View")


class Call:
    """One REST call as a speaker to the conductor."""

    trusted = False

    def __init__(self) -> None:
        self._done = threading.Event()
        self._result: dict[str, Any] = {}

    def answer(self, request_id: object, fragment: str) -> None:
        """Keep the answer and wake the caller."""
        self._result = json.loads(f"{{{fragment}}}")
        self._done.set()

    def wait(self) -> dict[str, Any]:
        """The answer; a refusal becomes the HTTP error that fits."""
        if not self._done.wait(WAIT_S):
            raise _error(504, f"the switches did not finish within {WAIT_S:g} s")
        if not self._result.pop("ok"):
            raise _error(STATUS.get(self._result.get("kind", ""), 409), str(self._result["error"]))
        return self._result


def make_app(core: ControllerCore, token: str | None, hosts: frozenset[str] | None) -> bottle.Bottle:
    """The WSGI application. ``hosts``: the names in the Host header that are served (None: all)."""
    app = bottle.Bottle()

    def ask(op: str, **fields: Any) -> dict[str, Any]:
        call = Call()
        core.handle({"op": op, **fields}, call)
        return call.wait()

    def switch_entry(name: str) -> dict[str, Any]:
        for entry in ask("circuits")["switches"]:
            if entry["name"] == name:
                if entry["kind"] != "ocs":
                    raise _error(409, f"{name} is an electrical switch; it has no circuits")
                return dict(entry)
        known = ", ".join(s.name for s in core.plan.switches)
        raise _error(404, f"there is no switch {name}; those of this fabric are {known}")

    def check() -> None:
        if hosts is not None and bottle.request.get_header("Host", "").rsplit(":", 1)[0].lower() not in hosts:
            raise _error(403, "the Host header must name the loopback address that this server listens on")
        given = bottle.request.get_header("Authorization", "")
        if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise _error(401, "a token is needed: Authorization: Bearer TOKEN")

    app.add_hook("before_request", check)
    route = _router(app)

    @route("GET", "/jobs")
    def jobs() -> dict[str, Any]:
        return ask("jobs")

    @route("GET", "/switches")
    def switches() -> dict[str, Any]:
        return ask("circuits")

    @route("GET", "/circuits")
    def all_circuits() -> dict[str, Any]:
        found = ask("circuits")["switches"]
        return {"circuits": {entry["name"]: entry["circuits"] for entry in found if entry["kind"] == "ocs"}}

    @route("GET", "/circuits/<name>")
    def circuits(name: str) -> dict[str, Any]:
        return {"switch": name, "circuits": switch_entry(name)["circuits"]}

    @route("PUT", "/circuits/<name>")
    def rewire(name: str) -> dict[str, Any]:
        switch_entry(name)
        body = _body()
        _only(body, "circuits", "update", "delay_s")
        ask("rewire", **{**body, "switch": name})
        return circuits(name)

    @route("POST", "/faults")
    def fault() -> dict[str, Any]:
        body = _body()
        if "rank" in body:
            _only(body, "rank", "cause")
            ask("failed", **{"cause": "reported over REST", **body})
            return body
        _only(body, "switch", "port", "state")
        if isinstance(body.get("switch"), str):
            switch_entry(body["switch"])
        ask("fault", **body)
        return body

    _add_ocs_face(app, ask, switch_entry)
    _add_cells(app, ask, switch_entry)
    app.default_error_handler = _as_json
    return app


def _add_ocs_face(
    app: bottle.Bottle, ask: Callable[..., dict[str, Any]], switch_entry: Callable[[str], dict[str, Any]]
) -> None:
    """Cross-connect pairs of one switch."""
    route = _router(app)
    path = f"/ocs/<name>/api/data/<:re:{CROSS_CONNECTS}>"  # as a pattern, because bottle gives colons a meaning

    @route("GET", path)
    def pairs(name: str) -> dict[str, Any]:
        found = [{"ingress": a, "egress": b} for a, b in switch_entry(name)["circuits"]]
        return {CROSS_CONNECTS: {"pair": found}}

    def change(name: str, update: str) -> dict[str, Any]:
        switch_entry(name)
        ask("rewire", switch=name, circuits=_pairs(_body()), update=update)
        return pairs(name)

    @route("PUT", path)
    def replace(name: str) -> dict[str, Any]:
        return change(name, "overwrite")

    @route("PATCH", path)
    def merge(name: str) -> dict[str, Any]:
        return change(name, "update")

    @route("DELETE", path)
    def clear(name: str) -> None:
        switch_entry(name)
        ask("rewire", switch=name, circuits=[], update="overwrite")
        bottle.response.status = 204

    @route("DELETE", f"{path}/pair=<port:int>")
    def clear_pair(name: str, port: int) -> None:
        found = switch_entry(name)["circuits"]
        left = [pair for pair in found if port not in pair]
        if len(left) == len(found):
            raise _error(404, f"port {port} of {name} is in no pair")
        ask("rewire", switch=name, circuits=left, update="overwrite")
        bottle.response.status = 204


def _add_cells(
    app: bottle.Bottle, ask: Callable[..., dict[str, Any]], switch_entry: Callable[[str], dict[str, Any]]
) -> None:
    """The cells of one switch that is made of a mesh."""
    route = _router(app)
    path = "/ocs/<name>/cells"

    @route("GET", path)
    def cells(name: str) -> dict[str, Any]:
        entry = switch_entry(name)
        if "mesh" not in entry:
            raise _error(409, f"{name} is not made of a mesh; it has circuits and no cells")
        return {"switch": name, "circuits": entry["circuits"], **entry["mesh"]}

    @route("PUT", path)
    def configure(name: str) -> dict[str, Any]:
        cells(name)
        body = _body()
        _only(body, "cells", "blocked", "delay_s")
        ask("cells", **{**body, "switch": name})
        return cells(name)


def _router(app: bottle.Bottle) -> Callable[[str, str], Callable[[View], View]]:
    """A decorator with types: ``@route(verb, path)``."""
    return lambda verb, path: cast(Callable[[View], View], app.route(path, verb))


def _pairs(body: dict[str, Any]) -> list[list[Any]]:
    """``{"pair": [{"ingress": 1, "egress": 4}]}``, with or without the container's name around it."""
    inner = body.get(CROSS_CONNECTS, body)
    pairs = inner.get("pair") if isinstance(inner, dict) else None
    if not isinstance(pairs, list) or not all(isinstance(p, dict) and {"ingress", "egress"} <= p.keys() for p in pairs):
        raise _error(400, 'the body must be {"pair": [{"ingress": PORT, "egress": PORT}, ...]}')
    return [[pair["ingress"], pair["egress"]] for pair in pairs]


def _body() -> dict[str, Any]:
    request = bottle.request
    if request.content_type.split(";")[0].strip().lower() != "application/json":
        raise _error(415, "the body must be sent with Content-Type: application/json")
    if request.content_length > BODY_BYTES:
        raise _error(413, f"the body is longer than {BODY_BYTES} bytes")
    try:
        body = json.loads(request.body.read())
    except ValueError:
        raise _error(400, "the body must be JSON") from None
    if not isinstance(body, dict):
        raise _error(400, "the body must be a JSON object")
    return body


def _only(body: dict[str, Any], *keys: str) -> None:
    unknown = sorted(set(body) - set(keys))
    if unknown:
        raise _error(400, f"{unknown[0]} is not a key of this request; keys are {', '.join(keys)}")


def _error(status: int, reason: str) -> bottle.HTTPError:
    return bottle.HTTPError(status, reason)


def _as_json(error: bottle.HTTPError) -> str:
    bottle.response.content_type = "application/json"
    reason = error.body if error.exception is None else "the controller failed; see its log"
    return json.dumps({"error": reason})


class RestServer(ThreadingMixIn, WSGIServer):
    """A listener that is bound at once and serves later, each call in a thread."""

    daemon_threads = True
    application: bottle.Bottle

    def server_bind(self) -> None:
        """Bind without asking the name service for our own name."""
        socketserver.TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    def serve(self) -> None:
        """Take calls for ever (the same under green threads, which have no poll)."""
        while True:
            try:
                call, address = self.get_request()
            except OSError:
                continue
            self.process_request(call, address)


class _Quiet(WSGIRequestHandler):
    timeout = 60

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the timeline tells what happened."""


def listen(address: str, token: str | None) -> tuple[RestServer, frozenset[str] | None]:
    """Bind ``HOST:PORT`` (port 0: any free one). Beyond loopback a token is needed; ``ConfigError`` without one.

    Also returns the Host headers to serve, for ``make_app``.
    """
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host in ("", "localhost") else host.strip("[]")
    try:
        loopback = ip_address(host).is_loopback
        number = int(port)
    except ValueError:
        raise ConfigError(f"{address!r} is not an address; give IP:PORT such as 127.0.0.1:8080", key="rest") from None
    if not loopback and not token:
        raise ConfigError(f"{host} is reachable from elsewhere, so a token is needed: set RAILYARD_TOKEN", key="rest")
    try:
        server = RestServer((host, number), _Quiet)
    except (OSError, OverflowError) as error:
        raise MachineError(f"the REST server cannot listen on {address}: {error}") from error
    return server, frozenset({host, "localhost"}) if loopback else None
