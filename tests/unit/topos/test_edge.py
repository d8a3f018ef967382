from __future__ import annotations

from dataclasses import asdict

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.live.sampler import host_interfaces
from railyard.validation import from_plain
from topos.client_rates import PUBLISHED_MBPS, client_rates, rate_at
from topos.describe import plan
from topos.edge import EdgeTopo
from topos.edge_plan import CONTROL, ROOT
from topos.plan import FabricPlan
from topos.rails import RailTopo


def test_hosts_are_named_by_what_they_do() -> None:
    network = plan(EdgeTopo(clients=5, regions=2))
    assert network.hosts == ("root", "control", "leaf0", "leaf1", "c0", "c1", "c2", "c3", "c4")
    edge = network.edge
    assert edge is not None and edge.clients == 5
    assert [region.clients for region in edge.regions] == [(0, 2, 4), (1, 3)]
    assert [edge.region_of(client) for client in range(5)] == [0, 1, 0, 1, 0]
    assert network.hosts[edge.leaf_rank(1)] == "leaf1" and network.hosts[edge.client_rank(3)] == "c3"
    assert plan(RailTopo(servers=2, gpus=2)).hosts == ("g0", "g1", "g2", "g3")


@given(clients=st.integers(1, 128), share=st.floats(0, 1), trunk=st.sampled_from(["electrical", "ocs"]))
def test_no_address_twice_no_loop_and_json_round_trip(clients: int, share: float, trunk: str) -> None:
    regions = 1 + round(share * (min(clients, 64) - 1))
    topo = EdgeTopo(clients=clients, regions=regions, trunk=trunk)
    network = plan(topo)
    every = [port for switch in network.switches for port in switch.ports]
    assert len(every) == 1 + 2 + regions * 2 + clients
    for field in ("mac", "ip", "interface"):
        assert len({getattr(port, field) for port in every}) == len(every), field
    assert all(len(port.interface) < 16 for port in every)
    assert all(len(name) < 16 for name in host_interfaces(network))
    assert len({switch.dpid for switch in network.switches}) == regions + 2
    switches = networkx.Graph((link.a, link.b) for link in network.links)
    assert networkx.is_tree(switches) and "ctl" not in switches, "a learning switch must not be part of a loop"
    assert from_plain(FabricPlan, asdict(network), "a plan") == network


def test_servers_are_reached_in_every_region() -> None:
    network = plan(EdgeTopo(clients=6, regions=3))
    edge = network.edge
    assert edge is not None
    own = {switch.name: {port.rank: port.ip for port in switch.ports} for switch in network.switches}
    for number, region in enumerate(edge.regions):
        assert own[region.switch][CONTROL] == region.control_ip
        assert own[region.switch][edge.leaf_rank(number)] == region.leaf_ip
        assert set(region.clients) == {rank - edge.client_rank(0) for rank in own[region.switch] if rank > 4}
    assert own["trunk"] == {ROOT: edge.root_ip}
    assert own["ctl"][CONTROL] == edge.control_ip
    assert {(link.a, link.a_port, link.b_port) for link in network.links} == {
        ("region0", 1, 2), ("region1", 1, 3), ("region2", 1, 4)
    }  # fmt: skip


def test_rates_of_every_link() -> None:
    topo = EdgeTopo(clients=8, regions=2, trunk_mbps="50", leaf_mbps=500, control_mbps=20)
    network = plan(topo)
    rates = {port.interface: port.rate_mbps for switch in network.switches for port in switch.ports}
    assert [rates[f"c{client}-r{client % 2}"] for client in range(8)] == list(client_rates(8, 2))
    assert rates["root-trunk"] == 50 and {link.rate_mbps for link in network.links} == {50}
    assert rates["leaf0-r0"] == rates["leaf1-r1"] == 500
    assert {rates[name] for name in ("control-r0", "control-r1", "control-ctl", "root-ctl")} == {20}
    assert EdgeTopo(clients=3, regions=2, client_mbps="4").client_mbps == (4.0, 4.0, 4.0)
    assert EdgeTopo(clients=3, regions=1, client_mbps=[1, 2, 3]).client_mbps == (1.0, 2.0, 3.0)


def test_delay_and_loss_are_parameters_of_the_links_they_are_meant_for() -> None:
    topo = EdgeTopo(
        clients=2, regions=1, access_delay_ms=5, jitter_ms="0.5", access_loss=1, trunk_delay_ms=20, control_delay_ms=7
    )
    given = {
        (link["node1"], link["node2"]): {key: link[key] for key in ("delay", "jitter", "loss") if key in link}
        for _, _, link in topo.links(withInfo=True)
    }
    assert given["c0", "region0"] == given["c1", "region0"] == {"delay": "5ms", "jitter": "0.5ms", "loss": 1.0}
    assert given["region0", "trunk"] == {"delay": "20ms"}
    assert given["control", "region0"] == {"delay": "7ms"}
    assert given["leaf0", "region0"] == given["root", "trunk"] == given["root", "ctl"] == given["control", "ctl"] == {}


def test_a_controller_gets_the_optical_trunk_and_nothing_else() -> None:
    assert plan(EdgeTopo(clients=4, regions=2)).controlled.switches == ()
    network = plan(EdgeTopo(clients=4, regions=2, trunk="ocs"))
    (trunk,) = network.controlled.switches
    assert trunk.kind == "ocs" and trunk.network == "rail"
    assert [(port.number, port.host, port.rate_mbps) for port in trunk.ports] == [
        (1, "root", 100.0), (2, "leaf0", 100.0), (3, "leaf1", 100.0)
    ]  # fmt: skip
    assert network.controlled.links == ()
    assert from_plain(FabricPlan, asdict(network.controlled), "a plan") == network.controlled
    rails = plan(RailTopo(servers=2, gpus=1, front_end=True))
    assert rails.controlled is rails


def test_rates_are_the_published_ones_at_the_published_shares() -> None:
    for share, mbps in PUBLISHED_MBPS:
        assert rate_at(share) == pytest.approx(mbps)
    assert rate_at(0.0) == 1.1 and rate_at(1.0) == 54.7
    assert rate_at(0.375) == pytest.approx((2.9 * 6.1) ** 0.5)  # halfway in share is halfway in logarithm


@given(count=st.integers(1, 300), regions=st.integers(1, 20))
def test_dealing_changes_the_order_and_no_rate(count: int, regions: int) -> None:
    dealt = client_rates(count, regions)
    assert sorted(dealt) == sorted(client_rates(count)) == list(client_rates(count))
    assert all(1.1 <= mbps <= 54.7 for mbps in dealt)


def test_regions_get_a_like_mix() -> None:
    rates = client_rates(48, 4)
    totals = [sum(rates[region::4]) for region in range(4)]
    assert max(totals) / min(totals) < 1.1
    assert sorted(rates)[23] < 6.1 < sorted(rates)[24]
