"""The mesh inside a rail switch, as an option of the topology."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from controllers.mesh.ports import choose_ports
from railyard.validation import from_plain
from topos.describe import plan
from topos.mesh import Mesh
from topos.plan import FabricPlan, MeshPlan
from topos.racks import RackTopo
from topos.rails import RailTopo


def meshes(**options: object) -> list[MeshPlan | None]:
    return [switch.mesh for switch in plan(RailTopo(**options)).switches]


def test_without_the_option_a_rail_has_no_mesh() -> None:
    assert meshes(servers=2, gpus=2) == [None, None]
    assert meshes(servers=2, gpus=1, mesh="none", gate_latency_us="0") == [None]
    assert {switch.mesh for switch in plan(RackTopo(torus="2x2", server="1")).switches} == {None}


def test_every_rail_and_nothing_else_is_made_of_it() -> None:
    found = meshes(servers=4, gpus=2, ports=1, mesh="3x3", gate_latency_us=0.5, scale_up=True, front_end=True)
    spaced = MeshPlan(3, 3, (0, 7, 14, 21), 0.5)
    assert found == [spaced, spaced, *[None] * 5]


def test_evenly_spaced_ports_are_those_of_the_definition() -> None:
    (mesh,) = meshes(servers=5, gpus=1, ports=2, mesh="7x3")
    assert mesh is not None and mesh.ports == tuple(44 * k // 10 for k in range(10))


def test_ports_can_be_named_in_text() -> None:
    (mesh,) = meshes(servers="2", gpus="1", ports="2", mesh="5x5@3/0/43/20", gate_latency_us="2e1")
    assert mesh == MeshPlan(5, 5, (3, 0, 43, 20), 20.0)


def test_ports_can_be_chosen() -> None:
    (mesh,) = meshes(servers=4, gpus=1, ports=1, mesh="3x3@choose", choose_ports=choose_ports)
    assert mesh is not None and len(set(mesh.ports)) == 4
    Mesh.of(3, 3).check_ports(mesh.ports)


@pytest.mark.parametrize("ports", [1, 2])
def test_json_round_trip(ports: int) -> None:
    fabric = plan(RailTopo(servers=4, gpus=2, ports=ports, mesh="3x3", gate_latency_us=1.5))
    assert from_plain(FabricPlan, json.dumps(asdict(fabric)).encode(), "a plan") == fabric
