from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from topos.kernel import namespaces, tuning
from topos.kernel.fastpath.carrier import Carrier
from topos.kernel.fastpath.rules import KernelPort
from topos.kernel.netlink import LO_INDEX, Netlink, NetlinkRequest, VethEnd, link_down, link_up, veth
from topos.kernel.ovs import Bridge, PrivateOvs

pytestmark = pytest.mark.root

PATIENCE_S = 5.0
HOST = 11
DELETE = struct.pack("=IHHII", 32, 17, 1, 0, 0) + struct.pack("=BxHiII", 0, 0, HOST, 0, 0)
"""The netlink message RTM_DELLINK for that interface."""


class World:
    """A private Open vSwitch with internal ports o1 to o3, each behind the link of a host."""

    def __init__(self, stack: ExitStack, run_dir: Path) -> None:
        self.fd, *self.host_fds = namespaces.make(4)
        for fd in (self.fd, *self.host_fds):
            stack.callback(os.close, fd)
            with namespaces.inside(fd):
                namespaces.write_sysctls(tuning.YARD_SYSCTLS)
        self.ovs = PrivateOvs(run_dir, self.fd)
        stack.callback(self.ovs.stop)
        self.ovs.start()
        self.ovs.add([Bridge("s1", 1, ())])
        self.kernel = stack.enter_context(Netlink(self.fd))
        self.kernel.run([link_up(LO_INDEX, "lo")])
        self.taps: dict[int, int] = {}
        self.hosts: dict[int, Netlink] = {}
        for n, host_fd in enumerate(self.host_fds, 1):
            self.shell(
                *("ovs-vsctl", f"--db=unix:{run_dir}/db.sock", "add-port", "s1", f"o{n}"),
                *("--", "set", "interface", f"o{n}", "type=internal", f"ofport_request={n}"),
            )
            with namespaces.inside(self.fd):
                self.taps[n] = socket.if_nametoindex(f"o{n}")
            self.kernel.run([veth(VethEnd(f"v{n}", 1000 + n), VethEnd("eth0", HOST, None, host_fd), 1500)])
            self.kernel.run([link_up(self.taps[n], "a tap")])
            self.hosts[n] = stack.enter_context(Netlink(host_fd))
            self.hosts[n].run([link_up(HOST, "eth0")])

    def carrier(self) -> Carrier:
        return Carrier(self.fd, [KernelPort("s1", n, 1000 + n, tap) for n, tap in self.taps.items()])

    def shell(self, *command: str) -> str:
        with namespaces.inside(self.fd):
            environment = os.environ | self.ovs.environment
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    def port(self, number: int) -> str:
        """What ``ovs-ofctl show`` says of a port."""
        shown = self.shell("ovs-ofctl", "-O", "OpenFlow14", "show", f"unix:{self.ovs.run_dir}/s1.mgmt")
        return shown[shown.index(f" {number}(o{number})") :].split("speed:")[0]

    def down(self, number: int) -> bool:
        return "LINK_DOWN" in self.port(number)


def after(condition: Callable[[], bool]) -> float:
    """Seconds until the condition holds; fails after ``PATIENCE_S``."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() < start + PATIENCE_S, "it did not happen"
        time.sleep(0.001)
    return time.monotonic() - start


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        one = World(stack, tmp_path_factory.mktemp("run"))
        carrier = one.carrier()
        stack.callback(carrier.close)
        ended, end = os.pipe()

        def follow() -> None:
            either: list[Carrier | int] = [carrier, ended]
            while ended not in select.select(either, [], [])[0]:
                carrier.run()

        thread = threading.Thread(target=follow)
        thread.start()
        yield one
        os.close(end)
        thread.join()
        os.close(ended)


@pytest.mark.beside
def test_run_returns_at_once_when_nothing_has_changed(world: World) -> None:
    carrier = world.carrier()
    carrier.run()
    carrier.run()
    assert not select.select([carrier], [], [], 0)[0]
    carrier.close()


@pytest.mark.timed
def test_open_vswitch_sees_changes_within_50_ms(world: World) -> None:
    taken = []
    for _ in range(5):
        world.hosts[1].run([link_down(HOST, "eth0")])
        taken.append(after(lambda: world.down(1)))
        world.hosts[1].run([link_up(HOST, "eth0")])
        taken.append(after(lambda: not world.down(1)))
    assert max(taken) < 0.05, taken


@pytest.mark.beside
def test_reports_that_did_not_fit_are_made_up_for(world: World) -> None:
    pairs = [(3001, 3002), (3003, 3004)]
    world.kernel.run(veth(VethEnd(f"x{a}", a), VethEnd(f"x{b}", b), 1500) for a, b in pairs)
    world.kernel.run(link_up(index, "an end") for pair in pairs for index in pair)
    carrier = Carrier(world.fd, [KernelPort("s1", 9, 3001, 3003)])
    carrier.run()
    carrier._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for state in (link_down, link_up):
        for _ in range(20):
            world.kernel.run([link_down(3002, "x3002"), link_up(3002, "x3002")])
        world.kernel.run([state(3002, "x3002")])
        while select.select([carrier], [], [], 0.2)[0]:
            carrier.run()
        assert carrier._states._links[3001].running is (state is link_up)
    carrier.close()


@pytest.mark.beside
def test_a_port_whose_carrier_is_fixed_goes_down_in_its_place(world: World) -> None:
    """A veth, whose carrier cannot be set, stands for a port of Open vSwitch's kernel datapath."""
    world.kernel.run([veth(VethEnd("fixed", 2001), VethEnd("other", 2002), 1500), link_up(2002, "other")])

    def is_up() -> bool:
        return "<BROADCAST,MULTICAST,UP" in world.shell("ip", "link", "show", "fixed")

    carrier = Carrier(world.fd, [KernelPort("s1", 2, 1002, 2001)])
    carrier.run()
    for act, up in ((link_down, False), (link_up, True)):
        world.hosts[2].run([act(HOST, "eth0")])
        while select.select([carrier], [], [], 0.2)[0]:
            carrier.run()
        assert is_up() is up
    carrier.close()


@pytest.mark.beside
def test_the_end_of_a_host_takes_the_carrier(world: World) -> None:
    world.hosts[3].run([NetlinkRequest(DELETE, "deleting the end of the host")])
    after(lambda: world.down(3))
    assert not world.down(1)
