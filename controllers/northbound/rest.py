"""REST interface for people and scripts, with the cross-connect pairs that real OCSs offer (as Polatis).

Every call needs the token of the run (``Authorization: Bearer TOKEN``), and its body must be ``application/json``, of
at most 1 MiB. Errors are ``{"error": "one sentence"}`` with the HTTP status that fits.

====== ===================================== =======================================================
verb   path                                  does
====== ===================================== =======================================================
GET    /                                     the paths of this list
GET    /jobs                                 the registered jobs and their groups
GET    /switches                             all switches: connected, circuits, port states
GET    /circuits, /circuits/SWITCH           circuits only
PUT    /circuits/SWITCH                      rewire: ``{"circuits": [[1, 4]], "update": "update"}``
GET    /ocs/SWITCH/gates                     of a switch that is a mesh: ``gates`` (the state of each, bar or
                                             cross), ``ports`` (the mesh port behind each port of the
                                             switch), ``blocked`` (ports without a circuit), ``paths``, ...
PUT    /ocs/SWITCH/gates                     ``{"gates": ["bar", "cross", ...], "blocked": []}``: the circuits
                                             that result, between the ports that are not blocked
POST   /faults                               ``{"switch": "rail0", "port": 3, "state": "failed"}`` (or "restored"): the
                                             switch drops the port's circuit; or the report that a chip has
                                             failed: ``{"rank": 5, "cause": "overheated"}``
GET    CROSS                                 ``{"optical-switch:cross-connects": {"pair": [...]}}``
PUT    CROSS                                 set these pairs and no others
PATCH  CROSS                                 set these pairs, keep the others
DELETE CROSS, CROSS/pair=PORT                remove all pairs, or the pair of this port
====== ===================================== =======================================================

CROSS is ``/ocs/SWITCH/api/data/optical-switch:cross-connects``.
A pair is ``{"ingress": 1, "egress": 4}``, a circuit in both directions. Changes are answered when the switch is tuned;
a rewiring is refused (409) while a group sends on circuits that it would take down. A chip that is reported keeps its
links and its agent: the controller gives its place in a job to a spare, or the job ends; one of no job keeps its
circuits and is no spare any more. What changes nothing, such as restoring a port that works, is refused (409).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import bottle

from controllers.northbound import bodies
from controllers.northbound.http_server import check_access, check_json, errors_as_json
from controllers.northbound.messages import LONGEST_REWIRING_S, AnyRequest, Circuits, Fault, Jobs, Rewire
from controllers.openflow.core import ControllerCore
from controllers.openflow.recovery import PATIENCE_S
from railyard.errors import ConfigError

WAIT_S = LONGEST_REWIRING_S + 2 * PATIENCE_S
"""How long a call waits for a change (slow switches need minutes)."""
MOST_CALLS = 32
"""Calls that are served at once."""
STATUS = {"ConfigError": 400, "CircuitError": 409, "ControlError": 409}

Handler = Callable[..., dict[str, Any] | None]


class RestCall:
    """One REST call as a requester of the controller core."""

    trusted = False

    def __init__(self) -> None:
        self._done = threading.Event()
        self._result: dict[str, Any] = {}

    def answer(self, request_id: object, answer: bytes) -> None:
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
        # as a pattern, because bottle gives colons a meaning
        cross = f"/ocs/<name>/api/data/<:re:{bodies.CROSS_CONNECTS}>"
        return [
            ("GET", "/", self.paths),
            ("GET", "/jobs", partial(self.execute, Jobs(op="jobs"))),
            ("GET", "/switches", partial(self.execute, Circuits(op="circuits"))),
            ("GET", "/circuits", self.all_circuits),
            ("GET", "/circuits/<name>", self.circuits),
            ("PUT", "/circuits/<name>", self.put_circuits),
            ("GET", "/ocs/<name>/gates", self.gates),
            ("PUT", "/ocs/<name>/gates", self.put_gates),
            ("POST", "/faults", self.fault),
            ("GET", cross, self.pairs),
            ("PUT", cross, partial(self.set_pairs, update="overwrite")),
            ("PATCH", cross, partial(self.set_pairs, update="update")),
            ("DELETE", cross, self.clear_pairs),
            ("DELETE", f"{cross}/pair=<port:int>", self.clear_pairs),
        ]

    def paths(self) -> dict[str, Any]:
        """Verb and path of every resource, with the parts that a caller names in <>."""
        listed = []
        for verb, path, _ in self.routes():
            plain = path.replace(f"<:re:{bodies.CROSS_CONNECTS}>", bodies.CROSS_CONNECTS).replace(":int>", ">")
            listed.append(f"{verb} {plain}")
        return {"paths": listed}

    def execute(self, request: AnyRequest) -> dict[str, Any]:
        """Execute one operation and return its answer; raises the matching HTTP error on a refusal."""
        call = RestCall()
        self._core.execute(request, call)
        return call.wait()

    def optical_switch(self, name: str) -> dict[str, Any]:
        """Optical switch ``name`` as plain data; raises 404 if there is no such switch, 409 if it is electrical."""
        for entry in self.execute(Circuits(op="circuits"))["switches"]:
            if entry["name"] == name:
                if entry["kind"] != "ocs":
                    raise _error(409, f"{name} is an electrical switch and has no circuits; name an optical one")
                return dict(entry)
        known = ", ".join(switch.name for switch in self._core.plan.switches)
        raise _error(404, f"there is no switch {name}; the switches of this fabric are {known}")

    def all_circuits(self) -> dict[str, Any]:
        switches = self.execute(Circuits(op="circuits"))["switches"]
        return {"circuits": {entry["name"]: entry["circuits"] for entry in switches if entry["kind"] == "ocs"}}

    def circuits(self, name: str) -> dict[str, Any]:
        return {"switch": name, "circuits": self.optical_switch(name)["circuits"]}

    def put_circuits(self, name: str) -> dict[str, Any]:
        self.optical_switch(name)
        self.execute(bodies.rewire_request(_body(), name))
        return self.circuits(name)

    def gates(self, name: str) -> dict[str, Any]:
        entry = self.optical_switch(name)
        if "mesh" not in entry:
            raise _error(409, f"{name} is not made of a mesh and has no gates; set its circuits instead")
        return {"switch": name, "circuits": entry["circuits"], **entry["mesh"]}

    def put_gates(self, name: str) -> dict[str, Any]:
        self.gates(name)
        self.execute(bodies.gates_request(_body(), name))
        return self.gates(name)

    def fault(self) -> dict[str, Any]:
        body = _body()
        request = bodies.fault_request(body)
        if isinstance(request, Fault):
            self.optical_switch(request.switch)
        self.execute(request)
        return bodies.read_object(body)

    def pairs(self, name: str) -> dict[str, Any]:
        found = [{"ingress": a, "egress": b} for a, b in self.optical_switch(name)["circuits"]]
        return {bodies.CROSS_CONNECTS: {"pair": found}}

    def set_pairs(self, name: str, update: str) -> dict[str, Any]:
        """Set the pairs of the body, and no others unless ``update`` is "update"."""
        self.optical_switch(name)
        self.execute(bodies.pairs_request(_body(), name, update))
        return self.pairs(name)

    def clear_pairs(self, name: str, port: int | None = None) -> None:
        """Remove all pairs, or the one of ``port``; raises 404 if the port is in none."""
        found = self.optical_switch(name)["circuits"]
        remaining = [] if port is None else [(a, b) for a, b in found if port not in (a, b)]
        if port is not None and len(remaining) == len(found):
            raise _error(404, f"port {port} of {name} is in no pair")
        self.execute(Rewire(op="rewire", switch=name, circuits=tuple(remaining), update="overwrite"))
        bottle.response.status = 204


def make_app(core: ControllerCore, token: str, hosts: frozenset[str] | None) -> bottle.Bottle:
    """The WSGI application. ``hosts``: the names in the Host header that are served (None: all)."""
    app = bottle.Bottle()
    app.add_hook("before_request", partial(check_access, token, hosts))
    free = threading.BoundedSemaphore(MOST_CALLS)
    for verb, path, handler in RestResources(core).routes():
        app.route(path, verb, _limited(handler, free))
    app.default_error_handler = errors_as_json("the controller failed; see its log")
    return app


def _limited(handler: Handler, free: threading.BoundedSemaphore) -> Handler:
    """``handler`` with the errors that it answers with, and 503 when no call is ``free``."""

    def call(**arguments: Any) -> dict[str, Any] | None:
        if not free.acquire(blocking=False):
            raise _error(503, f"{MOST_CALLS} calls are being served; call again when one of them is over")
        try:
            return handler(**arguments)
        except ConfigError as error:
            raise _error(400, str(error)) from None
        finally:
            free.release()

    return call


def _body() -> bytes:
    environ = bottle.request.environ
    check_json(environ)
    body: bytes = environ["wsgi.input"].read()
    return body


def _error(status: int, reason: str) -> bottle.HTTPError:
    return bottle.HTTPError(status, reason)
