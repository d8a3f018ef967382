"""A rail that is a photonic mesh, on a real Open vSwitch: where its light goes, what it refuses, and its gates."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest
from raw_frames import Fabric, forget_caches, reaches, running

from railyard.errors import ControlError
from topos.kernel.path_latency import NO_NETEM, unsupported_reason
from topos.mesh import Mesh
from topos.rails import RailTopo

pytestmark = [pytest.mark.root, pytest.mark.beside]

PORTS = (0, 1, 7, 12)
"""Of a 3x3 mesh: there is a way between any two, but of two circuits only for 1-2 and 3-4."""
GATE_LATENCY_US = 1000.0


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    mesh = "3x3@" + "/".join(map(str, PORTS))
    topo = RailTopo(servers=4, gpus=1, ports=1, rate_mbps=100, mesh=mesh, gate_latency_us=GATE_LATENCY_US)
    with running(topo, rest=True) as found:
        yield found


def matrix(fabric: Fabric) -> dict[int, list[int]]:
    """Who hears each rank."""
    return {rank: [far for far, _ in reaches(fabric.net, rank, 0, (0,))] for rank in range(4)}


def gates(fabric: Fabric, put: dict[str, Any] | None = None) -> dict[str, Any]:
    """The gates of the rail over REST, after ``put`` was put there."""
    found: dict[str, Any] = fabric.rest("/ocs/rail0/gates", "GET" if put is None else "PUT", put)
    return found


def rewire(fabric: Fabric, *circuits: tuple[int, int]) -> None:
    with fabric.client() as people:
        people.rewire("rail0", list(circuits), "overwrite", 0.0)
    forget_caches(fabric.net)


def test_light_reaches_the_partner_and_nobody_else(fabric: Fabric) -> None:
    rewire(fabric, (1, 2), (3, 4))
    assert matrix(fabric) == {0: [1], 1: [0], 2: [3], 3: [2]}
    rewire(fabric, (1, 4))
    assert matrix(fabric) == {0: [3], 1: [], 2: [], 3: [0]}


def test_a_matching_that_cannot_be_is_refused_and_nothing_changes(fabric: Fabric) -> None:
    rewire(fabric, (1, 2), (3, 4))
    before = gates(fabric)
    with pytest.raises(ControlError) as refused:
        rewire(fabric, (1, 3), (2, 4))
    reason = str(refused.value)
    assert reason.startswith("the mesh of rail0 (3x3) cannot carry 1-3 2-4 at once (proved: ")
    assert "\n" not in reason
    assert gates(fabric) == before
    assert matrix(fabric) == {0: [1], 1: [0], 2: [3], 3: [2]}


def test_gates_put_over_rest_send_packets_where_they_send_light(fabric: Fabric) -> None:
    rewire(fabric, (1, 3))
    first = gates(fabric)
    rewire(fabric, (2, 4))
    assert matrix(fabric) == {0: [], 1: [3], 2: [], 3: [1]}
    found = gates(fabric, {"gates": first["gates"], "blocked": first["blocked"]})
    forget_caches(fabric.net)
    assert found == first
    light = Mesh.of(3, 3).trace([state == "cross" for state in found["gates"]], PORTS[0])
    assert light.port_out == PORTS[2]
    assert found["paths"] == [
        {"circuit": [1, 3], "gates": list(light.gates), "latency_us": GATE_LATENCY_US * len(light.gates)}
    ]
    assert matrix(fabric) == {0: [2], 1: [], 2: [0], 3: []}
    with pytest.raises(HTTPError) as refused:
        gates(fabric, {"gates": ["bar"] * 34})
    assert refused.value.code == 409
    assert json.load(refused.value)["error"] == "rail0 has 35 gates; give a state for each, not 34"
    assert gates(fabric) == first


def test_latency_is_that_of_the_path_or_it_is_said_that_it_is_not(fabric: Fabric) -> None:
    rewire(fabric, (1, 2), (3, 4))
    found = gates(fabric)
    (note,) = (event for event in fabric.events() if event.kind == "latency")
    assert note["latency"] == found["latency"] and note["rail"] == "rail0"
    if unsupported_reason() is not None:
        assert found["latency"] == f"not emulated: {NO_NETEM}"
        return
    for path in found["paths"]:
        a, b = (fabric.net.get(f"g{port - 1}") for port in path["circuit"])
        began = time.monotonic()
        assert " 0% packet loss" in a.cmd(f"ping -c 1 -W 2 {b.IP()}")
        assert time.monotonic() - began > 2 * path["latency_us"] * 1e-6
