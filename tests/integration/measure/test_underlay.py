"""The probe of the network between two machines, which two namespaces play: what it says is what was set there."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from measure.live.underlay.echo import BACK, HERE
from measure.live.underlay.probe import DATAGRAMS, Echo, probe
from measure.metrics.underlay import Underlay
from railyard.errors import MachineError
from topos.kernel.namespaces import inside, make, write_sysctls
from topos.kernel.netlink import Netlink
from topos.kernel.queues import filters, lose, no_filters, token_bucket

pytestmark = [pytest.mark.root, pytest.mark.beside]

HERE_IP, THERE_IP = "192.0.2.1", "192.0.2.2"
HERE_IP6, THERE_IP6 = "2001:db8::1", "2001:db8::2"
TOKEN = bytes(range(16))


def ip(netns_fd: int, *words: str) -> None:
    with inside(netns_fd):
        subprocess.run(["ip", *words], cwd="/", check=True)


@dataclass(frozen=True)
class Network:
    here: int
    there: int

    def mtu(self, netns_fd: int, size: int) -> None:
        ip(netns_fd, "link", "set", "under", "mtu", str(size))

    def index(self, netns_fd: int) -> int:
        with inside(netns_fd):
            return socket.if_nametoindex("under")

    def echo(self, address: str = THERE_IP, seconds: float = 30.0) -> Echo:
        with inside(self.there):
            return Echo(address, TOKEN, seconds).start()

    def probe(self, packet_bytes: int = 1500, address: str = THERE_IP) -> Underlay:
        with self.echo(address) as echo, inside(self.here):
            return probe(address, echo.port, TOKEN, packet_bytes)


def at(netns_fd: int) -> str:
    return f"/proc/{os.getpid()}/fd/{netns_fd}"


@contextmanager
def closing_fd(fd: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(fd)


@pytest.fixture
def network() -> Iterator[Network]:
    here, there = make(2)
    with closing_fd(here), closing_fd(there):
        ip(here, "link", "add", "under", "type", "veth", "peer", "name", "under", "netns", at(there))
        for fd, address, address6 in ((here, HERE_IP, HERE_IP6), (there, THERE_IP, THERE_IP6)):
            ip(fd, "link", "set", "under", "up")
            ip(fd, "address", "add", f"{address}/24", "dev", "under")
            ip(fd, "address", "add", f"{address6}/64", "dev", "under", "nodad")
        yield Network(here, there)


@pytest.mark.parametrize("address", [THERE_IP, pytest.param(THERE_IP6, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("here", "there", "wanted", "found"),
    [
        (9049, 9049, 9050, 9049),
        (9100, 1500, 9050, 1500),  # too long for the other end, which says nothing
        (9100, 9100, 1550, 1550),  # nothing larger than wanted is tried
    ],
)
def test_the_largest_packet_that_passes(
    network: Network, address: str, here: int, there: int, wanted: int, found: int
) -> None:
    network.mtu(network.here, here)
    network.mtu(network.there, there)
    result = network.probe(wanted, address)
    assert (result.packet_bytes, result.loss_share, result.datagrams) == (found, 0.0, DATAGRAMS)
    assert 0 < result.round_trip_ms <= result.round_trip_p99_ms and result.jitter_ms > 0


@pytest.mark.thorough
@pytest.mark.parametrize("wanted", [1400, 9050])
def test_a_router_on_the_way_that_tells_its_mtu(network: Network, wanted: int) -> None:
    """The kernel believes the router and remembers; each packet is nevertheless tried."""
    (router,) = make(1)
    with closing_fd(router):
        ip(router, "link", "add", "left", "type", "veth", "peer", "name", "to-there", "netns", at(network.here))
        ip(router, "link", "add", "right", "type", "veth", "peer", "name", "to-here", "netns", at(network.there))
        with inside(router):
            write_sysctls({"net.ipv4.ip_forward": "1"})
        ends = ((network.here, "to-there", "left", 1, 9100), (network.there, "to-here", "right", 2, 1400))
        for fd, outer, inner, net, mtu in ends:
            for side, name, host in ((fd, outer, 1), (router, inner, 254)):
                ip(side, "address", "add", f"198.51.{net}.{host}/24", "dev", name)
                ip(side, "link", "set", name, "up", "mtu", str(mtu))
            ip(fd, "route", "add", "198.51.0.0/16", "via", f"198.51.{net}.254")
        found = network.probe(wanted, "198.51.2.1")
    assert (found.packet_bytes, found.loss_share) == (1400, 0.0) and found.tcp_mbps > 0


@pytest.mark.thorough
@pytest.mark.parametrize("side", ["here", "there"])
def test_the_rate_is_that_of_the_slower_direction(network: Network, side: str) -> None:
    fd = getattr(network, side)
    with Netlink(fd) as netlink:
        netlink.run([token_bucket(network.index(fd), "under", 100.0, 20000, 1 << 20)])
    assert 80 < network.probe().tcp_mbps < 100
    assert network.probe().tcp_mbps < 100


@pytest.mark.parametrize("percent", [10.0, 100.0])
def test_packets_that_are_lost_are_counted(network: Network, percent: float) -> None:
    index = network.index(network.there)
    with Netlink(network.there) as netlink:
        netlink.run([filters(index, "under"), lose(index, "under", percent)])
    if percent == 100.0:
        with pytest.raises(MachineError, match=rf"no packet came back from {THERE_IP} \(UDP port "):
            network.probe()
    else:
        assert 0.01 < network.probe().loss_share < 0.3  # 2 to 60 of 200, of which 20 are expected


def test_a_probe_waits_until_addresses_are_resolved(network: Network) -> None:
    index = network.index(network.there)
    with Netlink(network.there) as netlink:
        netlink.run([filters(index, "under"), lose(index, "under", 100.0)])
        passing = threading.Timer(0.9, lambda: netlink.run([no_filters(index, "under")]))
        passing.start()
        assert network.probe().loss_share == 0.0, "the second reply about an address, after 1 s, is not lost"
        passing.join()


def test_who_has_not_the_token_gets_no_answer(network: Network) -> None:
    with network.echo() as echo, inside(network.here):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0.2)
            sock.connect((THERE_IP, echo.port))
            for wrong in (b"", TOKEN[:-1], bytes(16) + bytes(48), bytes(1400)):
                sock.send(wrong)
            with pytest.raises(TimeoutError):
                sock.recv(100)
            sock.send(TOKEN + bytes(48))
            assert sock.recv(100) == TOKEN + bytes(48)
        for way in (HERE, BACK):
            with socket.create_connection((THERE_IP, echo.port), 5) as sock:
                sock.sendall(bytes(16) + way)
                with pytest.raises(ConnectionResetError):
                    sock.recv(1)
        with ExitStack() as silent:
            for _ in range(20):
                silent.enter_context(socket.create_connection((THERE_IP, echo.port), 5))
            result = probe(THERE_IP, echo.port, TOKEN, 1500)
            assert result.tcp_mbps > 0 and result.loss_share == 0, "others who connect do not end the probe"


def ended(echo: Echo, longest_s: float) -> bool:
    end = time.monotonic() + longest_s
    while not echo.has_ended and time.monotonic() < end:
        time.sleep(0.02)
    return echo.has_ended


def test_the_echo_ends_by_itself(network: Network) -> None:
    with network.echo(seconds=0.3) as echo:
        assert ended(echo, 5.0)
        with inside(network.here), pytest.raises(MachineError, match=f"no packet came back from {THERE_IP} "):
            probe(THERE_IP, echo.port, TOKEN, 1500)


@pytest.mark.thorough
def test_an_address_of_another_machine(network: Network) -> None:
    said = f"no echo can listen on {HERE_IP}: Cannot assign requested address"
    with inside(network.there), pytest.raises(MachineError, match=said):
        Echo(HERE_IP, TOKEN, 5.0).start()
