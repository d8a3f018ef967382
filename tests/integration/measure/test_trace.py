"""Probes through live fabrics: hops and delays, and where they end. And a user's own packets, made with scapy."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from checkout import ROOT
from mininet.topo import Topo

from experiments.rails.cli import RailCLI
from experiments.session import Session
from experiments.settings import PacketSettings
from measure.live.trace import PROBES, PortPair, Trace, trace
from railyard.errors import ConfigError
from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import inside
from topos.rails import RailTopo

pytestmark = [pytest.mark.root, pytest.mark.beside]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """Two rails of three GPUs with two ports each."""
    with Session(PacketSettings(), RailTopo(servers=3, gpus=2, ports=2, rate_mbps=100, fabric="ocs")) as running:
        yield running


def join(session: Session, *pairs: tuple[str, str]) -> None:
    """Circuits between these ports of rail 0, and no others."""
    number = {port.interface: port.number for port in session.plan.network("rail")[0].ports}
    circuits = [(number[a], number[b]) for a, b in pairs]
    session.call("rewire", switch="rail0", circuits=circuits, update="overwrite", delay_s=0.0)


def port(session: Session, name: str) -> str:
    return next(f"rail0 port {p.number}" for p in session.plan.network("rail")[0].ports if p.interface == name)


def way(lane: PortPair) -> list[tuple[str, str]]:
    return [(leaves, reaches) for leaves, reaches, _ in lane.hops]


def by_ends(found: Trace) -> dict[tuple[str, str], PortPair]:
    return {(lane.here, lane.there): lane for lane in found.pairs}


def test_a_circuit_is_two_hops_and_a_port_without_one_is_named(session: Session) -> None:
    join(session, ("g0-r0", "g2-r1"), ("g0-r1", "g4-r0"))
    trace(session.net, "g2", "g0")  # imports scapy
    began = time.monotonic()
    found = trace(session.net, "g0", "g2")
    assert time.monotonic() - began < 1
    lanes = by_ends(found)
    assert len(lanes) == 4 and [ends for ends, lane in lanes.items() if lane.hops] == [("g0-r0", "g2-r1")]
    joined = lanes["g0-r0", "g2-r1"]
    assert way(joined) == [("g0-r0", port(session, "g0-r0")), (port(session, "g2-r1"), "g2-r1")]
    assert joined.arrived == PROBES and all(0 < seconds < 0.1 for *_, seconds in joined.hops)
    assert lanes["g0-r0", "g2-r0"].ended == "it arrives at g2-r1"
    assert lanes["g0-r1", "g2-r0"].ended == f"{port(session, 'g4-r0')} sends it to g4-r0"
    back = by_ends(trace(session.net, "g2", "g0"))
    assert back["g2-r0", "g0-r0"].ended == f"{port(session, 'g2-r0')} has no circuit that is up"
    assert way(back["g2-r1", "g0-r0"]) == [("g2-r1", port(session, "g2-r1")), (port(session, "g0-r0"), "g0-r0")]


def test_a_link_that_is_down_and_bad_hosts_are_said(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    join(session, ("g0-r0", "g2-r0"))
    cli = RailCLI.__new__(RailCLI)
    cli.mn = session.net
    session.net.configLinkStatus("g0", "rail0", "down")
    try:
        assert {lane.ended for lane in trace(session.net, "g0", "g2").pairs} == {
            "nothing leaves g0-r0; its link is down", "nothing leaves g0-r1; its link is down"
        }  # fmt: skip
    finally:
        session.net.configLinkStatus("g0", "rail0", "up")
    for words, sentence in (("g0 g9", "there is no host g9"), ("g0 g1", "g0 and g1 have none"), ("g0", "usage")):
        assert cli.onecmd(f"trace {words}") is False
        assert sentence in caplog.messages[-1]
    with pytest.raises(ConfigError, match="needs two hosts"):
        trace(session.net, "g0", "g0")


class Row(Topo):  # type: ignore[misc]
    """Three switches in a row, with a host at each end, and 20 ms between the last two."""

    def build(self) -> None:
        switches = [self.addSwitch(f"s{number}") for number in (1, 2, 3)]
        self.addLink(switches[0], switches[1], bw=100)
        self.addLink(switches[1], switches[2], bw=100, delay="20ms")
        self.addLink(self.addHost("h1"), switches[0], bw=100)
        self.addLink(self.addHost("h2"), switches[2], bw=100)


@pytest.mark.parametrize("datapath", ["auto", "ovs"])
def test_a_topology_of_ones_own_and_its_delays_hop_by_hop(datapath: str) -> None:
    with Emulation(Row(), openflow=None, datapath=datapath) as net:  # type: ignore[arg-type]
        (lane,) = trace(net, "h1", "h2").pairs
        assert way(lane) == [
            ("h1-eth0", "s1 port 2"), ("s1 port 1", "s2 port 1"), ("s2 port 2", "s3 port 1"), ("s3 port 2", "h2-eth0")
        ]  # fmt: skip
        first, second, delayed, last = (seconds for *_, seconds in lane.hops)
        assert 0.0199 < delayed < 0.03 and max(first, second, last) < 0.01


def test_frames_of_a_users_own_pass_from_host_to_host(session: Session) -> None:
    join(session, ("g0-r0", "g2-r0"))
    macs = {p.interface: p.mac for p in session.plan.network("rail")[0].ports}
    program = [sys.executable, str(ROOT / "docs" / "examples" / "my_packets.py")]
    with inside(session.net.netns_fd("g2")):
        listening = subprocess.Popen([*program, "listen", "g2-r0"], stdout=subprocess.PIPE, text=True)
    try:
        said, tries = "", 0
        while not said and tries < 20:
            tries += 1
            with inside(session.net.netns_fd("g0")):
                subprocess.run([*program, "send", "g0-r0", macs["g2-r0"]], check=True, timeout=30)
            if listening.poll() is not None:
                said = listening.communicate(timeout=10)[0]
    finally:
        listening.kill()
        listening.wait()
    got = [line.split() for line in said.splitlines()]
    assert len(got) == 3 and all(number in "012" for *_, number, _, _ in got)
    assert {(where, sender) for where, *_, sender in got} == {("g2-r0", macs["g0-r0"])}
