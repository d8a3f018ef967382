"""REST interface for people and scripts, with the cross-connect pairs that real OCSs offer (as Polatis).

The server listens on loopback without a token, or elsewhere with one (``Authorization: Bearer TOKEN``). A body must be
``application/json``, so that web pages in a browser cannot post here. Errors are
``{"error": "one sentence"}`` with the HTTP status that fits.

====== ===================================== =======================================================
verb   path                                  does
====== ===================================== =======================================================
GET    /jobs                                 the registered jobs and their groups
GET    /switches                             all switches: connected, circuits, port states
GET    /circuits, /circuits/SWITCH           circuits only
PUT    /circuits/SWITCH                      rewire: ``{"circuits": [[1, 4]], "update": "update"}``
GET    /ocs/SWITCH/cells                     of a switch that is a mesh: ``cells`` (the state of each, bar or
                                             cross), ``ports`` (the mesh port behind each port of the
                                             switch), ``blocked`` (ports without a circuit), ``paths``, ...
PUT    /ocs/SWITCH/cells                     ``{"cells": ["bar", "cross", ...], "blocked": []}``: the circuits
                                             that result, between the ports that are not blocked
POST   /faults                               ``{"switch": "rail0", "port": 3, "state": "failed"}``, or a whole
                                             chip: ``{"rank": 5, "cause": "overheated"}``
GET    CROSS                                 ``{"optical-switch:cross-connects": {"pair": [...]}}``
PUT    CROSS                                 set these pairs and no others
PATCH  CROSS                                 set these pairs, keep the others
DELETE CROSS, CROSS/pair=PORT                remove all pairs, or the pair of this port
====== ===================================== =======================================================

CROSS is ``/ocs/SWITCH/api/data/optical-switch:cross-connects``.
A pair is ``{"ingress": 1, "egress": 4}``, a circuit in both directions. Changes are answered when the switch is tuned.
"""

from __future__ import annotations

import hmac
import json
import socketserver
import threading
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from socketserver import ThreadingMixIn
from typing import Any, TypeVar, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import bottle

from controllers.openflow.core import ANSWER_S, ControllerCore
from railyard.errors import ConfigError, MachineError
from railyard.protocol import encode

WAIT_S = ANSWER_S + 590.0
"""How long a call waits for a change (slow switches need minutes)."""
STATUS = {"ConfigError": 400, "CircuitError": 409, "ControlError": 409}
CROSS_CONNECTS = "optical-switch:cross-connects"
BODY_BYTES = 1 << 20

Handler = TypeVar("Handler")


class RestCall:
    """One REST call as a requester of the controller core."""

    trusted = False

    def __init__(self) -> None:
        self._done = threading.Event()
        self._result: dict[str, Any] = {}

    def answer(self, request_id: object, answer: bytes) -> None:
        """Keep the answer and wake the thread that waits for it."""
        self._result = json.loads(answer)
        self._done.set()

    def wait(self) -> dict[str, Any]:
        """The answer; raises the matching HTTP error on a refusal, and 504 after ``WAIT_S``."""
        if not self._done.wait(WAIT_S):
            raise _error(504, f"the switches did not finish within {WAIT_S:g} s")
        if not self._result.pop("ok"):
            raise _error(STATUS.get(self._result.get("kind", ""), 409), str(self._result["error"]))
        return self._result


class RestBackend:
    """The operations of the controller core, as the handlers of all resources call them."""

    def __init__(self, core: ControllerCore) -> None:
        self._core = core

    def execute(self, op: str, **fields: Any) -> dict[str, Any]:
        """Execute one operation and return its answer; raises the matching HTTP error on a refusal."""
        call = RestCall()
        self._core.handle(encode(None, op, **fields), call)
        return call.wait()

    def switches(self) -> list[dict[str, Any]]:
        """All switches as plain data."""
        return list(self.execute("circuits")["switches"])

    def optical_switch(self, name: str) -> dict[str, Any]:
        """Optical switch ``name`` as plain data; raises 404 if there is no such switch, 409 if it is electrical."""
        for entry in self.switches():
            if entry["name"] == name:
                if entry["kind"] != "ocs":
                    raise _error(409, f"{name} is an electrical switch and has no circuits; name an optical one")
                return dict(entry)
        known = ", ".join(switch.name for switch in self._core.plan.switches)
        raise _error(404, f"there is no switch {name}; the switches of this fabric are {known}")


def make_app(core: ControllerCore, token: str | None, hosts: frozenset[str] | None) -> bottle.Bottle:
    """The WSGI application. ``hosts``: the names in the Host header that are served (None: all)."""
    app = bottle.Bottle()
    backend = RestBackend(core)
    app.add_hook("before_request", partial(_check_access, token, hosts))
    _add_reports(app, backend)
    _add_circuits(app, backend)
    _add_faults(app, backend)
    _add_cross_connects(app, backend)
    _add_cells(app, backend)
    app.default_error_handler = _as_json
    return app


def _check_access(token: str | None, hosts: frozenset[str] | None) -> None:
    """Raise 403 for a Host header that is not served and 401 for a missing or wrong token."""
    if hosts is not None and bottle.request.get_header("Host", "").rsplit(":", 1)[0].lower() not in hosts:
        raise _error(403, "the Host header must name the loopback address that this server listens on")
    given = bottle.request.get_header("Authorization", "")
    if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        raise _error(401, "a token is needed: Authorization: Bearer TOKEN")


def _add_reports(app: bottle.Bottle, backend: RestBackend) -> None:
    """Resources ``/jobs`` and ``/switches``."""
    route = _router(app)

    @route("GET", "/jobs")
    def jobs() -> dict[str, Any]:
        return backend.execute("jobs")

    @route("GET", "/switches")
    def switches() -> dict[str, Any]:
        return backend.execute("circuits")


def _add_circuits(app: bottle.Bottle, backend: RestBackend) -> None:
    """Resource ``/circuits``: the circuits of all optical switches, or of one."""
    route = _router(app)

    @route("GET", "/circuits")
    def all_circuits() -> dict[str, Any]:
        return {
            "circuits": {entry["name"]: entry["circuits"] for entry in backend.switches() if entry["kind"] == "ocs"}
        }

    @route("GET", "/circuits/<name>")
    def circuits(name: str) -> dict[str, Any]:
        return {"switch": name, "circuits": backend.optical_switch(name)["circuits"]}

    @route("PUT", "/circuits/<name>")
    def rewire(name: str) -> dict[str, Any]:
        backend.optical_switch(name)
        backend.execute("rewire", **{**_body(), "switch": name})
        return circuits(name)


def _add_faults(app: bottle.Bottle, backend: RestBackend) -> None:
    """Resource ``/faults``: a port or a chip that fails, or a port that is restored."""
    route = _router(app)

    @route("POST", "/faults")
    def fault() -> dict[str, Any]:
        body = _body()
        if "rank" in body:
            backend.execute("failed", **{"cause": "reported over REST", **body})
            return body
        if isinstance(body.get("switch"), str):
            backend.optical_switch(body["switch"])
        backend.execute("fault", **body)
        return body


def _add_cross_connects(app: bottle.Bottle, backend: RestBackend) -> None:
    """Resource of the cross-connect pairs of one optical switch."""
    route = _router(app)
    path = f"/ocs/<name>/api/data/<:re:{CROSS_CONNECTS}>"  # as a pattern, because bottle gives colons a meaning

    @route("GET", path)
    def pairs(name: str) -> dict[str, Any]:
        found = [{"ingress": a, "egress": b} for a, b in backend.optical_switch(name)["circuits"]]
        return {CROSS_CONNECTS: {"pair": found}}

    def change(name: str, update: str) -> dict[str, Any]:
        backend.optical_switch(name)
        backend.execute("rewire", switch=name, circuits=_pairs(_body()), update=update)
        return pairs(name)

    @route("PUT", path)
    def replace(name: str) -> dict[str, Any]:
        return change(name, "overwrite")

    @route("PATCH", path)
    def merge(name: str) -> dict[str, Any]:
        return change(name, "update")

    @route("DELETE", path)
    def clear(name: str) -> None:
        backend.optical_switch(name)
        backend.execute("rewire", switch=name, circuits=[], update="overwrite")
        bottle.response.status = 204

    @route("DELETE", f"{path}/pair=<port:int>")
    def clear_pair(name: str, port: int) -> None:
        found = backend.optical_switch(name)["circuits"]
        remaining = [pair for pair in found if port not in pair]
        if len(remaining) == len(found):
            raise _error(404, f"port {port} of {name} is in no pair")
        backend.execute("rewire", switch=name, circuits=remaining, update="overwrite")
        bottle.response.status = 204


def _add_cells(app: bottle.Bottle, backend: RestBackend) -> None:
    """Resource of the cells of one switch that is made of a mesh."""
    route = _router(app)
    path = "/ocs/<name>/cells"

    @route("GET", path)
    def cells(name: str) -> dict[str, Any]:
        entry = backend.optical_switch(name)
        if "mesh" not in entry:
            raise _error(409, f"{name} is not made of a mesh and has no cells; set its circuits instead")
        return {"switch": name, "circuits": entry["circuits"], **entry["mesh"]}

    @route("PUT", path)
    def configure(name: str) -> dict[str, Any]:
        cells(name)
        backend.execute("cells", **{**_body(), "switch": name})
        return cells(name)


def _router(app: bottle.Bottle) -> Callable[[str, str], Callable[[Handler], Handler]]:
    """The decorator ``@route(verb, path)`` of an application, with types."""
    return lambda verb, path: cast(Callable[[Handler], Handler], app.route(path, verb))


def _pairs(body: dict[str, Any]) -> list[list[Any]]:
    """The port pairs of ``{"pair": [{"ingress": 1, "egress": 4}]}``, with or without the container around it."""
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
    for key in body.keys() & {"id", "op"}:
        raise _error(400, f"{key} is not a key of a body")
    return body


def _error(status: int, reason: str) -> bottle.HTTPError:
    return bottle.HTTPError(status, reason)


def _as_json(error: bottle.HTTPError) -> str:
    bottle.response.content_type = "application/json"
    reason = error.body if error.exception is None else "the controller failed; see its log"
    return json.dumps({"error": reason})


class RestServer(ThreadingMixIn, WSGIServer):
    """An HTTP server that is bound at once and serves later, each call in its own thread."""

    daemon_threads = True
    application: bottle.Bottle

    def server_bind(self) -> None:
        """Bind without asking the name service for the name of this machine."""
        socketserver.TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    def serve(self) -> None:
        """Serve calls for ever, without poll, which green threads do not have."""
        while True:
            try:
                call, address = self.get_request()
            except OSError:
                continue
            self.process_request(call, address)


class _QuietHandler(WSGIRequestHandler):
    timeout = 60

    def log_message(self, format: str, *args: Any) -> None:
        """Write no access log: the timeline records what happened."""


def listen(address: str, token: str | None) -> tuple[RestServer, frozenset[str] | None]:
    """The server bound to ``HOST:PORT`` (port 0: any free one), and the Host headers to serve, for ``make_app``.

    ``ConfigError`` for a wrong address, or for one beyond loopback without a token; ``MachineError`` if it is taken.
    """
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host in ("", "localhost") else host.strip("[]")
    try:
        loopback = ip_address(host).is_loopback
        number = int(port)
    except ValueError:
        raise ConfigError(f"{address!r} is not an address; give IP:PORT such as 127.0.0.1:8080", key="rest") from None
    if not loopback and not token:
        raise ConfigError(
            f"{host} can be reached from other machines, so a token is needed: set RAILYARD_TOKEN", key="rest"
        )
    try:
        server = RestServer((host, number), _QuietHandler)
    except (OSError, OverflowError) as error:
        raise MachineError(f"the REST server cannot listen on {address}: {error}") from error
    return server, frozenset({host, "localhost"}) if loopback else None
