from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.scale import Scale
from topos.describe import plan
from topos.edge import EdgeTopo
from topos.plan import FabricPlan
from topos.racks import RackTopo
from topos.rails import RailTopo
from topos.reach import banner, first_addresses, hosts_file, joints, ping_line, routes, ways

SMOKE = plan(RailTopo(servers=4, gpus=2, ports=2, rate_mbps=147.0))
CIRCUITS = {"rail0": [[1, 4], [2, 3], [5, 8], [6, 7]]}


def addresses(fabric: FabricPlan, circuits: dict[str, list[list[int]]], host: str) -> dict[str, str]:
    return {peer: joint.far.ip for peer, joint in ways(fabric, circuits)[host].items()}


def test_a_name_is_the_lane_that_a_circuit_joins() -> None:
    assert addresses(SMOKE, CIRCUITS, "g0") == {"g2": "10.1.0.4"}
    assert addresses(SMOKE, CIRCUITS, "g2") == {"g0": "10.1.0.2"}
    assert routes(SMOKE, CIRCUITS)["g0"] == {"10.1.0.3": "g0-r1"}
    assert routes(SMOKE, CIRCUITS)["g1"] == {}
    assert first_addresses(SMOKE) == {f"g{rank}": f"10.{rank % 2 + 1}.0.{rank // 2 * 2 + 1}" for rank in range(8)}


def test_circuits_that_lead_nowhere_join_nobody() -> None:
    nowhere = {"rail0": [[1, 2], [3, 99]], "rail7": [[1, 3]]}
    assert joints(SMOKE, nowhere) == [] and not any(ways(SMOKE, nowhere).values())


@given(st.permutations(range(1, 9)), st.integers(0, 4))
def test_both_ends_of_each_circuit_leave_by_it(ports: list[int], count: int) -> None:
    circuits = {"rail1": [ports[2 * i : 2 * i + 2] for i in range(count)]}
    number = {port.ip: port.number for port in SMOKE.network("rail")[1].ports}
    device = {port.interface: port.number for port in SMOKE.network("rail")[1].ports}
    joined = {(a, b) for pair in circuits["rail1"] for a, b in (pair, pair[::-1])}
    for host, found in routes(SMOKE, circuits).items():
        assert all((device[interface], number[ip]) in joined for ip, interface in found.items()), host
    for reached in ways(SMOKE, circuits).values():
        assert all((joint.own.number, joint.far.number) in joined for joint in reached.values())
    assert len(joints(SMOKE, circuits)) == sum((a - 1) // 2 != (b - 1) // 2 for a, b in joined)


def test_electrical_switches_join_lane_with_lane_and_circuits_come_first() -> None:
    electrical = plan(RailTopo(servers=2, gpus=1, ports=2, fabric="electrical"))
    assert addresses(electrical, {}, "g0") == {"g1": "10.1.0.3"}
    assert routes(electrical, {})["g0"] == {"10.1.0.4": "g0-r1"}
    mixed = plan(RailTopo(servers=2, gpus=2, scale_up=True, front_end=True))
    assert {peer: joint.switch for peer, joint in ways(mixed, {"rail0": [[2, 3]]})["g0"].items()} == {
        "g1": "srv0", "g2": "rail0", "g3": "fe",
    }  # fmt: skip


def test_hosts_of_linked_switches_reach_each_other() -> None:
    torus = plan(RackTopo(torus="2x2", server="2x1", fabric="electrical-torus"))
    assert {joint.switch for joint in ways(torus, {})["g0"].values()} == {"n0"}
    edge = plan(EdgeTopo(clients=4, regions=2))
    found = ways(edge, {})
    assert all(len(found[host]) == len(edge.hosts) - 1 for host in edge.hosts)


def test_a_hosts_file_has_the_joined_addresses_before_all_ports() -> None:
    assert hosts_file({"g0": "10.1.0.1"}, "lab", {"g0-r1": "10.1.0.2"}) == (
        "127.0.0.1 localhost lab\n10.1.0.1 g0\n10.1.0.2 g0-r1\n"
    )


def test_pingall_names_what_was_silent_and_what_is_not_joined() -> None:
    found = ways(SMOKE, CIRCUITS)["g0"]
    assert ping_line("g0", found, {"g2": False}, SMOKE.hosts) == "g0 -> rail0: g2 X, not joined: g1 g3 g4 g5 g6 g7"
    many = [f"g{rank}" for rank in range(20)]
    assert ping_line("g0", {}, {}, many) == "g0 -> not joined: g1 g2 g3 g4 g5 g6 g7 g8 and 11 more"


def test_the_banner_of_the_smoke_job() -> None:
    """Golden."""
    assert banner(SMOKE, CIRCUITS, Scale(1 / 84)).splitlines() == [
        "8 hosts, g0 to g7; their names work in every command on a host",
        "rail0: 10.1.0.1 g0 to 10.1.0.8 g6, 8 ports; circuits 1-4 2-3 5-8 6-7",
        "rail1: 10.2.0.1 g1 to 10.2.0.8 g7, 8 ports; circuits none",
        "scale: link rate 1/84, time x1; 147 Mb/s here stand for 12.3 Gb/s",
        "g0 is joined to g2 (10.1.0.4); type: g0 ping -c1 g2",
        "or: pingall | iperf g0 g2 | g0 COMMAND | links | help | exit",
        "to see and change circuits: circuits | rewire rail0 1-3",
    ]


@pytest.mark.parametrize(
    "fabric",
    [
        plan(RailTopo(servers=16, gpus=8, scale_up=True, front_end=True)),
        plan(RackTopo(torus="4x4")),
        plan(RackTopo(torus="4x4", fabric="electrical-torus")),
        plan(EdgeTopo(clients=20, regions=4)),
        plan(RailTopo(servers=1, gpus=1)),
    ],
)
@pytest.mark.parametrize("scale", [None, Scale(1 / 4000, 20)])
def test_a_banner_fits_a_terminal(fabric: FabricPlan, scale: Scale | None) -> None:
    full = {
        switch.name: [[a.number, b.number] for a, b in zip(switch.ports[::2], switch.ports[1::2], strict=False)]
        for switch in fabric.switches
    }
    for circuits in ({}, full, None):
        lines = banner(fabric, circuits, scale).splitlines()
        assert len(lines) <= 12 and all(len(line) <= 80 for line in lines)
