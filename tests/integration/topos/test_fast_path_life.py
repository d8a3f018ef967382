from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from checkout import ROOT
from host_traffic import pings
from script_runs import hear_signals

from railyard.errors import MachineError
from topos.kernel.emulation import Emulation
from topos.kernel.fastpath import bpf_forwarder
from topos.kernel.namespaces import inside
from topos.rails import RailTopo

pytestmark = [pytest.mark.root, pytest.mark.beside]

PATIENCE_S = 10.0
_PROG_GET_FD_BY_ID = 13  # BPF_PROG_GET_FD_BY_ID of linux/bpf.h


def wait_for(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture(scope="module")
def net() -> Iterator[Emulation]:
    topo = RailTopo(servers=3, gpus=1, ports=1, fabric="electrical")
    with Emulation(topo, openflow=None, datapath="bpf") as running:
        assert running.datapath == "bpf"
        yield running


def reaches(net: Emulation, rank: int) -> bool:
    return pings(net, "g0", net.plan.rail_of(0).port(rank, 0).ip)


def link_down(net: Emulation, rank: int) -> bool:
    """Whether Open vSwitch says that the link of the port of a GPU is down."""
    number = net.plan.rail_of(0).port(rank, 0).number
    shown = net["rail0"].cmd("ovs-ofctl -O OpenFlow14 show rail0")
    return "LINK_DOWN" in shown[shown.index(f" {number}(rail0-eth{number})") :].split("speed:")[0]


def test_mininet_takes_links_down_and_up(net: Emulation) -> None:
    assert reaches(net, 2) and not link_down(net, 2)
    net.configLinkStatus("g2", "rail0", "down")
    assert wait_for(lambda: link_down(net, 2)) and not link_down(net, 1) and not reaches(net, 2)
    net.configLinkStatus("g2", "rail0", "up")
    assert wait_for(lambda: not link_down(net, 2))
    assert wait_for(lambda: reaches(net, 2))


def test_a_port_that_is_taken_down_by_openflow_passes_nothing(net: Emulation) -> None:
    number = net.plan.rail_of(0).port(1, 0).number
    assert reaches(net, 1)
    net["rail0"].cmd(f"ovs-ofctl -O OpenFlow14 mod-port rail0 {number} down")
    assert wait_for(lambda: "LOWER_UP" not in net["g1"].cmd("ip link show g1-r0"))
    assert not reaches(net, 1) and reaches(net, 2)
    net["rail0"].cmd(f"ovs-ofctl -O OpenFlow14 mod-port rail0 {number} up")
    assert wait_for(lambda: "LOWER_UP" in net["g1"].cmd("ip link show g1-r0"))
    assert wait_for(lambda: reaches(net, 1))


HOLD = """
import subprocess, sys, time
from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import inside
from topos.rails import RailTopo
net = Emulation(RailTopo(servers=2, gpus=1, fabric="electrical"), openflow=None, datapath="bpf")
net.start()
with inside(net.yard.netns_fd):
    shown = subprocess.run(["tc", "filter", "show", "dev", "rail0-eth1", "ingress"], capture_output=True, text=True)
print(shown.stdout.split(" id ")[1].split()[0], net._offload.pid, flush=True)
time.sleep(300)
"""


def is_loaded(program: int) -> bool:
    """Whether the kernel has a program with this number."""
    try:
        os.close(bpf_forwarder._call(_PROG_GET_FD_BY_ID, struct.pack("=III", program, 0, 0), "looking a program up"))
    except MachineError:
        return False
    return True


def test_nothing_of_the_fast_path_outlives_its_run() -> None:
    owner = subprocess.Popen([sys.executable, "-c", HOLD], cwd=ROOT, stdout=subprocess.PIPE, preexec_fn=hear_signals)
    try:
        assert owner.stdout is not None
        program, offload = map(int, owner.stdout.readline().split())
        assert is_loaded(program) and os.path.exists(f"/proc/{offload}")
        owner.kill()
        assert wait_for(lambda: not os.path.exists(f"/proc/{offload}"))
        assert wait_for(lambda: not is_loaded(program))
    finally:
        owner.kill()
        owner.communicate()


def test_a_fast_path_that_is_killed_is_named() -> None:
    with Emulation(RailTopo(servers=2, gpus=1, fabric="electrical"), openflow=None, datapath="bpf") as net:
        net.check()
        assert net._offload is not None
        os.kill(net._offload.pid, signal.SIGKILL)
        with pytest.raises(MachineError, match="the fast path ended"):
            for _ in range(1000):
                net.check()
                time.sleep(0.01)


def test_the_yard_has_the_taps_and_nothing_else_besides_the_links(net: Emulation) -> None:
    with inside(net.yard.netns_fd):
        names = {name for _, name in socket.if_nameindex()}
    links = {intf.name for switch in net.switches for intf in switch.intfList()}
    taps = {f"tap-{intf.index}" for switch in net.switches for intf in switch.intfList()}
    assert names == links | taps | {switch.name for switch in net.switches} | {"lo", f"ovs-{net.yard.datapath}"}
