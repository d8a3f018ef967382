from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.validation import from_plain
from topos.describe import plan
from topos.plan import FabricPlan, SwitchLink
from topos.racks import MorphluxTopo, RackTopo
from topos.torus import Torus


def test_chips_are_numbered_server_by_server() -> None:
    """Golden: a 4 x 4 torus of 2 x 2 servers."""
    torus = Torus((4, 4, 1), (2, 2, 1))
    rows = [[torus.chip((x, y, 0)) for x in range(4)] for y in range(4)]
    assert rows == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    assert [torus.neighbour(0, d) for d in torus.directions] == [1, 5, 2, 10]


def test_photonic_rack_is_one_switch_with_the_spare_server_outside_the_torus() -> None:
    fabric = plan(RackTopo(torus="4x4", server="2x2", port_mbps=25, tenants="4x1@0,0/2x2@0,2"))
    assert [(s.name, s.kind, s.network) for s in fabric.switches] == [
        ("rack0", "ocs", "rail"),
        ("fe", "electrical", "front-end"),
    ]
    assert (fabric.servers, fabric.gpus_per_server, fabric.ports_per_gpu, fabric.ranks) == (5, 4, 4, 20)
    assert fabric.rack is not None and fabric.links == ()
    assert fabric.rack.torus == (4, 4, 1) and fabric.rack.server == (2, 2, 1) and fabric.rack.racks == 1
    assert fabric.rack.spares == (16, 17, 18, 19)
    assert [(t.name, t.ranks) for t in fabric.rack.tenants] == [("A", (0, 1, 4, 5)), ("B", (8, 9, 11, 10))]
    port = fabric.rail_of(17).port(17, 3)
    assert (port.number, port.interface, port.ip, port.rate_mbps) == (17 * 4 + 3 + 1, "g17-r3", "10.1.0.72", 25)


def test_electrical_torus_has_a_node_for_each_chip_and_links_between_nodes() -> None:
    fabric = plan(RackTopo(torus="4x4", fabric="electrical-torus", reserve="2x2@2,2/1x1@0,3", port_mbps=10))
    nodes = fabric.network("rail")
    assert [node.name for node in nodes] == [f"n{rank}" for rank in range(16)]
    assert [node.dpid for node in nodes] == [0x40000 + rank for rank in range(16)]
    assert fabric.ports_per_gpu == 1 and fabric.ranks == 16
    assert fabric.rail_of(7).ports == (fabric.rail_of(7).port(7, 0),)
    assert fabric.rail_of(7).port(7, 0).number == 1 and fabric.rail_of(7).port(7, 0).rate_mbps == 40
    assert len(fabric.links) == 32
    assert SwitchLink("n0", 2, "n1", 3, 10.0) in fabric.links  # +x of chip 0 to -x of chip 1
    assert SwitchLink("n5", 2, "n0", 3, 10.0) in fabric.links  # round the end
    assert SwitchLink("n10", 4, "n0", 5, 10.0) in fabric.links
    assert fabric.rack is not None and fabric.rack.spares == (12, 13, 14, 15, 10)


def test_last_server_is_the_reserve_unless_another_is_named() -> None:
    rack = plan(RackTopo(torus="4x4x4", server="2x2x1", fabric="electrical-torus")).rack
    assert rack is not None and rack.spares == (60, 61, 62, 63)


def test_rack_of_the_paper() -> None:
    """4 x 4 x 4 in servers of 2 x 2 x 1: 64 chips of 6 ports, 16 servers, 192 links (MORPHLUX, arXiv 2508.03674)."""
    electrical = plan(RackTopo(torus="4x4x4", server="2x2x1", fabric="electrical-torus"))
    assert electrical.ranks == 64 and electrical.servers == 16 and len(electrical.links) == 192
    assert electrical.rail_of(0).port(0, 0).rate_mbps == 600
    photonic = plan(RackTopo(torus="4x4x4", server="2x2x1", spare_servers=2))
    assert photonic.ports_per_gpu == 6 and photonic.servers == 18
    assert len(photonic.rail_of(0).ports) == 72 * 6


def test_migration_has_a_second_rack_that_is_all_spare() -> None:
    fabric = plan(RackTopo(torus="4x2", server="2x2", fabric="migrate", tenants="4x2@0,0"))
    assert fabric.ranks == 16 and fabric.rack is not None and fabric.rack.racks == 2
    assert fabric.rack.spares == tuple(range(8, 16))
    one, two = fabric.links[:12], fabric.links[12:]
    assert len(one) == len(two) == 12
    for links, ranks in ((one, range(8)), (two, range(8, 16))):
        assert {name for link in links for name in (link.a, link.b)} == {f"n{rank}" for rank in ranks}


def test_prototype_has_four_servers_of_one_accelerator_with_two_ports() -> None:
    photonic = plan(MorphluxTopo(port_mbps="100"))
    assert (photonic.servers, photonic.gpus_per_server, photonic.ports_per_gpu) == (4, 1, 2)
    assert photonic.rack is not None and photonic.rack.spares == () and photonic.rack.torus == (2, 2, 1)
    electrical = plan(MorphluxTopo(fabric="electrical-torus", tenants="1x1@0,0+1x1@1,1"))
    assert len(electrical.links) == 4 and electrical.rail_of(3).port(3, 0).rate_mbps == 200
    assert electrical.rack is not None and electrical.rack.tenant("A").ranks == (0, 3)


@given(
    shape=st.tuples(st.integers(1, 5), st.integers(2, 5), st.integers(1, 3)),
    fabric=st.sampled_from(["photonic", "electrical-torus", "migrate"]),
)
def test_no_address_twice_and_json_round_trip(shape: tuple[int, int, int], fabric: str) -> None:
    written = plan(RackTopo(torus=shape, server="1", fabric=fabric))
    every = [port for switch in written.switches for port in switch.ports]
    for field in ("mac", "ip", "interface"):
        assert len({getattr(port, field) for port in every}) == len(every), field
    assert all(len(port.interface) < 16 for port in every)
    assert {len(written.host_ports(rank)) for rank in range(written.ranks)} == {written.ports_per_gpu + 1}
    used = [(s.name, port.number) for s in written.switches for port in s.ports]
    used += [end for link in written.links for end in ((link.a, link.a_port), (link.b, link.b_port))]
    assert len(set(used)) == len(used)
    assert written == from_plain(FabricPlan, asdict(written), "a plan")


@pytest.mark.parametrize("fabric", ["photonic", "electrical-torus"])
def test_delay_and_loss_of_a_rack(fabric: str) -> None:
    rack = plan(RackTopo(torus="2x2", server="1", fabric=fabric, delay_ms=2, loss=1))
    ports = [port for switch in rack.network("rail") for port in switch.ports]
    found = [(port.delay_s, port.loss_percent) for port in ports]
    found += [(link.delay_s, link.loss_percent) for link in rack.links]
    assert set(found) == {(0.002, 1.0)}
    assert not plan(RackTopo(torus="2x2", server="1", fabric=fabric)).delayed
