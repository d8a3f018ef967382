from __future__ import annotations

import fcntl
import io
import json
import os
import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

import pytest

from railyard.errors import MachineError
from topos.kernel import namespaces, tuning
from topos.kernel.fastpath.mirred_forwarder import MirredForwarder, unsupported_reason
from topos.kernel.fastpath.rules import DROP, OUT, TO_OVS, Counts, KernelPort, PortRules, Rule
from topos.kernel.netlink import Netlink, VethEnd, link_down, link_up, veth
from topos.kernel.queues import no_filters

pytestmark = [pytest.mark.root, pytest.mark.beside]

TYPE = 0x88B5
PATIENCE_S, QUIET_S = 2.0, 0.05
PORTS = 4
FRAME = 74


def mac(host: int) -> bytes:
    return bytes([2, 0, 0, 0, 0, host])


def frame(to: int, number: int = 0) -> bytes:
    return mac(to) + mac(99) + struct.pack("!HI", TYPE, number) + bytes(FRAME - 18)


class Yard:
    """Hosts 1 to ``count`` with a raw socket each, the switch's ends of their links, taps in place of Open vSwitch."""

    def __init__(self, stack: ExitStack, count: int = PORTS) -> None:
        self.fd, self.hosts_fd = namespaces.make(2)
        for fd in (self.fd, self.hosts_fd):
            stack.callback(os.close, fd)
            with namespaces.inside(fd):
                namespaces.write_sysctls(tuning.YARD_SYSCTLS)
        self.numbers = range(1, count + 1)
        self.kernel = stack.enter_context(Netlink(self.fd))
        self.hosts_kernel = stack.enter_context(Netlink(self.hosts_fd))
        self.kernel.run(
            veth(VethEnd(f"v{n}", 1000 + n), VethEnd(f"h{n}", 10 + n, None, self.hosts_fd), 9000) for n in self.numbers
        )
        self.hosts_kernel.run(link_up(10 + n, f"h{n}") for n in self.numbers)
        self.taps = {n: stack.enter_context(self._tap(n)) for n in self.numbers}
        self.wires = {n: stack.enter_context(self._wire(n)) for n in self.numbers}
        with namespaces.inside(self.fd):
            index = {name: index for index, name in socket.if_nameindex()}
        self.kernel.run(link_up(index[f"tap{n}"], f"tap{n}") for n in self.numbers)
        self.ports = [KernelPort("s", n, 1000 + n, index[f"tap{n}"]) for n in self.numbers]
        self.forwarder = MirredForwarder(self.fd)
        stack.callback(self.forwarder.close)
        self.forwarder.add(self.ports)

    def _tap(self, number: int) -> io.FileIO:
        with namespaces.inside(self.fd):
            tap = io.FileIO(os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK), "r+")
            fcntl.ioctl(tap, 0x400454CA, struct.pack("=16sH22x", f"tap{number}".encode(), 0x1002))
        return tap

    def _wire(self, number: int) -> socket.socket:
        with namespaces.inside(self.hosts_fd):
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(TYPE))
            sock.bind((f"h{number}", TYPE))
        sock.setblocking(False)
        return sock

    def reaches(self, sender: int, to: int) -> set[str]:
        """Where a frame of host ``sender`` to the address of host ``to`` comes out: ``host 2``, ``tap 1``."""
        self.wires[sender].send(frame(to))
        return self.arrivals(sender)

    def arrivals(self, sender: int = 0) -> set[str]:
        """Where a frame comes out, other than at host ``sender``, which sees what it sends."""
        ends: dict[io.FileIO | socket.socket, str] = {self.taps[n]: f"tap {n}" for n in self.numbers}
        ends |= {self.wires[n]: f"host {n}" for n in self.numbers if n != sender}
        select.select(list(ends), [], [], 0.3)
        time.sleep(QUIET_S)
        found = {ends[end] for end in select.select(list(ends), [], [], 0)[0]}
        for wire in self.wires.values():
            while select.select([wire], [], [], 0)[0]:
                wire.recv(2048)
        for tap in self.taps.values():
            while tap.read(2048):
                pass
        return found

    def received(self, number: int) -> int:
        """Packets that host ``number`` has received."""
        with namespaces.inside(self.hosts_fd):
            shown = subprocess.run(["ip", "-j", "-s", "link", "show", f"h{number}"], capture_output=True, check=True)
        return int(json.loads(shown.stdout)[0]["stats64"]["rx"]["packets"])


@pytest.fixture
def yard() -> Iterator[Yard]:
    with ExitStack() as stack:
        yield Yard(stack)


def test_this_kernel_can_do_it() -> None:
    assert unsupported_reason() is None


def test_without_rules_every_packet_goes_up_and_what_comes_down_goes_out(yard: Yard) -> None:
    assert yard.reaches(1, to=2) == {"tap 1"}
    yard.taps[3].write(frame(to=1))
    assert yard.arrivals() == {"host 3"}
    assert yard.forwarder.port_counts("s")[1].received == Counts()


def test_forward_drop_and_up_again(yard: Yard) -> None:
    yard.forwarder.set("s", {1: PortRules(Rule(OUT, 2)), 2: PortRules(Rule(DROP))})
    assert yard.reaches(1, to=3) == {"host 2"}
    assert yard.reaches(2, to=1) == set()
    assert yard.reaches(3, to=1) == {"tap 3"}, "ports that are not named stay"
    yard.forwarder.set("s", {1: PortRules(), 2: PortRules(Rule(OUT, 1))})
    assert yard.reaches(1, to=3) == {"tap 1"}
    assert yard.reaches(2, to=3) == {"host 1"}


def test_destinations_go_before_the_rest(yard: Yard) -> None:
    to = {mac(3): Rule(OUT, 3), mac(4): Rule(DROP), bytes.fromhex("ffffffffffff"): TO_OVS}
    yard.forwarder.set("s", {1: PortRules(Rule(OUT, 2), to)})
    assert yard.reaches(1, to=3) == {"host 3"}
    assert yard.reaches(1, to=4) == set()
    assert yard.reaches(1, to=2) == {"host 2"}
    yard.wires[1].send(b"\xff" * 6 + frame(0)[6:])
    assert yard.arrivals(1) == {"tap 1"}
    yard.forwarder.set("s", {1: PortRules(Rule(DROP), {mac(4): Rule(OUT, 4), mac(2): Rule(OUT, 2)})})
    assert yard.reaches(1, to=4) == {"host 4"}
    assert yard.reaches(1, to=2) == {"host 2"}
    assert yard.reaches(1, to=3) == set()


def test_ports_share_a_table_and_none_sends_back_what_it_received(yard: Yard) -> None:
    to = {mac(n): Rule(OUT, n) for n in yard.numbers}
    yard.forwarder.set("s", {n: PortRules(Rule(DROP), to) for n in yard.numbers})
    for sender in yard.numbers:
        for target in yard.numbers:
            assert yard.reaches(sender, target) == ({f"host {target}"} if target != sender else set())
    counts = yard.forwarder.port_counts("s")
    assert all(counts[n].received == Counts(PORTS, PORTS * FRAME) for n in yard.numbers)
    assert all(counts[n].sent == Counts(PORTS - 1, (PORTS - 1) * FRAME) for n in yard.numbers)
    assert yard.received(1) == PORTS - 1


def test_a_port_that_the_switch_lacks_gets_nothing(yard: Yard) -> None:
    yard.forwarder.set("s", {1: PortRules(Rule(OUT, 77))})
    assert yard.reaches(1, to=2) == set()


def test_counts_of_flows_and_ports_survive_changes(yard: Yard) -> None:
    forwarder = yard.forwarder
    first, second, dark = (forwarder.new_flow() for _ in range(3))
    assert len({first, second, dark, 0}) == 4

    def send(count: int, to: int) -> None:
        for _ in range(count):
            yard.wires[1].send(frame(to))
        yard.arrivals(1)

    forwarder.set("s", {1: PortRules(Rule(DROP, 0, dark), {mac(2): Rule(OUT, 2, first), mac(3): Rule(OUT, 3, first)})})
    send(5, 2)
    send(3, 3)
    send(2, 4)
    assert forwarder.flow_counts(first) == Counts(8, 8 * FRAME)
    assert forwarder.flow_counts(dark) == Counts(2, 2 * FRAME)
    forwarder.set("s", {1: PortRules(Rule(OUT, 4, second), {mac(2): Rule(OUT, 3, second)})})
    assert forwarder.flow_counts(first) == Counts(8, 8 * FRAME)
    send(1, 2)
    send(1, 3)
    assert forwarder.flow_counts(second) == Counts(2, 2 * FRAME)
    forwarder.set("s", {1: PortRules()})
    send(1, 2)
    counts = forwarder.port_counts("s")
    assert counts[1].received.packets == 12 and counts[1].dark == Counts(2, 2 * FRAME)
    assert [counts[n].sent.packets for n in (2, 3, 4)] == [5, 4, 1]
    forwarder.free_flow(first)
    again = forwarder.new_flow()
    assert forwarder.flow_counts(again) == Counts() and forwarder.flow_counts(0) == Counts()


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


def test_rules_change_under_load_without_a_gap(yard: Yard) -> None:
    """Each frame comes out once, where its old or its new rule sends it; none goes up, and none is lost."""
    forwarder, frames = yard.forwarder, 30_000
    flows = [forwarder.new_flow() for _ in range(2)]
    ways = [
        PortRules(Rule(OUT, 2, flows[0])),
        PortRules(Rule(OUT, 2, flows[0]), {mac(4): Rule(OUT, 3, flows[1])}),
        PortRules(Rule(OUT, 3, flows[1])),
        PortRules(Rule(OUT, 3, flows[1]), {mac(4): Rule(OUT, 2, flows[0]), mac(1): Rule(DROP)}),
    ]
    forwarder.set("s", {1: ways[0]})
    sender = yard.wires[1]
    sender.setblocking(True)

    def send() -> None:
        for number in range(frames):
            sender.send(frame(4, number))

    before = {n: yard.received(n) for n in yard.numbers}
    thread = threading.Thread(target=send)
    thread.start()
    changes = 0
    while thread.is_alive():
        changes += 1
        forwarder.set("s", {1: ways[changes % len(ways)]})
    thread.join()
    time.sleep(QUIET_S)
    arrived = {n: yard.received(n) - before[n] for n in yard.numbers}
    counts = forwarder.port_counts("s")
    assert changes > 20
    assert arrived[2] and arrived[3] and arrived[2] + arrived[3] == frames
    assert not select.select(list(yard.taps.values()), [], [], 0)[0], "a frame went up"
    assert 0.9 * frames <= counts[1].received.packets <= frames, "lost are packets of filters that are being removed"
    assert counts[2].sent.packets + counts[3].sent.packets == counts[1].received.packets
    assert sum(forwarder.flow_counts(flow).packets for flow in flows) == counts[1].received.packets
    assert abs(counts[2].sent.packets - arrived[2]) <= frames // 20, "more than between changes and their reports"


def test_a_link_that_is_down_gets_nothing_and_works_again_afterwards(yard: Yard) -> None:
    yard.forwarder.set("s", {1: PortRules(Rule(OUT, 2))})
    yard.kernel.run([link_down(1002, "v2")])
    yard.wires[1].send(frame(2))
    yard.kernel.run([link_up(1002, "v2")])
    with pytest.raises(BlockingIOError):
        yard.wires[2].recv(2048)
    assert yard.reaches(1, to=2) == {"host 2"}


def test_nothing_is_half_attached_if_an_interface_is_missing(yard: Yard) -> None:
    yard.kernel.run(no_filters(index, "an end") for port in yard.ports for index in (port.link, port.tap))
    again = MirredForwarder(yard.fd)
    with pytest.raises(MachineError, match="interface 4000"):
        again.add([*yard.ports, KernelPort("s", 5, 4000, 4001)])
    again.close()
    with namespaces.inside(yard.fd):
        shown = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True, check=True)
    assert "v1" in shown.stdout and "clsact" not in shown.stdout


def test_descriptors_are_given_back() -> None:
    open_before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as stack:
        Yard(stack)
    assert unsupported_reason() is None
    assert len(os.listdir("/proc/self/fd")) == open_before


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


@pytest.mark.timed
def test_64_ports_change_in_less_than_a_millisecond() -> None:
    with ExitStack() as stack:
        yard = Yard(stack, 64)
        taken = []
        for shift in range(1, 41):
            rules = {n: PortRules(Rule(OUT, (n - 1 + shift) % 64 + 1)) for n in yard.numbers}
            start = time.perf_counter()
            yard.forwarder.set("s", rules)
            taken.append(time.perf_counter() - start)
    assert median(taken) < 1e-3
