"""A mesh over REST: its gates read and set, and what is refused, in one sentence."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from core_world import World
from fabric_plans import pip_plan, rail_plan
from fake_clock import RunningClock

from controllers.northbound import rest, rest_server
from topos.plan import FabricPlan

GATES, TOKEN = "/ocs/rail0/gates", "s3cret"


class Rest:
    """A controller with a switch in memory, over REST."""

    def __init__(self, plan: FabricPlan) -> None:
        self.clock = RunningClock()
        world = World(plan, self.clock)
        world.join()
        assert world.ready.wait(5)
        self.server, hosts = rest_server.listen("127.0.0.1:0")
        self.server.set_app(rest.make_app(world.core, TOKEN, hosts))
        threading.Thread(target=self.server.serve, daemon=True).start()

    def ask(self, verb: str, path: str, body: object = None) -> tuple[int, Any]:
        host, port = self.server.server_address[:2]
        connection = http.client.HTTPConnection(str(host), int(port), timeout=20)
        sent = {"Authorization": f"Bearer {TOKEN}"}
        sent |= {} if body is None else {"Content-Type": "application/json"}
        connection.request(verb, path, None if body is None else json.dumps(body), sent)
        response = connection.getresponse()
        found = response.status, json.loads(response.read())
        connection.close()
        return found

    def get(self, path: str) -> Any:
        status, body = self.ask("GET", path)
        assert status == 200, body
        return body

    def close(self) -> None:
        self.server.socket.shutdown(socket.SHUT_RDWR)
        self.server.server_close()
        self.clock.stop()


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


def test_what_is_read_can_be_put_back(mesh: Rest) -> None:
    mesh.ask("PUT", "/circuits/rail0", {"circuits": [[2, 3]]})
    found = mesh.get(GATES)
    assert mesh.ask("PUT", GATES, {"gates": found["gates"], "blocked": found["blocked"]}) == (200, found)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({}, 400, "gates: is missing; operation gates needs it"),
        ({"gates": "bar"}, 400, "gates: must be a list such as [a, b], not 'bar'"),
        ({"gates": ["bar"] * 34 + ["open"]}, 400, "gates.34: must be one of bar, cross, not 'open'"),
        ({"gates": [[]] * 35}, 400, "gates.0: must be one of bar, cross"),
        ({"gates": ["bar"] * 34}, 409, "rail0 has 35 gates; give a state for each, not 34"),
        ({"gates": ["bar"] * 35}, 409, "the light of port 1 comes out at mesh port"),
        ({"gates": ["bar"] * 35, "blocked": [9]}, 409, "port 9 is not on rail0; its ports are 1 to 4"),
        ({"gates": ["bar"] * 35, "blocked": 1}, 400, "blocked: must be a list such as [a, b], not 1"),
        (
            {"gates": ["bar"] * 35, "ports": []},
            400,
            "ports: there is no such key; the keys here are blocked, delay_s, gates",
        ),
        (
            {"gates": ["bar"] * 35, "blocked": [1, 2, 3, 4], "delay_s": -1},
            400,
            "delay_s: must be at least 0, not -1",
        ),
    ],
)
def test_wrong_gates_are_refused_and_nothing_changes(mesh: Rest, body: object, status: int, reason: str) -> None:
    mesh.ask("PUT", "/circuits/rail0", {"circuits": [[1, 4]]})
    before = mesh.get(GATES)
    found, answer = mesh.ask("PUT", GATES, body)
    assert found == status and reason in answer["error"] and "\n" not in answer["error"]
    assert mesh.get(GATES) == before


def test_a_matching_that_the_mesh_cannot_hold_is_refused_and_nothing_changes() -> None:
    crowded = Rest(pip_plan(4, at=(0, 1, 7, 12)))
    crowded.ask("PUT", "/circuits/rail0", {"circuits": [[1, 2], [3, 4]]})
    before = crowded.get(GATES)
    status, answer = crowded.ask("PUT", "/circuits/rail0", {"circuits": [[1, 3], [2, 4]]})
    assert status == 409 and answer["error"].startswith("the mesh of rail0 (3x3) cannot carry 1-3 2-4 at once")
    assert crowded.get(GATES) == before
    crowded.close()


def test_a_switch_without_a_mesh_has_no_gates() -> None:
    plain = Rest(rail_plan(2))
    reason = {"error": "rail0 is not made of a mesh and has no gates; set its circuits instead"}
    assert plain.ask("GET", GATES) == (409, reason) == plain.ask("PUT", GATES, {"gates": []})
    assert plain.ask("GET", "/ocs/rail1/gates")[0] == 404
    plain.close()
