from __future__ import annotations

import struct

import pytest
from mininet.net import Mininet
from recorded_net import recorded

from railyard.scale import bucket_burst_bytes
from topos.kernel.queues import token_bucket
from topos.kernel.tuning import largest_segment_bytes, rto_min_ms, unsent_limit
from topos.kernel.wiring import (
    cut_requests,
    host_requests,
    link_requests,
    mend_requests,
    own_ends,
    port_speeds,
    switch_shaping,
)
from topos.racks import RackTopo
from topos.rails import RailTopo


def rails(monkeypatch: pytest.MonkeyPatch, **shape: object) -> Mininet:
    return recorded(monkeypatch, RailTopo(**shape))


def test_indices_are_unique_in_each_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    net = rails(monkeypatch, servers=3, gpus=2, scale_up=True)
    yard = [i.index for s in net.switches for i in s.intfList()]
    assert len(set(yard)) == len(yard) == 18
    assert all([i.index for i in h.intfList()] == [2, 3, 4] for h in net.hosts)


def test_each_host_knows_every_other_port_of_its_rail_and_no_own(monkeypatch: pytest.MonkeyPatch) -> None:
    net = rails(monkeypatch, servers=3, gpus=1)
    for _, requests in host_requests(net.hosts, net.switches):
        assert sum(request.what.startswith("adding the neighbour") for request in requests) == 8  # 2 x 4
        assert sum(request.what.startswith("adding the rule") for request in requests) == 1  # lane 1
        assert sum(request.what.startswith("shaping") for request in requests) == 2


def test_only_electrical_switches_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    net = rails(monkeypatch, servers=2, gpus=2, fabric="ocs", front_end=True)
    assert {r.what.split()[1].split("-")[0] for r in switch_shaping(net.switches)} == {"fe"}
    assert len(list(link_requests(net.links, {}))) == len(net.links)


def test_ports_tell_a_multiple_of_the_rate_of_their_links(monkeypatch: pytest.MonkeyPatch) -> None:
    net = rails(monkeypatch, servers=2, gpus=1, rate_mbps=25)
    assert set(port_speeds(net.switches, 1.0).values()) == {25_000}
    assert set(port_speeds(net.switches, 16_000).values()) == {400_000_000} and len(port_speeds(net.switches, 1)) == 4
    assert set(port_speeds(net.switches, 1e9).values()) == {0xFFFFFFFF}, "the most that the field holds"


def test_bucket_holds_two_frames_at_least() -> None:
    assert bucket_burst_bytes(1, 9000) == 2 * 9014
    assert bucket_burst_bytes(1000, 9000) == 500_000
    packed = bytes(token_bucket(5, "g0-r0", 100, 50_000, 9_000_000).packed)
    assert struct.unpack_from("=I", packed, 16 + 4)[0] == 5
    assert struct.pack("=I", 12_500_000) in packed and struct.pack("=HHI", 8, 6, 50_000) in packed


@pytest.mark.parametrize(("rate_mbps", "expected_ms"), [(None, 25), (1000, 25), (100, 47), (25, 67)])
def test_a_time_out_is_longer_than_both_queues_of_a_slow_port(rate_mbps: float | None, expected_ms: int) -> None:
    assert rto_min_ms(rate_mbps, 9000) == expected_ms
    if rate_mbps is not None:
        assert expected_ms / 1e3 >= 4 * unsent_limit(rate_mbps, 9000) / (rate_mbps * 1e6 / 8)


def test_a_slow_rank_is_shaped_at_both_ends_of_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    net = rails(monkeypatch, servers=3, gpus=1, ports=1, fabric="electrical", rate_mbps=50, slow={1: 0.5})
    both = [(link.intf1.rate_mbps, link.intf2.rate_mbps) for link in net.links]
    assert both == [(50.0, 50.0), (25.0, 25.0), (50.0, 50.0)]


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Mininet:
    """A torus of 3 x 2."""
    return recorded(monkeypatch, RackTopo(torus="3x2", server="1", fabric="electrical-torus", port_mbps=50))


def test_links_between_switches_are_shaped_at_both_ends(net: Mininet) -> None:
    shaped = [request.what.split()[1] for request in switch_shaping(net.switches)]
    between = {f"{name}-eth{port}" for name in ("n0", "n1", "n2", "n3", "n4", "n5") for port in (2, 3, 4)}
    assert between == {name for name in shaped if shaped.count(name) == 6}
    assert sum(shaped.count(name) == 1 for name in shaped) == 6 + 6  # ports to hosts: nodes' and the front-end's


def test_each_host_knows_all_hosts_of_the_torus(net: Mininet) -> None:
    for _, requests in host_requests(net.hosts, net.switches):
        neighbours = [request.what for request in requests if request.what.startswith("adding the neighbour")]
        assert len(neighbours) == len(set(neighbours)) == 5 + 5


def test_cut_and_mend_name_the_same_interfaces(net: Mininet) -> None:
    host = net["g4"]
    ends = own_ends(host, net.switches)
    assert {intf.name for intf in ends} == {"fe-eth5", "n4-eth1", "n4-eth2", "n4-eth3", "n4-eth4"}
    assert {r.what for r in cut_requests(host.intfList())} == {"setting g4-r0 down", "setting g4-fe down"}
    mended = [request.what for request in mend_requests(host, host.intfList(), net.switches)]
    assert [what for what in mended if what.endswith(" up")] == ["setting g4-r0 up", "setting g4-fe up"]
    assert sum(what.startswith("routing") for what in mended) == 2
    assert sum(what.startswith("adding the neighbour") for what in mended) == 10
    one = [request.what for request in mend_requests(host, [host.intf("g4-fe")], net.switches)]
    assert one[0] == "setting g4-fe up" and sum(what.startswith("adding the neighbour") for what in one) == 5


def test_buckets_of_a_large_fabric_pass_longer_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of the rates decides: 8 hosts of 50 Mb/s make few segments, 64 of them as long ones as there are."""
    depths, segments = [], []
    for servers in (8, 32, 64):
        net = rails(monkeypatch, servers=servers, gpus=1, ports=1, rate_mbps=50, fabric="ocs")
        end = next(end for end in net.hosts[0].intfList() if end.rate_mbps == 50)
        depths.append(bucket_burst_bytes(end.rate_mbps, end.mtu, end.burst))
        segments.append(largest_segment_bytes(end.rate_mbps, end.mtu, end.burst))
    assert depths == [25_000, 50_000, 68_300] and segments == [24_000, 48_000, 65_536]
