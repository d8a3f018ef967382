from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from host_traffic import drain, pings, pings_soon, pouring

from railyard.errors import ConfigError
from railyard.scale import goodput_share
from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import inside
from topos.racks import MorphluxTopo, RackTopo

pytestmark = pytest.mark.root
RATE = 50.0


def ofctl(net: Emulation, command: str, switch: str, *arguments: str) -> str:
    """``ovs-ofctl`` on a bridge of the run's private Open vSwitch."""
    done = subprocess.run(
        ["ovs-ofctl", "-O", "OpenFlow14", command, f"unix:{net.run.path}/{switch}.mgmt", *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=10,
    )
    return done.stdout


def join(net: Emulation, switch: str, a: int, b: int) -> None:
    """A circuit between two ports, both ways."""
    for here, there in ((a, b), (b, a)):
        ofctl(net, "add-flow", switch, f"in_port={here},actions=output:{there}")


def route_in_line(net: Emulation, folder: Path) -> None:
    """Flows by hand for a torus of one row: up for a higher chip, down for a lower one, never round the end."""
    count = len(net.plan.network("rail"))
    for here in range(count):
        flows = ""
        for there in range(count):
            out = 1 if there == here else 2 if there > here else 3
            flows += f"dl_dst={net.plan.rail_of(there).port(there, 0).mac},actions=output:{out}\n"
        file = folder / f"n{here}.flows"
        file.write_text(flows)
        ofctl(net, "add-flows", f"n{here}", str(file))


def address(net: Emulation, rank: int, lane: int = 0) -> str:
    return net.plan.rail_of(rank).port(rank, lane).ip


def stream(
    net: Emulation, stack: ExitStack, source: int, target: int, port: int
) -> tuple[socket.socket, socket.socket]:
    """A TCP connection over the scale-out network: sender and receiver."""
    here = (address(net, target), port)
    with inside(net.netns_fd(f"g{target}")):
        listener = stack.enter_context(socket.create_server(here))
    with inside(net.netns_fd(f"g{source}")):
        sender = stack.enter_context(socket.create_connection(here, timeout=5))
    return sender, stack.enter_context(listener.accept()[0])


def shares(net: Emulation, pairs: list[tuple[int, int]], seconds: float = 1.0) -> list[float]:
    """Goodput of streams that run at once, each as a share of what one link carries."""
    with ExitStack() as stack:
        ends = [stream(net, stack, *pair, 7500 + place) for place, pair in enumerate(pairs)]
        for sender, _ in ends:
            stack.enter_context(pouring(sender))
        receivers = [receiver for _, receiver in ends]
        drain(receivers, 0.5)
        return [mbps / RATE / goodput_share() for mbps in drain(receivers, seconds)]


@pytest.fixture
def row(tmp_path: Path) -> Iterator[Emulation]:
    """Six chips in a row, with routes by hand."""
    topo = RackTopo(torus="6x1", server="1", fabric="electrical-torus", reserve="1x1@5,0", port_mbps=RATE)
    with Emulation(topo, openflow=None) as net:
        route_in_line(net, tmp_path)
        yield net


@pytest.mark.beside
def test_photonic_rack_passes_only_between_ports_that_are_joined() -> None:
    with Emulation(RackTopo(torus="2x2", server="2x1"), openflow=None) as net:
        rack = net.plan.rail_of(0)
        assert net.plan.rack is not None and net.plan.rack.spares == (4, 5)
        assert not pings(net, "g0", "-I", "g0-r1", address(net, 1, 0))
        join(net, "rack0", rack.port(0, 1).number, rack.port(1, 0).number)
        join(net, "rack0", rack.port(1, 1).number, rack.port(4, 0).number)
        assert pings(net, "g0", "-I", "g0-r1", address(net, 1, 0))
        assert pings(net, "g4", "-I", "g4-r0", address(net, 1, 1)), "the spare stands outside the torus, not the switch"
        assert not pings(net, "g0", "-I", "g0-r0", address(net, 1, 0)), "the other port of the chip has no circuit"
        assert not pings(net, "g0", "-I", "g0-r1", address(net, 4, 0)), "a circuit leads to one port"
        assert pings(net, "g3", net.plan.network("front-end")[0].port(5, 0).ip)


@pytest.mark.timed
def test_torus_forwards_hop_by_hop_and_streams_share_a_link_that_both_cross(row: Emulation) -> None:
    assert not pings(row, "g0", "10.1.0.99")
    assert pings(row, "g0", address(row, 4))
    (alone,) = shares(row, [(0, 4)])
    assert 0.93 <= alone <= 1.02, f"{alone:.2f} of a link over four hops"
    first, second = shares(row, [(0, 2), (1, 3)])
    assert 0.93 <= first + second <= 1.02, f"{first:.2f} and {second:.2f} of the link that both cross"
    assert min(first, second) > 0.15, f"{first:.2f} and {second:.2f}: one stream got next to nothing"
    apart = shares(row, [(0, 1), (2, 3)])
    assert min(apart) > 0.9, f"{apart} of two links"
    both_ways = shares(row, [(0, 1), (1, 0)])
    assert min(both_ways) > 0.85, f"{both_ways} of a full-duplex link"


@pytest.mark.timed
def test_cut_takes_the_router_of_a_chip_too_and_mend_brings_all_back(row: Emulation) -> None:
    before = kernel_state(row, "g2")
    row.cut("g2")
    row.cut("g2")
    assert not pings(row, "g1", address(row, 3)), "a chip's router dies with it"
    assert not pings(row, "g2", address(row, 2 + 1)) and pings(row, "g0", address(row, 1))
    front_end = row.plan.network("front-end")[0]
    assert not pings(row, "g0", front_end.port(2, 0).ip) and pings(row, "g0", front_end.port(3, 0).ip)
    row.mend("g2")
    row.mend("g2")
    assert pings_soon(row, "g0", address(row, 2)) and pings_soon(row, "g2", address(row, 4))
    assert pings_soon(row, "g0", front_end.port(2, 0).ip)
    assert kernel_state(row, "g2") == before
    (through,) = shares(row, [(1, 3)])
    assert 0.93 <= through <= 1.02, f"{through:.2f} of a link: its shaping must be as before"


@pytest.mark.beside
def test_the_switches_of_neighbours_see_the_carrier_go(row: Emulation) -> None:
    row.cut("g2")
    expect_ports(row, "n1", {2: "LINK_DOWN", 3: "LIVE", 1: "LIVE"})
    expect_ports(row, "n3", {2: "LIVE", 3: "LINK_DOWN"})
    expect_ports(row, "fe", {3: "LINK_DOWN", 4: "LIVE"})
    row.cut("g1")
    row.mend("g2")
    expect_ports(row, "n3", {3: "LIVE"})
    expect_ports(row, "n2", {3: "LINK_DOWN", 2: "LIVE"})
    row.mend("g1")
    expect_ports(row, "n2", {3: "LIVE"})


@pytest.mark.beside
def test_only_a_host_of_a_running_net_can_be_cut() -> None:
    net = Emulation(MorphluxTopo(), openflow=None)
    with pytest.raises(ConfigError, match="not started"):
        net.cut("g0")
    with net:
        with pytest.raises(ConfigError, match="no namespace of g9"):
            net.cut("g9")
        with pytest.raises(ConfigError, match="no namespace of rack0"):
            net.mend("rack0")


def kernel_state(net: Emulation, host: str) -> dict[str, list[str]]:
    """What the kernel says of a host: addresses, routes, rules, neighbours, queues."""
    asked = (["-o", "addr"], ["route", "show", "table", "all"], ["rule"], ["neigh"])
    with inside(net.netns_fd(host)):
        said = {" ".join(words): _lines("ip", *words) for words in asked}
        return said | {"queues": _lines("tc", "qdisc")}


def _lines(*command: str) -> list[str]:
    return sorted(subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.splitlines())


def expect_ports(net: Emulation, switch: str, expected: dict[int, str], seconds: float = 2.0) -> None:
    """Wait until a switch tells these states of its ports over OpenFlow."""
    end = time.monotonic() + seconds
    while True:
        number, states = "", dict[int, str]()
        for line in ofctl(net, "dump-ports-desc", switch).splitlines():
            first, _, rest = line.strip().partition(" ")
            if "(" in first:  # as in 3(n1-eth3): addr:... or LOCAL(n1): ...
                number = first.partition("(")[0]
            elif first == "state:" and number.isdigit():
                states[int(number)] = rest.strip()
        if all(states.get(number) == state for number, state in expected.items()):
            return
        assert time.monotonic() < end, f"{switch} says {states} and not {expected}"
        time.sleep(0.01)
