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
from typing import Any
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

Handler = Callable[..., dict[str, Any] | None]


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


class RestResources:
    """The resources of the REST interface; each operation of the controller core that they need is a ``RestCall``."""

    def __init__(self, core: ControllerCore) -> None:
        self._core = core

    def routes(self) -> list[tuple[str, str, Handler]]:
        """(verb, path, handler) of every resource; parts of the path in <> are arguments of the handler."""
        cross = f"/ocs/<name>/api/data/<:re:{CROSS_CONNECTS}>"  # as a pattern, because bottle gives colons a meaning
        return [
            ("GET", "/jobs", partial(self.execute, "jobs")),
            ("GET", "/switches", partial(self.execute, "circuits")),
            ("GET", "/circuits", self.all_circuits),
            ("GET", "/circuits/<name>", self.circuits),
            ("PUT", "/circuits/<name>", self.put_circuits),
            ("GET", "/ocs/<name>/cells", self.cells),
            ("PUT", "/ocs/<name>/cells", self.put_cells),
            ("POST", "/faults", self.fault),
            ("GET", cross, self.pairs),
            ("PUT", cross, partial(self.set_pairs, update="overwrite")),
            ("PATCH", cross, partial(self.set_pairs, update="update")),
            ("DELETE", cross, self.clear_pairs),
            ("DELETE", f"{cross}/pair=<port:int>", self.clear_pairs),
        ]

    def execute(self, op: str, /, **fields: Any) -> dict[str, Any]:
        """Execute one operation and return its answer; raises the matching HTTP error on a refusal."""
        call = RestCall()
        self._core.handle(encode(None, op, **fields), call)
        return call.wait()

    def optical_switch(self, name: str) -> dict[str, Any]:
        """Optical switch ``name`` as plain data; raises 404 if there is no such switch, 409 if it is electrical."""
        for entry in self.execute("circuits")["switches"]:
            if entry["name"] == name:
                if entry["kind"] != "ocs":
                    raise _error(409, f"{name} is an electrical switch and has no circuits; name an optical one")
                return dict(entry)
        known = ", ".join(switch.name for switch in self._core.plan.switches)
        raise _error(404, f"there is no switch {name}; the switches of this fabric are {known}")

    def all_circuits(self) -> dict[str, Any]:
        """The circuits of all optical switches."""
        switches = self.execute("circuits")["switches"]
        return {"circuits": {entry["name"]: entry["circuits"] for entry in switches if entry["kind"] == "ocs"}}

    def circuits(self, name: str) -> dict[str, Any]:
        """The circuits of one optical switch."""
        return {"switch": name, "circuits": self.optical_switch(name)["circuits"]}

    def put_circuits(self, name: str) -> dict[str, Any]:
        """Rewire one optical switch."""
        self.optical_switch(name)
        self.execute("rewire", **{**_body(), "switch": name})
        return self.circuits(name)

    def cells(self, name: str) -> dict[str, Any]:
        """The cells of one switch that is made of a mesh; raises 409 for any other."""
        entry = self.optical_switch(name)
        if "mesh" not in entry:
            raise _error(409, f"{name} is not made of a mesh and has no cells; set its circuits instead")
        return {"switch": name, "circuits": entry["circuits"], **entry["mesh"]}

    def put_cells(self, name: str) -> dict[str, Any]:
        """Set the cells of one switch that is made of a mesh."""
        self.cells(name)
        self.execute("cells", **{**_body(), "switch": name})
        return self.cells(name)

    def fault(self) -> dict[str, Any]:
        """A port or a chip that fails, or a port that is restored."""
        body = _body()
        if "rank" in body:
            self.execute("failed", **{"cause": "reported over REST", **body})
            return body
        if isinstance(body.get("switch"), str):
            self.optical_switch(body["switch"])
        self.execute("fault", **body)
        return body

    def pairs(self, name: str) -> dict[str, Any]:
        """The cross-connect pairs of one optical switch."""
        found = [{"ingress": a, "egress": b} for a, b in self.optical_switch(name)["circuits"]]
        return {CROSS_CONNECTS: {"pair": found}}

    def set_pairs(self, name: str, update: str) -> dict[str, Any]:
        """Set the pairs of the body, and no others unless ``update`` is "update"."""
        self.optical_switch(name)
        self.execute("rewire", switch=name, circuits=_pairs(_body()), update=update)
        return self.pairs(name)

    def clear_pairs(self, name: str, port: int | None = None) -> None:
        """Remove all pairs, or the one of ``port``; raises 404 if the port is in none."""
        found = self.optical_switch(name)["circuits"]
        remaining = [] if port is None else [pair for pair in found if port not in pair]
        if port is not None and len(remaining) == len(found):
            raise _error(404, f"port {port} of {name} is in no pair")
        self.execute("rewire", switch=name, circuits=remaining, update="overwrite")
        bottle.response.status = 204


def make_app(core: ControllerCore, token: str | None, hosts: frozenset[str] | None) -> bottle.Bottle:
    """The WSGI application. ``hosts``: the names in the Host header that are served (None: all)."""
    app = bottle.Bottle()
    app.add_hook("before_request", partial(_check_access, token, hosts))
    for verb, path, handler in RestResources(core).routes():
        app.route(path, verb, handler)
    app.default_error_handler = _as_json
    return app


def _check_access(token: str | None, hosts: frozenset[str] | None) -> None:
    """Raise 403 for a Host header that is not served and 401 for a missing or wrong token."""
    if hosts is not None and bottle.request.get_header("Host", "").rsplit(":", 1)[0].lower() not in hosts:
        raise _error(403, "the Host header must name the loopback address that this server listens on")
    given = bottle.request.get_header("Authorization", "")
    if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        raise _error(401, "a token is needed: Authorization: Bearer TOKEN")


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
