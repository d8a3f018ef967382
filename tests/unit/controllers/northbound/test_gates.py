"""A mesh over REST: its gates read and set, and what is refused, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fabric_plans import pip_plan, rail_plan
from openflow.rest_world import Rest

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
