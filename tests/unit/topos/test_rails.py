from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.mesh.ports import choose_ports
from railyard.validation import from_plain
from topos.describe import plan
from topos.mesh import Mesh
from topos.options import link_parameters, seconds
from topos.plan import FabricPlan, MeshPlan
from topos.rails import RailTopo


def test_rail_joins_the_same_local_rank_of_all_servers() -> None:
    fabric = plan(RailTopo(servers=4, gpus=4))
    rail = fabric.network("rail")[1]
    assert rail.dpid == 0x10001 and rail.kind == "ocs"
    assert {port.rank for port in rail.ports} == {1, 5, 9, 13}
    assert rail.port(9, 1).number == 2 * 2 + 1 + 1  # server * ports + lane + 1
    assert rail.port(9, 1).interface == "g9-r1"
    assert fabric.rail_of(9) == rail


def test_other_networks() -> None:
    fabric = plan(RailTopo(servers=2, gpus=3, scale_up=True, front_end=True))
    assert [s.name for s in fabric.network("scale-up")] == ["srv0", "srv1"]
    assert [p.host for p in fabric.network("scale-up")[1].ports] == ["g3", "g4", "g5"]
    assert [s.dpid for s in fabric.network("front-end")] == [0x30000]
    assert [p.interface for _, p in fabric.host_ports(4)] == ["g4-r0", "g4-r1", "g4-up", "g4-fe"]


@given(
    servers=st.integers(1, 40),
    gpus=st.integers(1, 6),
    ports=st.integers(1, 4),
    scale_up=st.booleans(),
    front_end=st.booleans(),
)
def test_no_address_twice_and_json_round_trip(
    servers: int, gpus: int, ports: int, scale_up: bool, front_end: bool
) -> None:
    options = {"servers": servers, "gpus": gpus, "ports": ports, "scale_up": scale_up, "front_end": front_end}
    fabric = plan(RailTopo(**options))
    every = [port for switch in fabric.switches for port in switch.ports]
    assert len(every) == servers * gpus * (ports + scale_up + front_end)
    for field in ("mac", "ip", "interface"):
        assert len({getattr(port, field) for port in every}) == len(every), field
    assert all(len(port.interface) < 16 for port in every)
    for switch in fabric.switches:
        assert [p.number for p in switch.ports] == list(range(1, len(switch.ports) + 1))
    assert fabric == plan(RailTopo(**options)) == from_plain(FabricPlan, asdict(fabric), "a plan")


def test_one_shot_has_four_ports_that_share_the_bandwidth_of_two() -> None:
    rail = plan(RailTopo(fabric="one-shot", rate_mbps=100.0)).network("rail")[0]
    assert [rail.port(0, lane).rate_mbps for lane in range(4)] == [50.0] * 4
    rail = plan(RailTopo(fabric="one-shot", lane_rates="75/75/25/25")).network("rail")[0]
    assert [rail.port(4, lane).rate_mbps for lane in range(4)] == [75.0, 75.0, 25.0, 25.0]


@pytest.mark.parametrize("slow", ["3:0.5/4:0.25", {3: 0.5, 4: 0.25}])
def test_slow_ranks_have_slow_rail_ports_and_nothing_else(slow: object) -> None:
    fabric = plan(RailTopo(servers=3, gpus=2, rate_mbps=80.0, scale_up=True, front_end=True, slow=slow))
    rates = {(s.network, p.rank, p.lane): p.rate_mbps for s in fabric.switches for p in s.ports}
    for lane in range(2):
        assert [rates["rail", rank, lane] for rank in range(6)] == [80.0, 80.0, 80.0, 40.0, 20.0, 80.0]
    assert {rate for (network, _, _), rate in rates.items() if network == "scale-up"} == {1000.0}
    assert {rate for (network, _, _), rate in rates.items() if network == "front-end"} == {100.0}


def test_delay_and_loss_are_of_the_rails_alone_and_in_mininets_own_parameters() -> None:
    topo = RailTopo(servers=2, gpus=1, ports=1, front_end=True, delay_ms="5", jitter_ms=0.25, loss="0.1")
    given = [{key: link.get(key) for key in ("delay", "jitter", "loss")} for _, _, link in topo.links(withInfo=True)]
    assert given[:2] == [{"delay": "5ms", "jitter": "0.25ms", "loss": 0.1}] * 2
    assert given[2:] == [dict.fromkeys(("delay", "jitter", "loss"))] * 2, "the front end is a network of its own"
    fabric = plan(topo)
    assert fabric.delayed and fabric.lossy
    assert {(p.delay_s, p.loss_percent) for p in fabric.rail_of(0).ports} == {(0.005, 0.1)}
    assert {(p.delay_s, p.loss_percent) for p in fabric.network("front-end")[0].ports} == {(0.0, 0.0)}


def test_one_slow_rank_needs_no_slash_and_share_one_is_no_change() -> None:
    usual = plan(RailTopo(servers=2, gpus=1))
    assert plan(RailTopo(servers=2, gpus=1, slow="1:1")) == usual
    assert plan(RailTopo(servers=2, gpus=1, slow="1:0.1")).rail_of(1).port(1, 1).rate_mbps == pytest.approx(10.0)


def meshes(**options: object) -> list[MeshPlan | None]:
    return [switch.mesh for switch in plan(RailTopo(**options)).switches]


def test_every_rail_and_nothing_else_is_made_of_it() -> None:
    found = meshes(servers=4, gpus=2, ports=1, mesh="3x3", gate_latency_us=0.5, scale_up=True, front_end=True)
    spaced = MeshPlan(3, 3, (0, 7, 14, 21), 0.5)
    assert found == [spaced, spaced, *[None] * 5]


def test_ports_can_be_named_in_text() -> None:
    (mesh,) = meshes(servers="2", gpus="1", ports="2", mesh="5x5@3/0/43/20", gate_latency_us="2e1")
    assert mesh == MeshPlan(5, 5, (3, 0, 43, 20), 20.0)


def test_ports_can_be_chosen() -> None:
    (mesh,) = meshes(servers=4, gpus=1, ports=1, mesh="3x3@choose", choose_ports=choose_ports)
    assert mesh is not None and len(set(mesh.ports)) == 4
    Mesh.of(3, 3).check_ports(mesh.ports)


def test_link_parameters_are_mininets_and_zeros_are_left_out() -> None:
    assert link_parameters("20", 0.5, "0.1") == {"delay": "20ms", "jitter": "0.5ms", "loss": 0.1}
    assert link_parameters() == link_parameters(0, "0", 0.0) == {}
    assert seconds("delay", link_parameters(12.3456)["delay"]) == pytest.approx(0.0123456)


@pytest.mark.parametrize(
    ("text", "expected"), [("5ms", 0.005), ("250us", 0.00025), ("1s", 1.0), ("0.5ms", 0.0005), (None, 0.0), ("0ms", 0)]
)
def test_times_are_read_with_their_unit(text: object, expected: float) -> None:
    assert seconds("delay", text) == pytest.approx(expected)
