"""The drawing of every kind of fabric: complete, inside its frame, and without parts that cover one another."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import pytest
from fabric_plans import pip_plan, rail_plan
from rack_plans import electrical_plan, photonic_plan

from commands.page.view.drawing import drawing
from commands.page.view.rails import MOST_PORTS_IN_A_ROW
from railyard.errors import ConfigError
from railyard.scale import Scale
from topos.describe import plan
from topos.edge import EdgeTopo
from topos.edge_plan import Trunk
from topos.fabric import FabricTopo
from topos.mesh import Mesh
from topos.plan import FabricPlan, RackPlan, SwitchLink, SwitchPlan
from topos.racks import RACK_FABRICS, MorphluxTopo, RackTopo
from topos.rails import RAIL_FABRICS, RailTopo
from topos.torus import Torus

SCALE = Scale(1 / 4000)


def spine(leaves: int = 4, spines: int = 2) -> FabricPlan:
    """Leaves with four servers each, and spines above them: a topology of a user."""
    made = rail_plan(4 * leaves, ports=1, kind="electrical")
    ports = made.switches[0].ports
    switches = [
        SwitchPlan(f"leaf{n}", n + 1, "electrical", "rail", ports[4 * n : 4 * n + 4], controlled=True)
        for n in range(leaves)
    ]
    switches += [SwitchPlan(f"spine{n}", 100 + n, "electrical", "rail", ()) for n in range(spines)]
    links = [
        SwitchLink(f"leaf{leaf}", 1000 + s, f"spine{s}", leaf + 1, 100.0)
        for leaf in range(leaves)
        for s in range(spines)
    ]
    return replace(made, fabric="tree", switches=tuple(switches), links=tuple(links))


OWN: Mapping[str, tuple[str, Callable[[], FabricPlan]]] = {
    "4 x 4 GPUs": ("rails", lambda: plan(RailTopo())),
    "with a scale-up switch": ("rails", lambda: plan(RailTopo(servers=2, scale_up=True, front_end=True))),
    "one-shot, 64 GPUs": ("rails", lambda: plan(RailTopo(servers=8, gpus=8, fabric="one-shot"))),
    "1 GPU": ("rails", lambda: plan(RailTopo(servers=1, gpus=1, ports=1))),
    "8 servers": ("rails", lambda: rail_plan(8)),
    "256 servers": ("rails", lambda: rail_plan(256)),
    "64 x 4 GPUs": ("rails", lambda: rail_plan(64, 4)),
    "32 x 8 GPUs": ("rails", lambda: rail_plan(32, 8)),
    "16 x 16 GPUs": ("rails", lambda: plan(RailTopo(servers=16, gpus=16, scale_up=True))),
    "300 servers": ("rails", lambda: rail_plan(300, ports=1)),
    "120 rails": ("rails", lambda: rail_plan(2, 120)),
    "photonic rack": ("rack", lambda: plan(RackTopo(tenants="4x1@0,0/2x2@0,2"))),
    "photonic rack of three dimensions": ("rack", lambda: plan(RackTopo(torus="4x4x4", server="2x2", spare_servers=9))),
    "servers in two layers": ("rack", lambda: photonic_plan(Torus((4, 4, 4), (2, 2, 2)), 3)),
    "a row of chips": ("rack", lambda: photonic_plan(Torus((8, 1, 1), (2, 1, 1)))),
    "server fabric": ("rack", lambda: plan(MorphluxTopo())),
    "electrical server fabric": ("torus", lambda: plan(MorphluxTopo(fabric="electrical-torus"))),
    "electrical torus": ("torus", lambda: plan(RackTopo(fabric="electrical-torus"))),
    "electrical torus of three dimensions": (
        "torus",
        lambda: plan(RackTopo(torus="4x4x4", server="2x2", fabric="electrical-torus")),
    ),
    "16 x 16 chips": ("torus", lambda: electrical_plan(Torus((16, 16, 1), (4, 4, 1)))),
    "two racks": ("torus", lambda: plan(RackTopo(fabric="migrate"))),
    "edge": ("edge", lambda: plan(EdgeTopo())),
    "edge with an optical trunk": ("edge", lambda: plan(EdgeTopo(clients=128, regions=16, trunk="ocs"))),
    "edge of 64 regions": ("edge", lambda: plan(EdgeTopo(clients=128, regions=64))),
    "edge of one region": ("edge", lambda: plan(EdgeTopo(clients=1, regions=1))),
    "mesh": ("mesh", lambda: pip_plan(8, 7, 3)),
    "mesh of 40 servers": ("mesh", lambda: pip_plan(40, 11, 7)),
    "mesh of two servers": ("mesh", lambda: pip_plan(2)),
    "mesh of 60 servers": ("mesh", lambda: pip_plan(60, 13, 9)),
    "mesh of four rails": ("mesh", lambda: plan(RailTopo(ports=1, mesh="3x3"))),
    "leaves and spines": ("tree", spine),
    "3 spines over 32 leaves": ("tree", lambda: spine(32, 3)),
}


def planned(topology: Callable[[], FabricTopo]) -> FabricPlan:
    return plan(topology())


KINDS = {
    **dict.fromkeys(("rack, photonic", "morphlux, photonic"), "rack"),
    **dict.fromkeys(("rack, electrical-torus", "rack, migrate", "morphlux, electrical-torus"), "torus"),
    **dict.fromkeys(("edge, electrical", "edge, ocs"), "edge"),
}
FABRICS = {
    **{f"rails, {fabric}": partial(RailTopo, fabric=fabric, scale_up=True) for fabric in RAIL_FABRICS},
    **{f"rack, {fabric}": partial(RackTopo, fabric=fabric) for fabric in RACK_FABRICS},
    **{f"morphlux, {fabric}": partial(MorphluxTopo, fabric=fabric, tenants="2x1@0,0") for fabric in RACK_FABRICS[:2]},
    **{f"edge, {trunk}": partial(EdgeTopo, clients=9, trunk=trunk) for trunk in get_args(Trunk)},
}
PLANS: Mapping[str, tuple[str, Callable[[], FabricPlan]]] = {
    **OWN,
    **{name: (KINDS.get(name, "rails"), partial(planned, topology)) for name, topology in FABRICS.items()},
}
"""Every kind of fabric of the topologies, in usual and in odd sizes."""


@pytest.fixture(params=PLANS, scope="module")
def case(request: pytest.FixtureRequest) -> tuple[str, FabricPlan, dict[str, Any]]:
    kind, make = PLANS[request.param]
    made = make()
    return kind, made, drawing(made, SCALE)


Case = tuple[str, FabricPlan, dict[str, Any]]


def test_it_is_plain_data_of_its_kind(case: Case) -> None:
    kind, _, drawn = case
    assert json.loads(json.dumps(drawn)) == drawn
    assert drawn["kind"] == kind


def test_every_rank_every_port_and_every_link_is_drawn_once(case: Case) -> None:
    _, fabric, drawn = case
    wanted = [(s, p) for s in fabric.switches if s.network != "front-end" for p in s.ports]
    for things in ("nodes", "ports", "links"):
        ids = [thing["id"] for thing in drawn[things]]
        assert len(ids) == len(set(ids))
    assert sorted(n["rank"] for n in drawn["nodes"] if n["rank"] is not None) == list(range(fabric.ranks))
    ports = {p["id"]: p for p in drawn["ports"]}
    assert {f"{s.name}:{p.number}" for s, p in wanted} <= ports.keys()
    for switch, port in wanted:
        found = ports[f"{switch.name}:{port.number}"]
        assert (found["rank"], found["lane"], found["interface"]) == (port.rank, port.lane, port.interface)
        assert found["gbps"] == pytest.approx(port.rate_mbps * 4)
    assert len(ports) == len(wanted) + 2 * len(fabric.links)
    interfaces = [link["interface"] for link in drawn["links"] if link["interface"]]
    assert sorted(interfaces) == sorted(p.interface for _, p in wanted)
    between = [link for link in drawn["links"] if not link["interface"] and link["network"] != "mesh"]
    assert len(between) == len(fabric.links)


def test_everything_is_inside_the_frame(case: Case) -> None:
    _, _, drawn = case
    assert drawn["width"] == 1000 and drawn["height"] >= 240
    for node in drawn["nodes"]:
        assert node["w"] > 0 and node["h"] > 0
        assert inside(node["x"], node["y"], drawn) and inside(node["x"] + node["w"], node["y"] + node["h"], drawn), node
    for port in drawn["ports"]:
        assert inside(port["x"], port["y"], drawn)
    for link in drawn["links"]:
        for x, y in link.get("path", [link["from"], link["to"]]):
            assert inside(x, y, drawn), link


def inside(x: float, y: float, drawn: Mapping[str, Any]) -> bool:
    return bool(0 <= x <= drawn["width"] and 0 <= y <= drawn["height"])


def test_no_two_nodes_of_a_kind_overlap(case: Case) -> None:
    _, _, drawn = case
    kinds = defaultdict(list)
    for node in drawn["nodes"]:
        kinds["gpu" if node["kind"] == "spare" else node["kind"]].append(node)
    for nodes in kinds.values():
        nodes.sort(key=lambda node: node["x"])
        for place, one in enumerate(nodes):
            for other in nodes[place + 1 :]:
                if other["x"] >= one["x"] + one["w"]:
                    break
                assert one["y"] >= other["y"] + other["h"] or other["y"] >= one["y"] + one["h"], (one, other)


def test_every_port_is_on_its_switch_and_apart_from_the_others(case: Case) -> None:
    _, _, drawn = case
    nodes = {node["id"]: node for node in drawn["nodes"]}
    places: dict[str, set[tuple[float, float]]] = defaultdict(set)
    for port in drawn["ports"]:
        switch = nodes[port["switch"]]
        assert switch["x"] - 0.02 <= port["x"] <= switch["x"] + switch["w"] + 0.02, port
        assert switch["y"] - 0.02 <= port["y"] <= switch["y"] + switch["h"] + 0.02, port
        assert 0 < port["size"] <= 10
        assert port["nx"] == port["ny"] == 0 or abs(port["nx"] ** 2 + port["ny"] ** 2 - 1) < 0.01
        assert (port["x"], port["y"]) not in places[port["switch"]]
        places[port["switch"]].add((port["x"], port["y"]))


def test_links_of_hosts_lead_from_their_box_to_their_port(case: Case) -> None:
    _, _, drawn = case
    hosts = {node["rank"]: node for node in drawn["nodes"] if node["rank"] is not None}
    links = {link["interface"]: link for link in drawn["links"]}
    for port in drawn["ports"]:
        if port["rank"] is not None:
            host, link = hosts[port["rank"]], links[port["interface"]]
            x, y = link["from"]
            assert host["x"] - 0.1 <= x <= host["x"] + host["w"] + 0.1, (host, link)
            assert host["y"] - 0.1 <= y <= host["y"] + host["h"] + 0.1, (host, link)
            assert link["to"] == [port["x"], port["y"]]


def test_a_fabric_of_usual_size_fits_a_wide_screen() -> None:
    for name in ("4 x 4 GPUs", "64 x 4 GPUs", "photonic rack", "electrical torus", "edge", "mesh"):
        height = drawing(PLANS[name][1](), SCALE)["height"]
        assert 1.3 <= 1000 / height <= 2.6, name


def test_a_port_of_a_rail_stands_straight_below_its_gpu() -> None:
    drawn = drawing(PLANS["4 x 4 GPUs"][1](), SCALE)
    assert all(link["from"][0] == link["to"][0] for link in drawn["links"])


def test_spares_and_tenants_are_told_apart() -> None:
    nodes = {node["id"]: node for node in drawing(PLANS["photonic rack"][1](), SCALE)["nodes"]}
    assert [name for name, node in nodes.items() if node["kind"] == "spare"] == ["g16", "g17", "g18", "g19"]
    assert (nodes["g0"]["tenant"], nodes["g8"]["tenant"]) == ("A", "B")
    assert "tenant" not in nodes["g2"]


def test_neighbours_of_a_torus_face_each_other() -> None:
    """Golden: node 1 is to the right of node 0, and node 2 below it; ports 2 and 4 of node 0 lead there."""
    ports = {port["id"]: port for port in drawing(PLANS["electrical torus"][1](), SCALE)["ports"]}
    right, left, down, up = (ports[f"n0:{number}"] for number in (2, 3, 4, 5))
    assert (right["nx"], right["ny"], left["nx"], down["ny"], up["ny"]) == (-1, 0, 1, -1, 1)
    assert right["x"] > left["x"] and down["y"] > up["y"]
    assert ports["n1:3"]["x"] > right["x"] and ports["n1:3"]["y"] == right["y"]
    assert ports["n2:5"]["y"] > down["y"] and ports["n2:5"]["x"] == down["x"]


def test_ports_of_a_chip_on_an_optical_switch_are_inside_it() -> None:
    for name in ("photonic rack", "photonic rack of three dimensions", "server fabric"):
        drawn = drawing(PLANS[name][1](), SCALE)
        chips = {node["rank"]: node for node in drawn["nodes"] if node["rank"] is not None}
        for port in drawn["ports"]:
            chip, half = chips[port["rank"]], port["size"] / 2
            assert chip["x"] <= port["x"] - half and port["x"] + half <= chip["x"] + chip["w"]
            assert chip["y"] <= port["y"] - half and port["y"] + half <= chip["y"] + chip["h"]


def test_a_link_that_closes_a_ring_runs_beside_the_chips() -> None:
    drawn = drawing(PLANS["electrical torus"][1](), SCALE)
    straight = [link for link in drawn["links"] if "path" not in link and link["interface"] is None]
    around = [link for link in drawn["links"] if "path" in link]
    assert (len(straight), len(around)) == (24, 8)
    chips = [node for node in drawn["nodes"] if node["rank"] is not None]
    for link in around:
        for (x, y), (u, v) in zip(link["path"], link["path"][1:], strict=False):
            for chip in chips:
                apart = max(x, u) <= chip["x"] or min(x, u) >= chip["x"] + chip["w"]
                assert apart or max(y, v) <= chip["y"] or min(y, v) >= chip["y"] + chip["h"], (link, chip)


def test_the_ports_of_many_servers_stand_in_several_rows() -> None:
    drawn = drawing(PLANS["256 servers"][1](), SCALE)
    rows = {port["y"] for port in drawn["ports"]}
    assert len(rows) == 4 and 512 / len(rows) <= MOST_PORTS_IN_A_ROW


def test_a_mesh_is_drawn_as_cells_with_its_ports_around_them() -> None:
    drawn = drawing(PLANS["mesh"][1](), SCALE)
    gates = [link for link in drawn["links"] if link["network"] == "mesh"]
    lengths = [((x - u) ** 2 + (y - v) ** 2) ** 0.5 for (x, y), (u, v) in ((g["from"], g["to"]) for g in gates)]
    assert len(gates) == len(Mesh.of(7, 3).gates) and max(lengths) - min(lengths) < 0.1
    xs = [x for gate in gates for x, _ in (gate["from"], gate["to"])]
    assert min(port["x"] for port in drawn["ports"]) < min(xs) < max(xs) < max(port["x"] for port in drawn["ports"])


def test_servers_stand_around_a_mesh_near_their_ports() -> None:
    drawn = drawing(PLANS["mesh of 40 servers"][1](), SCALE)
    rail = next(node for node in drawn["nodes"] if node["kind"] == "ocs")
    for node in drawn["nodes"]:
        if node["kind"] == "server":
            beside = node["x"] + node["w"] <= rail["x"] or node["x"] >= rail["x"] + rail["w"]
            assert beside or node["y"] + node["h"] <= rail["y"] or node["y"] >= rail["y"] + rail["h"]
    links = [(link["from"], link["to"]) for link in drawn["links"] if link["interface"]]
    assert not any(crosses(one, other) for place, one in enumerate(links) for other in links[place + 1 :])


def crosses(one: Any, other: Any) -> bool:
    """Whether two lines cross between their ends."""

    def side(line: Any, point: Any) -> float:
        (x, y), (u, v) = line
        return float((u - x) * (point[1] - y) - (v - y) * (point[0] - x))

    apart = [side(line, a) * side(line, b) for line, (a, b) in ((one, other), (other, one))]
    return apart[0] < 0 and apart[1] < 0


@pytest.mark.parametrize(
    "changed",
    [
        replace(rail_plan(4), servers=10**30),
        replace(rail_plan(4), servers=-2, gpus_per_server=-2),
        replace(rail_plan(4), servers=0),
        replace(rail_plan(4), switches=()),
        replace(plan(RackTopo()), rack=RackPlan((10**9, 10**9, 1), (2, 2, 1), 1, ())),
        replace(plan(RackTopo()), rack=RackPlan((4, 4, 1), (2, 0, 1), 1, ())),
        replace(plan(RackTopo()), rack=RackPlan((4, 4, 1), (2, 2, 1), 10**12, ())),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused_at_once(changed: FabricPlan) -> None:
    with pytest.raises(ConfigError, match="cannot be drawn"):
        drawing(changed, SCALE)


def test_hosts_of_an_edge_network_are_named_by_what_they_are() -> None:
    kinds = defaultdict(list)
    for node in drawing(PLANS["edge"][1](), SCALE)["nodes"]:
        kinds[node["kind"]].append(node["name"])
    assert (kinds["root"], kinds["leaf"]) == (["root"], ["leaf0", "leaf1", "leaf2", "leaf3"])
    assert sorted(map(int, kinds["client"])) == list(range(48))
