"""Switches of a topology with a loop, without a controller: a spanning tree stands when the net is up."""

from __future__ import annotations

import socket
import time

import pytest
from host_traffic import pings
from mininet.topo import Topo

from railyard.errors import ConfigError
from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import inside

pytestmark = [pytest.mark.root, pytest.mark.beside]
BROADCASTS = 20


class Triangle(Topo):  # type: ignore[misc]
    def build(self) -> None:
        for number in (1, 2, 3):
            self.addLink(self.addHost(f"h{number}"), self.addSwitch(f"s{number}"), bw=100)
        for a, b in ((1, 2), (2, 3), (3, 1)):
            self.addLink(f"s{a}", f"s{b}", bw=100)


def received(net: Emulation) -> dict[str, int]:
    """Packets that each interface of each switch has received."""
    lines = (line.replace(":", " ").split() for line in net["s1"].cmd("cat /proc/net/dev").splitlines())
    return {words[0]: int(words[2]) for words in lines if words and "-eth" in words[0]}


def test_hosts_on_a_triangle_of_switches_reach_each_other_and_a_broadcast_ends() -> None:
    with Emulation(Triangle(), openflow=None, stp=True) as net:
        assert net.datapath == "ovs"
        for host in net.hosts:
            assert all(pings(net, host.name, other.IP()) for other in net.hosts if other is not host)
        with inside(net.netns_fd("h2")):
            listener = socket.socket(type=socket.SOCK_DGRAM)
        with inside(net.netns_fd("h1")):
            sender = socket.socket(type=socket.SOCK_DGRAM)
        with listener, sender:
            listener.bind(("", 7))
            listener.settimeout(2)
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            before = received(net)
            for number in range(BROADCASTS):
                sender.sendto(bytes([number]), ("10.255.255.255", 7))
            assert [listener.recv(8)[0] for _ in range(BROADCASTS)] == list(range(BROADCASTS))
            time.sleep(0.5)
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.recv(8)
        more = {name: count - before[name] for name, count in received(net).items()}
        # in at one port of each switch, and in vain at the blocked one; what is more are messages of the tree itself
        assert 4 * BROADCASTS <= sum(more.values()) <= 5 * BROADCASTS, more


def test_a_spanning_tree_with_the_fast_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="take datapath ovs or auto"):
        Emulation(Triangle(), datapath="bpf", stp=True)
