from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from host_traffic import pings

from experiments.session import Session
from experiments.settings import PacketSettings
from measure.live.delivery import delivery, read_port_counters
from measure.live.sampler import host_interfaces
from railyard.scale import goodput_share
from topos.edge import EdgeTopo
from topos.edge_plan import ROOT, EdgePlan
from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import inside

pytestmark = pytest.mark.root
MTU = 1500


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(PacketSettings(), EdgeTopo(clients=8, regions=2, client_mbps=20, trunk_mbps=50)) as running:
        yield running


def edge_of(session: Session) -> EdgePlan:
    edge = session.plan.edge
    assert edge is not None
    return edge


def client_ip(session: Session, client: int) -> str:
    ((_, port),) = session.plan.host_ports(edge_of(session).client_rank(client))
    return port.ip


@pytest.mark.beside
def test_no_controller_is_started_for_switches_that_forward_by_themselves(session: Session) -> None:
    assert session.controller is None and session.call("circuits") == {}
    assert "NORMAL" in session.net["region0"].cmd("ovs-ofctl dump-flows region0")
    assert len(session.netns_fds()) == session.plan.ranks == 12


@pytest.mark.beside
def test_everyone_reaches_leaf_root_and_control(session: Session) -> None:
    net, edge = session.net, edge_of(session)
    for client, region in ((0, 0), (7, 1)):
        here = edge.regions[region]
        for ip in (here.leaf_ip, here.control_ip, edge.root_ip):
            assert pings(net, f"c{client}", ip)
        assert pings(net, "root", client_ip(session, client)) and pings(net, "control", client_ip(session, client))
        assert pings(net, f"leaf{region}", edge.root_ip) and pings(net, f"leaf{region}", here.control_ip)
    assert pings(net, "root", edge.control_ip)
    assert not pings(net, "c0", edge.control_ip), "the address between root and control is not for clients"


@pytest.mark.beside
def test_packets_reach_nobody_whom_they_are_not_for() -> None:
    """Also the first ones, before a bridge could have learned an address from an answer."""
    with Emulation(EdgeTopo(clients=4, regions=2, client_mbps=20), openflow=None) as net:
        root = net.plan.edge.root_ip if net.plan.edge is not None else ""
        with inside(net.netns_fd("c0")), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for _ in range(50):
                sock.sendto(bytes(1000), (root, 9))
        time.sleep(0.2)
        read = "cat /sys/class/net/{}/statistics/rx_bytes"
        assert int(net["root"].cmd(read.format("root-trunk"))) > 50_000
        for name, interface in (("c2", "c2-r0"), ("c1", "c1-r1"), ("leaf0", "leaf0-r0"), ("control", "control-r0")):
            assert int(net[name].cmd(read.format(interface))) == 0, name


def send(session: Session, source: str, target: str, ip: str, count: int) -> float:
    """Seconds in which ``count`` bytes go from one host to another, the connection excluded."""
    with ExitStack() as stack:
        with inside(session.net.netns_fd(target)):
            listener = stack.enter_context(socket.create_server((ip, 0)))
        with inside(session.net.netns_fd(source)):
            sender = stack.enter_context(socket.create_connection(listener.getsockname(), timeout=20))
        receiver = stack.enter_context(listener.accept()[0])
        began = time.monotonic()
        thread = threading.Thread(target=sender.sendall, args=(bytes(count),))
        thread.start()
        left = count
        while left > 0:
            left -= len(receiver.recv(1 << 16)) or left
        ended = time.monotonic()
        thread.join(10)
    return ended - began


@pytest.mark.timed
def test_rates_of_access_and_trunk(session: Session) -> None:
    edge, size = edge_of(session), 2_500_000
    for source, target, ip, mbps in (
        ("leaf0", "c0", client_ip(session, 0), 20),
        ("c1", "leaf1", edge.regions[1].leaf_ip, 20),
        ("leaf0", "root", edge.root_ip, 50),
        ("root", "leaf1", edge.regions[1].leaf_ip, 50),
    ):
        ideal = size * 8 / (mbps * 1e6) / goodput_share(MTU)
        assert 0.93 * ideal < send(session, source, target, ip, size) < 1.07 * ideal, (source, target)


@pytest.mark.beside
def test_counters_of_the_root_are_those_of_its_trunk_port(session: Session) -> None:
    before = read_port_counters(session.plan, dict(enumerate(session.netns_fds())))
    assert set(before) == {(ROOT, 0)}
    send(session, "leaf0", "root", edge_of(session).root_ip, 200_000)
    moved = delivery(before, read_port_counters(session.plan, dict(enumerate(session.netns_fds()))))
    assert 200_000 < moved.received_bytes < 220_000
    assert host_interfaces(session.plan)["trunk-eth1"].rank == ROOT


@pytest.mark.beside
def test_only_the_granted_region_reaches_the_root_over_an_optical_trunk() -> None:
    with Session(PacketSettings(), EdgeTopo(clients=4, regions=2, trunk="ocs")) as session:
        net, edge = session.net, edge_of(session)
        assert [switch["name"] for switch in session.call("circuits")["switches"]] == ["trunk"]
        for granted in (0, 1, 0):
            circuit = [1, edge.regions[granted].trunk_port]
            session.call("rewire", switch="trunk", circuits=[circuit], delay_s=0.05)
            for region in (0, 1):
                assert pings(net, f"leaf{region}", edge.root_ip) == (region == granted)
                assert pings(net, f"c{region}", edge.root_ip) == (region == granted)
                assert pings(net, f"c{region}", edge.regions[region].control_ip), "control needs no trunk"
        session.call("rewire", switch="trunk", circuits=[], update="overwrite")
        assert not pings(net, "leaf0", edge.root_ip) and pings(net, "root", edge.control_ip)
