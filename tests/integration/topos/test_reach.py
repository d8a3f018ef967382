"""Names and routes of hosts follow the circuits, whichever process says so, and after a link was down."""

from __future__ import annotations

import pytest
from mininet.topo import Topo

from topos.kernel.emulation import Emulation
from topos.kernel.reach import Reach
from topos.rails import RailTopo

pytestmark = [pytest.mark.root, pytest.mark.beside]


def single_routes(net: Emulation, host: str = "g0") -> dict[str, str]:
    """Routes of a host to single addresses, and their interfaces."""
    words = [line.split() for line in net[host].cmd("ip -4 route show scope link").splitlines() if "metric 5" in line]
    return {line[0]: line[2] for line in words}


def test_routes_follow_whoever_says_so_and_come_back_with_a_link() -> None:
    with Emulation(RailTopo(servers=3, gpus=1, ports=2), openflow=None) as net:
        daemon, prompt = Reach(net), Reach(net)
        daemon.follow({"rail0": [[2, 3], [4, 6]]})
        assert single_routes(net) == {"10.1.0.3": "g0-r1"}
        assert daemon.address("g0", "g1") == "10.1.0.3" and daemon.address("g1", "g2") == "10.1.0.6"
        assert net["g1"].cmd("getent hosts g0 g2").split() == ["10.1.0.2", "g0", "10.1.0.6", "g2"]
        prompt.follow({"rail0": [[2, 5]]})
        assert single_routes(net) == {"10.1.0.5": "g0-r1"} and not single_routes(net, "g1")
        assert net["g1"].cmd("getent hosts g0").split() == ["10.1.0.1", "g0"]  # in the shell that was there
        net.configLinkStatus("g0", "rail0", "down")
        daemon.follow({"rail0": [[2, 3]]})
        assert not single_routes(net)
        net.configLinkStatus("g0", "rail0", "up")
        daemon.follow({"rail0": [[2, 3]]})
        assert single_routes(net) == {"10.1.0.3": "g0-r1"}
        net.configLinkStatus("g0", "rail0", "down")
        net.configLinkStatus("g0", "rail0", "up")
        prompt.follow({"rail0": [[2, 3]]}, force=True)
        assert single_routes(net) == {"10.1.0.3": "g0-r1"}
        prompt.follow({})
        assert not single_routes(net)


def test_lanes_of_an_electrical_rail_meet_and_bound_sockets_choose_for_themselves() -> None:
    with Emulation(RailTopo(servers=2, gpus=1, ports=2, fabric="electrical"), openflow=None) as net:
        Reach(net).follow({})
        assert net["g0"].cmd("ip route get 10.1.0.4").split()[:5] == ["10.1.0.4", "dev", "g0-r1", "src", "10.1.0.2"]
        for options in ("", "-I g0-r0", "-I g0-r1"):
            assert " 1 received" in net["g0"].cmd(f"ping -c1 -W1 {options} 10.1.0.4"), options


class Pair(Topo):  # type: ignore[misc]
    """Two hosts that are no ranks."""

    def build(self) -> None:
        switch = self.addSwitch("s1")
        for host in ("ann", "bob"):
            self.addLink(self.addHost(host), switch)


def test_any_topology_has_names() -> None:
    with Emulation(Pair(), openflow=None) as net:
        reach = Reach(net)
        reach.follow({})
        assert reach.plan is None and reach.address("ann", "bob") == "10.0.0.2"
        assert " 1 received" in net["ann"].cmd("ping -c1 -W1 bob")
