from __future__ import annotations

import pytest
from mininet.net import Mininet

from topos.kernel.links import RecordedLink
from topos.kernel.nodes import RailHost, RailSwitch
from topos.kernel.wiring import cut_requests, host_requests, mend_requests, number_interfaces, own_ends, switch_shaping
from topos.racks import RackTopo


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Mininet:
    """A 3 x 2 torus that was only noted down."""
    monkeypatch.setattr(Mininet, "init", classmethod(lambda cls: None))
    for cls in (RailHost, RailSwitch):
        monkeypatch.setattr(cls, "setup", classmethod(lambda cls: None))
    topo = RackTopo(torus="3x2", server="1", fabric="electrical-torus", port_mbps=50)
    noted = Mininet(topo, host=RailHost, switch=RailSwitch, link=RecordedLink, controller=None)
    number_interfaces(noted.links)
    return noted


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
