from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from fast_path.yard import Yard, frame, mac

from railyard.errors import MachineError
from topos.kernel import namespaces
from topos.kernel.fastpath.mirred_forwarder import MirredForwarder, unsupported_reason
from topos.kernel.fastpath.redirects import redirect
from topos.kernel.fastpath.rules import DROP, OUT, Counts, KernelPort, PortRules, Rule
from topos.kernel.queues import no_filters

pytestmark = [pytest.mark.root, pytest.mark.beside]


@pytest.fixture
def yard() -> Iterator[Yard]:
    with ExitStack() as stack:
        yield Yard(stack, lambda fd, _: MirredForwarder(fd))


def test_this_kernel_can_do_it() -> None:
    assert unsupported_reason() is None


def test_a_port_that_the_switch_lacks_gets_nothing(yard: Yard) -> None:
    yard.forwarder.set("s", {1: PortRules(Rule(OUT, 77))})
    assert yard.reaches(1, to=2) == set()


def test_a_segment_left_whole_counts_as_its_frames(yard: Yard) -> None:
    flow = yard.forwarder.new_flow()
    yard.forwarder.set("s", {1: PortRules(Rule(OUT, 2, flow))})
    with namespaces.inside(yard.hosts_fd), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for command in (
            "addr add 10.1.1.1/24 dev h1",
            "neigh add 10.1.1.2 lladdr 02:00:00:00:00:02 dev h1",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        sock.setsockopt(socket.IPPROTO_UDP, 103, 1000)  # UDP_SEGMENT of linux/udp.h
        sock.sendto(bytes(10_000), ("10.1.1.2", 9))
    assert yard.forwarder.flow_counts(flow) == Counts(10, 10_000 + 20 + 8 + 10 * 14)


def test_thousands_of_rules_change_at_once(yard: Yard) -> None:
    """The kernel answers each change with counters, for which the socket must have room."""

    def tables(port: int) -> dict[int, PortRules]:
        to = {struct.pack("!HI", 0x0200, n): Rule(OUT, port) for n in range(1500)}
        return {n: PortRules(Rule(OUT, port), to) for n in yard.numbers}

    for port in (2, 3, 2):
        yard.forwarder.set("s", tables(port))
        assert yard.reaches(1, to=4) == {f"host {port}"}
    assert yard.forwarder.port_counts("s")[1].received.packets == 3
    yard.forwarder.set("s", {n: PortRules() for n in yard.numbers})
    assert yard.reaches(1, to=4) == {"tap 1"}


def test_a_change_that_the_kernel_refuses_leaves_its_ports_to_open_vswitch(yard: Yard) -> None:
    yard.forwarder.set("s", {1: PortRules(Rule(OUT, 2)), 2: PortRules(Rule(OUT, 1))})
    yard.kernel.run([redirect(yard.ports[0].link, 1, mac(3), 0, yard.ports[2].link)])  # a filter that is in the way
    with pytest.raises(MachineError, match="redirecting the packets of interface 1001 failed"):
        yard.forwarder.set("s", {1: PortRules(Rule(OUT, 2), {mac(4): Rule(OUT, 4), mac(3): Rule(OUT, 4)})})
    assert yard.reaches(1, to=3) == yard.reaches(1, to=4) == yard.reaches(1, to=2) == {"tap 1"}
    assert yard.reaches(2, to=1) == {"host 1"}, "ports that are not named stay"
    yard.forwarder.set("s", {1: PortRules(Rule(DROP), {mac(4): Rule(OUT, 4)})})
    assert yard.reaches(1, to=4) == {"host 4"} and yard.reaches(1, to=3) == set()
    assert yard.forwarder.port_counts("s")[1].received.packets == 2


def test_nothing_is_half_attached_if_an_interface_is_missing(yard: Yard) -> None:
    yard.kernel.run(no_filters(index, "an end") for port in yard.ports for index in (port.link, port.tap))
    again = MirredForwarder(yard.fd)
    with pytest.raises(MachineError, match="interface 4000"):
        again.add([*yard.ports, KernelPort("s", 5, 4000, 4001)])
    again.close()
    with namespaces.inside(yard.fd):
        shown = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True, check=True)
    assert "v1" in shown.stdout and "clsact" not in shown.stdout


def test_more_rules_than_a_port_holds_are_refused_before_anything_changes(yard: Yard) -> None:
    many = {struct.pack("!HI", 0x0200, n): Rule(DROP) for n in range(4095)}
    with pytest.raises(MachineError, match="port 2 of s would have 4095 rules by destination"):
        yard.forwarder.set("s", {1: PortRules(Rule(OUT, 2)), 2: PortRules(Rule(DROP), many)})
    assert yard.reaches(1, to=2) == {"tap 1"}


def test_most_rules_that_a_port_holds(yard: Yard) -> None:
    many = {struct.pack("!HI", 0x0200, n): Rule(OUT, 2) for n in range(4094)}
    yard.forwarder.set("s", {1: PortRules(Rule(DROP), many)})
    yard.wires[1].send(struct.pack("!HI", 0x0200, 4093) + frame(0)[6:])
    assert yard.arrivals(1) == {"host 2"}
    assert yard.reaches(1, to=2) == {"host 2"}, "its address is one of the many"
    yard.wires[1].send(struct.pack("!HI", 0x0200, 4094) + frame(0)[6:])
    assert yard.arrivals(1) == set()
