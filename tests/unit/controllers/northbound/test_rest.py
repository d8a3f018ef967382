"""REST and the OCS face: statuses, one-sentence errors, tokens."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import bottle
import pytest
from fabric_plans import pip_plan, rail_plan
from openflow.rest_world import TOKEN, Rest

from controllers.northbound import http_server, rest
from controllers.northbound.messages import LONGEST_REWIRING_S
from controllers.openflow.recovery import PATIENCE_S
from railyard.errors import MachineError

Ask = Callable[..., tuple[int, Any]]
CROSS = "/ocs/rail0/api/data/optical-switch:cross-connects"


@pytest.fixture
def ask() -> Iterator[Ask]:
    serving = Rest(rail_plan(4))
    yield serving.ask
    serving.close()


def test_switches_and_jobs_can_be_read(ask: Ask) -> None:
    status, body = ask("GET", "/switches")
    assert status == 200 and body["switches"][0]["ports"]["1"] == "blocked" and body["switches"][0]["connected"]
    assert ask("GET", "/jobs") == (200, {"jobs": []})
    paths = ask("GET", "/")[1]["paths"]
    assert {"GET /jobs", "PUT /circuits/<name>"} < set(paths)
    assert f"DELETE {CROSS.replace('rail0', '<name>')}/pair=<port>" in paths


def test_circuits_can_be_put_and_read(ask: Ask) -> None:
    assert ask("PUT", "/circuits/rail0", {"circuits": [[4, 1]]}) == (200, {"switch": "rail0", "circuits": [[1, 4]]})
    assert ask("PUT", "/circuits/rail0", {"circuits": [[2, 3]], "delay_s": 0.01})[0] == 200
    assert ask("GET", "/circuits") == (200, {"circuits": {"rail0": [[1, 4], [2, 3]]}})


def test_the_ocs_face_speaks_pairs(ask: Ask) -> None:
    pairs = {"pair": [{"ingress": 1, "egress": 5}, {"ingress": 2, "egress": 6}]}
    assert ask("PUT", CROSS, {"optical-switch:cross-connects": pairs}) == (
        200,
        {"optical-switch:cross-connects": pairs},
    )
    assert ask("PATCH", CROSS, {"pair": [{"ingress": 7, "egress": 2}]})[0] == 200
    assert ask("DELETE", f"{CROSS}/pair=5") == (204, None)
    assert ask("GET", CROSS)[1] == {"optical-switch:cross-connects": {"pair": [{"ingress": 2, "egress": 7}]}}
    assert ask("DELETE", CROSS) == (204, None)
    assert ask("GET", CROSS)[1] == {"optical-switch:cross-connects": {"pair": []}}


def test_faults(ask: Ask) -> None:
    ask("PUT", "/circuits/rail0", {"circuits": [[1, 4]]})
    assert ask("POST", "/faults", {"switch": "rail0", "port": 1, "state": "failed"})[0] == 200
    assert ask("GET", "/switches")[1]["switches"][0]["ports"]["1"] == "failed"
    status, body = ask("PUT", "/circuits/rail0", {"circuits": [[1, 3]]})
    assert status == 409 and "port 1 of rail0 was failed over REST" in body["error"]
    assert ask("POST", "/faults", {"switch": "rail0", "port": 1, "state": "restored"})[0] == 200
    assert ask("POST", "/faults", {"switch": "rail0", "port": 1, "state": "restored"}) == (
        409, {"error": "port 1 of rail0 has not failed; only a port that has failed can be restored"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "reason"),
    [
        ("GET", "/nothing", None, 404, "Not found: '/nothing'"),
        ("GET", "/circuits/rail7", None, 404, "there is no switch rail7; the switches of this fabric are rail0"),
        ("DELETE", f"{CROSS}/pair=3", None, 404, "port 3 of rail0 is in no pair"),
        ("POST", "/jobs", {}, 405, "Method not allowed."),
        ("PUT", "/circuits/rail0", "{", 400, "the body must be JSON"),
        ("PUT", "/circuits/rail0", {"circuit": []}, 400, "circuits: is missing; operation rewire needs it"),
        ("PUT", "/circuits/rail0", {"circuits": [[1, 9]]}, 409, "port 9 is not on rail0; its ports are 1 to 8"),
        ("PUT", CROSS, {"pair": [{"ingress": 1}]}, 400, "the body must be"),
    ],
)
def test_errors_are_one_sentence_of_json(
    ask: Ask, verb: str, path: str, body: object, status: int, reason: str
) -> None:
    found, answer = ask(verb, path, body)
    assert found == status and reason in answer["error"] and "\n" not in answer["error"]


def test_a_page_in_a_browser_cannot_post_here(ask: Ask) -> None:
    fault = {"switch": "rail0", "port": 1, "state": "failed"}
    assert ask("POST", "/faults", fault, Content_Type="text/plain")[0] == 415
    assert ask("GET", "/switches", Host="evil.example")[0] == 403


VERBS = ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE"]
PATHS = ["/", "/jobs", "/switches", "/circuits", "/circuits/rail0", "/circuits/rail7", "/ocs/rail0/gates", "/faults",
         CROSS, f"{CROSS}/pair=1", "/nothing", "/../etc", "//", "/%00", "/%ff", "*"]  # fmt: skip


def test_a_user_without_the_token_can_do_nothing() -> None:
    serving = Rest(rail_plan(4), token=None)
    stranger = serving.ask
    for verb, path in product(VERBS, PATHS):
        body = None if verb in ("GET", "HEAD") else {"switch": "rail0", "port": 1, "state": "failed"}
        assert stranger(verb, path, body)[0] == 401, (verb, path)
    for wrong in ("Bearer wrong", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \xe9"):
        assert stranger("GET", "/switches", Authorization=wrong)[0] == 401, wrong
    status, answer = stranger("GET", f"/switches?token={TOKEN}")
    assert (status, answer) == (401, {"error": "a token is needed: Authorization: Bearer TOKEN"})
    serving.close()


def test_a_chip_can_be_reported_and_its_job_be_read(ask: Ask) -> None:
    assert ask("POST", "/faults", {"rank": 1}) == (200, {"rank": 1})
    assert ask("POST", "/faults", {"rank": 2, "cause": "smoke"})[0] == 200
    status, answer = ask("POST", "/faults", {"rank": 9})
    assert status == 409 and answer["error"] == "there is no rank 9; the fabric's ranks are 0 to 3"
    status, answer = ask("POST", "/faults", {"rank": 1, "port": 2})
    assert status == 400 and answer["error"] == "port: there is no such key; the keys here are cause, id, job, op, rank"


def test_a_call_waits_for_the_longest_change_that_it_may_ask_for() -> None:
    assert rest.WAIT_S > LONGEST_REWIRING_S + PATIENCE_S


def test_the_interface_is_served_on_an_ipv6_address_under_its_name_alone() -> None:
    try:
        server, hosts = http_server.listen("[::1]:0")
    except MachineError:
        pytest.skip("this machine has no IPv6")
    assert hosts == {"[::1]", "localhost"}
    app = bottle.Bottle()
    app.add_hook("before_request", partial(http_server.check_access, TOKEN, hosts))
    app.route("/", "GET", lambda: "served")
    server.set_app(app)
    threading.Thread(target=server.serve, daemon=True).start()
    port = int(server.server_address[1])
    for host, status in ((f"[::1]:{port}", 200), ("[::1]", 200), ("localhost", 200), ("[::2]", 403), ("[", 403)):
        connection = http.client.HTTPConnection("::1", port, timeout=10)
        connection.request("GET", "/", headers={"Host": host, "Authorization": f"Bearer {TOKEN}"})
        assert connection.getresponse().status == status, host
        connection.close()
    server.socket.shutdown(socket.SHUT_RDWR)
    server.server_close()


GATES = "/ocs/rail0/gates"


@pytest.fixture
def mesh() -> Iterator[Rest]:
    serving = Rest(pip_plan(4))
    yield serving
    serving.close()


def test_gates_can_be_read(mesh: Rest) -> None:
    before = mesh.get(GATES)
    assert (before["width"], before["height"], before["ports"]) == (3, 3, [0, 7, 14, 21])
    assert before["gates"] == ["bar"] * 35 and before["blocked"] == [1, 2, 3, 4] and before["paths"] == []
    assert mesh.ask("PUT", "/circuits/rail0", {"circuits": [[1, 4]]})[0] == 200
    after = mesh.get(GATES)
    (path,) = after["paths"]
    assert path["circuit"] == [1, 4] and after["blocked"] == [2, 3] and after["circuits"] == [[1, 4]]
    assert path["latency_us"] == 0.5 * len(path["gates"]) > 0 and after["latency"].startswith("not emulated")
    assert mesh.get("/switches")["switches"][0]["mesh"]["paths"] == [path]


def test_gates_can_be_put_and_the_circuits_follow_the_light(mesh: Rest) -> None:
    mesh.ask("PUT", "/circuits/rail0", {"circuits": [[1, 2], [3, 4]]})
    first = mesh.get(GATES)
    mesh.ask("PUT", "/circuits/rail0", {"circuits": [[1, 3], [2, 4]], "update": "overwrite"})
    assert mesh.get(GATES)["gates"] != first["gates"]
    assert mesh.ask("PUT", GATES, {"gates": first["gates"], "delay_s": 0.01}) == (200, first)
    assert mesh.get("/circuits/rail0")["circuits"] == [[1, 2], [3, 4]]
    assert mesh.ask("PUT", GATES, {"gates": first["gates"]}) == (200, first)
    less = mesh.ask("PUT", GATES, {"gates": first["gates"], "blocked": [3, 4]})[1]
    assert less["circuits"] == [[1, 2]] and less["gates"] == first["gates"] and less["blocked"] == [3, 4]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({}, 400, "gates: is missing; operation gates needs it"),
        ({"gates": ["bar"] * 35}, 409, "the light of port 1 comes out at mesh port"),
        (
            {"gates": ["bar"] * 35, "ports": []},
            400,
            "ports: there is no such key; the keys here are blocked, delay_s, gates",
        ),
    ],
)
def test_wrong_gates_are_refused_and_nothing_changes(mesh: Rest, body: object, status: int, reason: str) -> None:
    mesh.ask("PUT", "/circuits/rail0", {"circuits": [[1, 4]]})
    before = mesh.get(GATES)
    found, answer = mesh.ask("PUT", GATES, body)
    assert found == status and reason in answer["error"] and "\n" not in answer["error"]
    assert mesh.get(GATES) == before


def test_a_switch_without_a_mesh_has_no_gates() -> None:
    plain = Rest(rail_plan(2))
    reason = {"error": "rail0 is not made of a mesh and has no gates; set its circuits instead"}
    assert plain.ask("GET", GATES) == (409, reason) == plain.ask("PUT", GATES, {"gates": []})
    assert plain.ask("GET", "/ocs/rail1/gates")[0] == 404
    plain.close()
