"""Apps of Ryu as they are installed drive a fabric: what passes their packet-ins arrives, at once and at line rate."""

from __future__ import annotations

import json
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import pytest
from host_traffic import pings_soon
from mininet.topo import Topo
from openflow.ryu_apps import REST, in_charge

from railyard.scale import goodput_share
from topos import describe
from topos.kernel.emulation import Emulation
from topos.kernel.fastpath.offload import Forwarding
from topos.kernel.iperf import IperfLane, measure_iperf
from topos.kernel.links import DEFAULT_MTU
from topos.kernel.namespaces import HostEnd, inside
from topos.racks import RackTopo
from topos.rails import RailTopo

pytestmark = pytest.mark.root

RATE_MBPS = 100.0
DATAPATHS = ["bpf", "ovs"]
HURRY = 30
"""So many times as fast run the timers of the framework: ports of ``simple_switch_stp_13`` wait 30 s to forward."""
FORWARDS_S = 20.0
CONNECT_S = 0.05
LEAST_SHARE = 0.97
DATAGRAMS = 20


class StockApp(NamedTuple):
    """Modules of Ryu and, for what is set over REST, the calls (path, body) that a user makes."""

    modules: str
    calls: tuple[tuple[str, dict[str, object]], ...] = ()
    routes: bool = False
    """Whether it joins two subnets, not hosts of one."""


def _rail() -> RailTopo:
    return RailTopo(servers=4, gpus=1, ports=1, fabric="electrical", rate_mbps=RATE_MBPS)


def _flows() -> Iterator[tuple[str, dict[str, object]]]:
    """The calls that have ``ofctl_rest`` send to each host by its address (as of OpenFlow 1.4, by instructions)."""
    rail = describe.plan(_rail()).rail_of(0)
    for port in rail.ports:
        apply = {"type": "APPLY_ACTIONS", "actions": [{"type": "OUTPUT", "port": port.number}]}
        flow = {"dpid": rail.dpid, "priority": 10, "match": {"eth_dst": port.mac}, "instructions": [apply]}
        yield "/stats/flowentry/add", flow


SWITCH = StockApp("ryu.app.simple_switch_13")
OTHERS = [
    *(StockApp(f"ryu.app.simple_switch{version}") for version in ("", "_15", "_stp_13")),
    StockApp("ryu.app.ofctl_rest", tuple(_flows())),
    StockApp(
        "ryu.app.rest_router",
        tuple(("/router/0000000000000001", {"address": f"10.{net}.0.254/24"}) for net in (1, 2)),
        routes=True,
    ),
]


class TwoSubnets(Topo):  # type: ignore[misc]
    """A router with two hosts in each of two subnets."""

    def build(self) -> None:
        self.addSwitch("s1")
        for rank in range(4):
            subnet = rank % 2 + 1
            host = self.addHost(f"g{rank}", ip=f"10.{subnet}.0.{rank + 1}/24", defaultRoute=f"via 10.{subnet}.0.254")
            self.addLink(host, "s1", bw=RATE_MBPS)


class World(NamedTuple):
    """A net with an app in charge, by which no TCP or UDP has passed yet."""

    net: Emulation
    mtu: int

    def end(self, rank: int) -> HostEnd:
        host = self.net[f"g{rank}"]
        intf = host.intfList()[0]
        return HostEnd(self.net.netns_fd(host.name), intf.name, intf.ip)


@contextmanager
def driven(app: StockApp, datapath: Forwarding) -> Iterator[World]:
    """A net of four hosts that the app drives: a ping between the last two has been answered."""
    topo, mtu = (TwoSubnets(), DEFAULT_MTU) if app.routes else (_rail(), _rail().mtu)
    with Emulation(topo, datapath=datapath) as net, in_charge(net, app.modules, HURRY):
        world = World(net, mtu)
        for path, body in app.calls:
            call(net, path, body)
        end = time.monotonic() + FORWARDS_S
        while not pings_soon(net, "g2", world.end(3).ip):
            assert time.monotonic() < end, (net.run.path / "ryu.log").read_text(errors="replace")
        yield world


def call(net: Emulation, path: str, body: dict[str, object]) -> None:
    """POST to the app's REST interface, as soon as it knows the switch."""
    end = time.monotonic() + FORWARDS_S
    while True:
        try:
            with inside(net.yard.netns_fd), urlopen(Request(REST + path, json.dumps(body).encode())) as answer:
                said = answer.read()
            assert b"failure" not in said, said
            return
        except OSError:
            assert time.monotonic() < end, (net.run.path / "ryu.log").read_text(errors="replace")
            time.sleep(0.1)


def asked(net: Emulation, path: str) -> Any:
    """What the app's REST interface says to GET; an empty list as long as it does not listen."""
    try:
        with inside(net.yard.netns_fd), urlopen(REST + path) as answer:
            return json.load(answer)
    except OSError:
        return []


@contextmanager
def connected(world: World, client: int, server: int) -> Iterator[tuple[socket.socket, socket.socket, float]]:
    """A connection's two ends, and the seconds that it took."""
    with inside(world.end(server).netns_fd):
        listener = socket.create_server((world.end(server).ip, 0))
    with inside(world.end(client).netns_fd):
        near = socket.socket()
    with listener, near:
        near.settimeout(10)
        began = time.monotonic()
        near.connect(listener.getsockname())
        took = time.monotonic() - began
        far, _ = listener.accept()
        with far:
            far.settimeout(10)
            yield near, far, took


def sent_again(sock: socket.socket) -> int:
    """Segments that a socket has sent again (``tcpi_total_retrans`` of linux/tcp.h), a lost SYN among them."""
    return int(struct.unpack_from("=I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 100)[0])


def arrives(near: socket.socket, far: socket.socket, data: bytes) -> bytes:
    """What arrives at ``far`` of the ``data`` sent by ``near``."""

    def send() -> None:
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    received = b"".join(iter(lambda: far.recv(1 << 18), b""))
    sender.join()
    return received


def datagrams(world: World, client: int, server: int, length: int) -> list[bool]:
    """Whether each of some datagrams with ``length`` random bytes arrives as it was sent."""
    with inside(world.end(server).netns_fd):
        far = socket.socket(type=socket.SOCK_DGRAM)
    with inside(world.end(client).netns_fd):
        near = socket.socket(type=socket.SOCK_DGRAM)
    with near, far:
        far.bind((world.end(server).ip, 0))
        far.settimeout(2)
        intact = []
        for number in range(DATAGRAMS):
            data = random.Random(number).randbytes(length)
            near.sendto(data, far.getsockname())
            intact.append(far.recv(1 << 16) == data)
        return intact


def modules(app: StockApp) -> str:
    return app.modules.removeprefix("ryu.app.")


@pytest.mark.beside
@pytest.mark.parametrize("app", OTHERS, ids=modules)
def test_tcp_and_udp_pass_a_stock_app_at_the_first_try(app: StockApp) -> None:
    with driven(app, "bpf") as world:
        check_first_try(world)


def check_first_try(world: World) -> None:
    with connected(world, 0, 1) as (near, far, _):
        assert sent_again(near) == 0
        data = random.Random(1).randbytes(1 << 20)
        assert arrives(near, far, data) == data
    assert datagrams(world, 0, 3, 100) == datagrams(world, 2, 1, 20_000) == [True] * DATAGRAMS


@pytest.mark.timed
@pytest.mark.parametrize("datapath", DATAPATHS)
def test_a_stock_app_connects_at_once_and_its_flows_carry_the_line_rate(datapath: Forwarding) -> None:
    with driven(SWITCH, datapath) as world:
        with connected(world, 3, 2) as (_, _, took):
            pass
        check_first_try(world)
        carried = measure_iperf([IperfLane(world.end(0), world.end(1))], 2.0).mbps
    share = carried / (RATE_MBPS * goodput_share(world.mtu))
    print(f"{datapath}: connected in {took * 1e3:.1f} ms, {carried:.1f} Mb/s, {share:.1%} of the line rate")
    assert took <= CONNECT_S and share >= LEAST_SHARE


FLOWS = re.compile(r"^0000000000010000 +([0-9a-f]+) ([0-9a-f:]{17}) +[0-9a-f]+ +(\d+) +(\d+)$", re.M)
PORTS = re.compile(r"^0000000000010000 +([0-9a-f]{1,7}) +(\d+) +(\d+) +\d+ +(\d+) +(\d+) +\d+$", re.M)
Counts = dict[Any, tuple[int, ...]]


def printed(net: Emulation, pattern: re.Pattern[str], keys: int) -> Counts:
    """The last counts that ``simple_monitor_13`` has printed of each flow (port, address) or port."""
    text = (net.run.path / "ryu.log").read_text(errors="replace")
    return {found[:keys]: tuple(map(int, found[keys:])) for found in pattern.findall(text)}


def of_interfaces(net: Emulation) -> Counts:
    """Packets and bytes received and sent by the switch's end of each link, by port."""
    lines = (line.replace(":", " ").split() for line in net["rail0"].cmd("cat /proc/net/dev").splitlines())
    ends = {words[0]: words for words in lines if words and words[0].startswith("rail0-eth")}
    return {
        (f"{number:x}",): tuple(int(ends[f"rail0-eth{number}"][i]) for i in (2, 1, 10, 9)) for number in range(1, 5)
    }


@pytest.mark.beside
def test_the_counters_that_simple_monitor_prints_equal_the_traffic_to_the_byte() -> None:
    with driven(StockApp("ryu.app.simple_monitor_13"), "bpf") as world:
        net, length = world.net, 100 + 14 + 20 + 8
        assert datagrams(world, 1, 0, 100) == [True] * DATAGRAMS  # flooded, since the app does not know host 0 yet
        assert datagrams(world, 0, 1, 100) == [True] * DATAGRAMS  # all but the first by the flow that it installs
        flow = ("1", str(net["g1"].intfList()[0].mac))
        expected = (DATAGRAMS - 1, (DATAGRAMS - 1) * length), of_interfaces(net)
        end = time.monotonic() + FORWARDS_S
        while True:
            found = printed(net, FLOWS, 2).get(flow), printed(net, PORTS, 1)
            if found == expected or time.monotonic() > end:
                break
            time.sleep(0.1)
        assert found == expected
        assert "OFPST_FLOW" in net["rail0"].cmd("ovs-ofctl --timeout=1 snoop rail0"), "ovs-ofctl can listen to the app"


@pytest.mark.beside
def test_topology_discovery_finds_the_switches_ports_and_links_of_a_rack() -> None:
    with (
        Emulation(RackTopo(fabric="electrical-torus", torus="2x2")) as net,
        in_charge(net, "ryu.app.rest_topology --observe-links", HURRY),
    ):
        dpids = {switch.name: f"{int(switch.dpid, 16):016x}" for switch in net.switches}
        ends = [
            (
                (dpids[a.node.name], f"{a.node.ports[a]:08x}", a.name),
                (dpids[b.node.name], f"{b.node.ports[b]:08x}", b.name),
            )
            for link in net.links
            for a, b in ((link.intf1, link.intf2), (link.intf2, link.intf1))
            if a.node.name in dpids and b.node.name in dpids
        ]
        ports = sorted((dpids[s.name], f"{s.ports[i]:08x}", i.name) for s in net.switches for i in s.intfList())

        def port(found: dict[str, Any]) -> tuple[str, ...]:
            return found["dpid"], found["port_no"], found["name"]

        end = time.monotonic() + FORWARDS_S
        while True:
            switches, links = (asked(net, f"/v1.0/topology/{what}") for what in ("switches", "links"))
            seen = [port(p) for switch in switches for p in switch["ports"]]
            found = sorted((port(link["src"]), port(link["dst"])) for link in links)
            if (sorted(seen), found) == (ports, sorted(ends)) or time.monotonic() > end:
                break
            time.sleep(0.1)
        assert (sorted(seen), found) == (ports, sorted(ends))


@pytest.mark.beside
@pytest.mark.parametrize(
    ("datapath", "packet_ins", "offload"), [("bpf", True, "on"), ("ovs", True, "off"), ("ovs", False, "on")]
)
def test_hosts_compute_checksums_only_where_open_vswitch_reads_their_packets(
    datapath: Forwarding, packet_ins: bool, offload: str
) -> None:
    with Emulation(_rail(), datapath=datapath, packet_ins=packet_ins) as net:
        if net.forwarding["open_vswitch"] == "kernel":  # which finishes the checksum of a packet-in itself
            offload = "on"
        assert f"tx-checksumming: {offload}" in net["g0"].cmd("ethtool", "-k", "g0-r0")
