"""Links that change while packets cross them: rates, delays, losses, failures, congestion control. On a real kernel."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from host_traffic import drain, pings, pings_soon, pouring
from mininet.topo import Topo

from experiments.fabric_acts import change_links
from experiments.timetable import TimedAct, Timetable, check, parse
from railyard.errors import ConfigError
from railyard.priority import real_time
from topos.kernel.emulation import Emulation
from topos.kernel.links import changing
from topos.kernel.namespaces import HostEnd, connect, inside
from topos.rails import RailTopo

pytestmark = pytest.mark.root
_RECEIVE_BYTES = 64 << 20
_SO_RCVBUFFORCE = 33
_TOTAL_RETRANS = 100  # tcpi_total_retrans in struct tcp_info


class Chain(Topo):  # type: ignore[misc]
    """h0 - s0 - s1 - h1, each link of 100 Mb/s."""

    def build(self) -> None:
        for number in range(2):
            self.addHost(f"h{number}", ip=f"10.0.0.{number + 1}/24")
            self.addSwitch(f"s{number}", dpid=f"{number + 1:016x}")
        for ends in (("h0", "s0"), ("s0", "s1"), ("s1", "h1")):
            self.addLink(*ends, bw=100)


@pytest.fixture(scope="module")
def chain() -> Iterator[Emulation]:
    with Emulation(Chain(), openflow=None) as net:
        yield net


@contextmanager
def datagrams(net: Emulation, source: str, target: str, address: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A socket that sends from one host, and one at the ``address`` of another that receives."""
    with inside(net.netns_fd(target)):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inside(net.netns_fd(source)):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender, receiver:
        receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
        receiver.bind((address, 7430))
        receiver.settimeout(5)
        sender.connect((address, 7430))
        yield sender, receiver


@pytest.mark.beside
@pytest.mark.parametrize("link", ["h0-s0", "s0-s1", "s1-h1"])
def test_no_datagram_is_lost_or_overtaken_while_a_rate_changes_twenty_times(chain: Emulation, link: str) -> None:
    """Fewer bytes than a queue holds, so that a loss can come from nothing but a change."""
    count = 6000
    got: list[int] = []
    with datagrams(chain, "h0", "h1", "10.0.0.2") as (sender, receiver):

        def send() -> None:
            for number in range(count):
                sender.send(struct.pack("=I", number) + bytes(1396))

        sending = threading.Thread(target=send)
        sending.start()
        for change in range(20):
            time.sleep(0.03)
            chain.set_link(link, rate_mbps=(10, 100, 50, 2)[change % 4])
        assert sending.is_alive() or link != "h0-s0", "the sender waited for the rate that changed"
        chain.set_link(link, rate_mbps=100)
        while len(got) < count:
            got.append(struct.unpack("=I", receiver.recv(2000)[:4])[0])
        sending.join(10)
    assert sorted(got) == list(range(count))


@pytest.mark.timed
def test_a_stream_follows_the_rate_of_its_link_and_sends_nothing_again(chain: Emulation) -> None:
    end, far = HostEnd(chain.netns_fd("h0"), "h0-eth0", ""), HostEnd(chain.netns_fd("h1"), "h1-eth0", "10.0.0.2")
    for link, rate in (("h0-s0", 20), ("s0-s1", 80), ("s1-h1", 20)):
        sender, receiver = connect(end, far)
        with sender, receiver, pouring(sender):
            drain([receiver], 0.5)
            for change in range(20):
                chain.set_link(link, rate_mbps=(50, 100)[change % 2])
                drain([receiver], 0.05)
            chain.set_link(link, rate_mbps=rate)
            drain([receiver], 1.0)
            (goodput,) = drain([receiver], 1.0)
            assert 0.9 * rate <= goodput <= 1.02 * rate, f"{goodput:.1f} of {rate} Mb/s over {link}"
            information = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TOTAL_RETRANS + 4)
            assert struct.unpack_from("=I", information, _TOTAL_RETRANS) == (0,), link
        chain.set_link(link, rate_mbps=100)


@pytest.mark.timed(late_ms=2)
def test_a_trace_of_a_hundred_changes_a_second_loses_no_datagram_and_carries_its_mean(tmp_path: Path) -> None:
    rates = [(10, 40, 25)[number % 3] for number in range(200)]
    lines = "".join(f"{number / 100},{rate}\n" for number, rate in enumerate(rates))
    (tmp_path / "trace.csv").write_text(f"time_s,rate_mbps\n{lines}")
    topo = changing(RailTopo(servers=2, gpus=1, ports=1, fabric="electrical", rate_mbps=40, mtu=1500))
    got: list[tuple[float, int]] = []
    late_s: list[float] = []
    over = threading.Event()

    def send(sender: socket.socket) -> None:
        number = 0
        while not over.is_set():
            sender.send(struct.pack("=I", number) + bytes(1468))
            number += 1
        sender.send(struct.pack("=I", number))

    def receive(receiver: socket.socket) -> None:
        length = 2000
        while length > 4:
            data = receiver.recv(2000)
            length = len(data)
            got.append((time.monotonic(), *struct.unpack("=I", data[:4])))

    with Emulation(topo, openflow=None) as net:
        acts = parse(f"0s replay g0-r0 {tmp_path / 'trace.csv'}")
        check(acts, net.plan)
        with datagrams(net, "g0", "g1", net.plan.rail_of(0).port(1, 0).ip) as (sender, receiver):
            threads = [threading.Thread(target=send, args=[sender]), threading.Thread(target=receive, args=[receiver])]
            for thread in threads:
                thread.start()
            begin = time.monotonic() + 0.3

            def act(one: TimedAct, at: float) -> None:
                late_s.append(time.monotonic() - at)
                change_links(net, one)

            table = Timetable(acts, lambda one: begin + (one.at_s or 0.0), act)
            with real_time():
                while table.left:
                    time.sleep(max(0.0, table.next_time() - time.monotonic()))
                    table.run_due(time.monotonic())
            over.set()
            for thread in threads:
                thread.join(10)
    assert [number for _, number in got] == list(range(len(got))), "none is lost, none overtaken"
    within = sum(begin <= at < begin + 2 for at, _ in got)
    assert within * 1514 * 8 / 2e6 == pytest.approx(sum(rates) / len(rates), rel=0.08), "Mb/s"
    assert sorted(late_s)[-2] < 0.002, f"the latest change was {max(late_s) * 1e3:.1f} ms late"


def round_trip_ms(net: Emulation, ip: str) -> float:
    output = net["g0"].cmd(f"ping -c5 -i0.05 -q {ip}")
    return float(output.split("rtt min/avg/max/mdev = ")[1].split("/")[0])


@pytest.mark.beside
def test_delay_and_loss_of_a_link_that_has_a_middle_change_both_ways() -> None:
    with Emulation(RailTopo(servers=2, gpus=1, ports=1, fabric="electrical", delay_ms=1), openflow=None) as net:
        peer = net.plan.rail_of(0).port(1, 0).ip
        assert 4 <= round_trip_ms(net, peer) < 15
        net.set_link("g0", "rail0", delay_ms=20)
        assert 42 <= round_trip_ms(net, peer) < 60
        net.set_link("g0-r0", delay_ms=0)
        assert 2 <= round_trip_ms(net, peer) < 15
        net.set_link("rail0:1", loss_percent=100)
        assert not pings(net, "g0", "-W0.2", peer)
        net.set_link("g0-r0", loss_percent=0, rate_mbps=40)
        assert pings(net, "g0", peer)
        net.delays.check()


@pytest.mark.beside
def test_what_fails_is_down_at_both_ends_and_comes_back_as_it_was() -> None:
    with Emulation(RailTopo(servers=3, gpus=1, ports=2, fabric="electrical"), openflow=None) as net:
        rail = net.plan.rail_of(0)
        peers = [rail.port(1, lane).ip for lane in (0, 1)]

        def reached() -> list[bool]:
            return [pings(net, "g0", "-W0.3", "-I", f"g0-r{lane}", peer) for lane, peer in enumerate(peers)]

        def comes_back() -> bool:
            return all(pings_soon(net, "g0", "-I", f"g0-r{lane}", peer) for lane, peer in enumerate(peers))

        before = net["g0"].cmd("ip route show table all; ip neigh; tc qdisc")
        assert comes_back()
        for name, left in (
            ("rail0:1", [False, True]),
            ("g0-r1", [True, False]),
            ("rail0-g0", [False, False]),
            ("g0", [False, False]),
            ("g1", [False, False]),
            ("rail0", [False, False]),
        ):
            net.fail(name)
            assert reached() == left, name
            with pytest.raises(ConfigError, match=f"{name} has failed already, as {name}; restore it first"):
                net.fail(name)
            net.restore(name)
            assert comes_back(), name
        with pytest.raises(ConfigError, match="rail0 has not failed; restore what has: nothing has"):
            net.restore("rail0")
        assert net["g0"].cmd("ip route show table all; ip neigh; tc qdisc") == before


@pytest.mark.beside
def test_a_port_that_failed_by_itself_stays_down_when_its_host_is_restored() -> None:
    with Emulation(RailTopo(servers=2, gpus=1, ports=1, fabric="electrical", delay_ms=1), openflow=None) as net:
        peer = net.plan.rail_of(0).port(1, 0).ip
        net.fail("g0")
        net.fail("rail0:1")
        net.set_link("g0-r0", rate_mbps=30)
        net.restore("g0")
        assert not pings(net, "g0", "-W0.3", peer)
        net.restore("g0-rail0")
        assert pings_soon(net, "g0", peer)


@pytest.mark.beside
def test_new_connections_of_a_host_use_the_transport_that_was_chosen_for_it() -> None:
    with Emulation(RailTopo(servers=2, gpus=1, fabric="electrical"), openflow=None, transport="reno") as net:
        rail = net.plan.rail_of(0)
        places = [
            [HostEnd(net.netns_fd(f"g{n}"), f"g{n}-r{lane}", rail.port(n, lane).ip) for n in (0, 1)] for lane in (0, 1)
        ]

        def used() -> list[list[str]]:
            ends = [connect(here, there) for here, there in places]
            found = [[one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16) for one in pair] for pair in ends]
            for one in (one for pair in ends for one in pair):
                one.close()
            return [[name.rstrip(b"\0").decode() for name in pair] for pair in found]

        assert used() == [["reno", "reno"]] * 2
        net.set_transport("g1", "cubic")
        assert used() == [["reno", "cubic"]] * 2
        for name in ("warp", "../cubic", "cubic" + 20 * "x", "", "dctcp"):
            with pytest.raises(ConfigError, match=r"this kernel has no congestion control|dctcp needs ports that mark"):
                net.set_transport("g1", name)
        net.set_link("g1-r0", rate_mbps=5)
        net.fail("g1")
        net.set_transport("g0", "cubic")
        net.restore("g1")
        assert pings_soon(net, "g0", places[0][1].ip) and used() == [["cubic", "cubic"]] * 2
    with pytest.raises(ConfigError, match="dctcp needs ports that mark packets"):
        Emulation(RailTopo(servers=2, gpus=1), openflow=None, transport="dctcp")
