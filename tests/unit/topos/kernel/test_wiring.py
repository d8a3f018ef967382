from __future__ import annotations

import struct

import pytest
from mininet.net import Mininet

from railyard.scale import bucket_burst_bytes
from topos.kernel.links import RecordedLink
from topos.kernel.nodes import RailHost, RailSwitch
from topos.kernel.queues import token_bucket
from topos.kernel.tuning import rto_min_ms, unsent_limit
from topos.kernel.wiring import host_requests, link_requests, number_interfaces, switch_shaping
from topos.rails import RailTopo


def recorded(monkeypatch, **shape: object) -> Mininet:  # type: ignore[no-untyped-def]
    """A net that was only noted down: no root, no kernel."""
    monkeypatch.setattr(Mininet, "init", classmethod(lambda cls: None))
    for cls in (RailHost, RailSwitch):
        monkeypatch.setattr(cls, "setup", classmethod(lambda cls: None))
    return Mininet(RailTopo(**shape), host=RailHost, switch=RailSwitch, link=RecordedLink, controller=None)


def test_indices_are_unique_in_each_namespace(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    net = recorded(monkeypatch, servers=3, gpus=2, scale_up=True)
    number_interfaces(net.links)
    yard = [i.index for s in net.switches for i in s.intfList()]
    assert len(set(yard)) == len(yard) == 18
    assert all([i.index for i in h.intfList()] == [2, 3, 4] for h in net.hosts)


def test_each_host_knows_every_other_port_of_its_rail_and_no_own(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    net = recorded(monkeypatch, servers=3, gpus=1)
    number_interfaces(net.links)
    for _, requests in host_requests(net.hosts, net.switches):
        assert sum(request.what.startswith("adding the neighbour") for request in requests) == 8  # 2 x 4
        assert sum(request.what.startswith("adding the rule") for request in requests) == 1  # lane 1
        assert sum(request.what.startswith("shaping") for request in requests) == 2


def test_only_electrical_switches_shape(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    net = recorded(monkeypatch, servers=2, gpus=2, fabric="ocs", front_end=True)
    number_interfaces(net.links)
    assert {r.what.split()[1].split("-")[0] for r in switch_shaping(net.switches)} == {"fe"}
    assert len(list(link_requests(net.links, {}))) == len(net.links)


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


def test_a_slow_rank_is_shaped_at_both_ends_of_its_link(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    net = recorded(monkeypatch, servers=3, gpus=1, ports=1, fabric="electrical", rate_mbps=50, slow={1: 0.5})
    both = [(link.intf1.rate_mbps, link.intf2.rate_mbps) for link in net.links]
    assert both == [(50.0, 50.0), (25.0, 25.0), (50.0, 50.0)]
