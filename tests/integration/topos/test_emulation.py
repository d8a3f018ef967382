from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from checkout import ROOT
from host_traffic import drain, pings, pings_soon, pouring
from mininet.topo import SingleSwitchTopo
from script_runs import hear_signals

from railyard.errors import ConfigError, MachineError
from topos.kernel import wiring
from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import inside
from topos.kernel.run_registry import REGISTRY
from topos.kernel.run_watcher import Process
from topos.rails import RailTopo

pytestmark = pytest.mark.root
"""Two are not beside others: one looks at all interfaces of the machine, and the remains that one leaves are cleared by
whatever run comes next."""


@pytest.fixture(scope="module")
def net() -> Iterator[Emulation]:
    topo = RailTopo(servers=2, gpus=2, fabric="electrical", scale_up=True)
    with Emulation(topo, openflow=None) as running:
        yield running


@pytest.mark.beside
def test_every_lane_reaches_the_rail_and_only_the_rail(net: Emulation) -> None:
    rail = net.plan.rail_of(0)
    for lane in (0, 1):
        for peer_lane in (0, 1):
            assert pings(net, "g0", "-I", f"g0-r{lane}", rail.port(2, peer_lane).ip)
    assert pings(net, "g0", net.plan.network("scale-up")[0].port(1, 0).ip)
    assert not pings(net, "g0", net.plan.rail_of(1).port(1, 0).ip)


@pytest.mark.beside
def test_tcp_bound_to_a_device_leaves_by_that_device(net: Emulation) -> None:
    rail = net.plan.rail_of(0)
    with inside(net.netns_fd("g2")):
        listener = socket.create_server((rail.port(2, 1).ip, 7400))
    with inside(net.netns_fd("g0")):
        sender = socket.socket()
    sender.settimeout(5)
    listener.settimeout(5)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"g0-r1\0")
    sender.connect((rail.port(2, 1).ip, 7400))
    receiver, (peer, _) = listener.accept()
    assert peer == rail.port(0, 1).ip
    sender.sendall(bytes(300_000))
    received = 0
    while received < 300_000:
        received += len(receiver.recv(1 << 16))
    counter = "/sys/class/net/{}/statistics/tx_bytes"
    assert int(net["g0"].cmd("cat " + counter.format("g0-r1"))) > 300_000
    assert int(net["g0"].cmd("cat " + counter.format("g0-r0"))) < 300_000
    for sock in (sender, receiver, listener):
        sock.close()


@pytest.mark.timed
def test_senders_that_meet_share_the_port() -> None:
    rate, seconds = 100.0, 1.0
    topo = RailTopo(servers=3, gpus=1, ports=1, fabric="electrical", rate_mbps=rate)
    with Emulation(topo, openflow=None) as net, ExitStack() as stack:
        here = (net.plan.rail_of(0).port(0, 0).ip, 7401)
        with inside(net.netns_fd("g0")):
            listener = stack.enter_context(socket.create_server(here))
        for name in ("g1", "g2"):
            with inside(net.netns_fd(name)):
                sender = stack.enter_context(socket.create_connection(here, timeout=5))
            stack.enter_context(pouring(sender))
        streams = [stack.enter_context(listener.accept()[0]) for _ in range(2)]
        drain(streams, 0.5)
        shares = drain(streams, seconds)
    assert 0.9 * rate <= sum(shares) <= 1.01 * rate, f"{shares} Mb/s of {rate:g} with headers"
    assert min(shares) > 0.1 * rate, f"{shares} Mb/s: one sender got next to nothing"


@pytest.mark.beside
def test_switch_shell_reaches_the_private_instance(net: Emulation) -> None:
    bridges = set(net["rail0"].cmd("ovs-vsctl list-br").split())
    assert bridges == {switch.name for switch in net.plan.switches}
    assert "dpid:0000000000010001" in net["rail0"].cmd("ovs-ofctl show rail1")


@pytest.mark.beside
def test_links_cannot_be_added_to_a_running_net(net: Emulation) -> None:
    with pytest.raises(ConfigError, match="before the net is started"):
        net.addLink("g0", "rail1")


@pytest.mark.beside
def test_a_link_comes_up_with_all_that_the_kernel_dropped_when_it_went_down() -> None:
    topo = RailTopo(servers=2, gpus=1, fabric="electrical", front_end=True, delay_ms=1)
    topo.nodeInfo("g0")["defaultRoute"] = "via 10.250.0.2 dev g0-fe"
    with Emulation(topo, openflow=None) as net:
        shows = ("ip route show table all type unicast", "ip neigh", "ip rule", "ip -4 addr", "tc qdisc")
        show = "; ".join(line.replace(" ", " -color=never ", 1) for line in shows)  # iproute2 6.15 colours a terminal
        before = sorted(net["g0"].cmd(show).splitlines())
        assert any("default via 10.250.0.2" in line for line in before)
        for ends in (("g0", "rail0"), ("fe", "g0")):
            net.configLinkStatus(*ends, "down")
            assert sorted(net["g0"].cmd(show).splitlines()) != before
            net.configLinkStatus(*ends, "up")
            net.configLinkStatus(*ends, "up")
        assert sorted(net["g0"].cmd(show).splitlines()) == before
        rail = net.plan.rail_of(0)
        for lane in (0, 1):
            assert pings_soon(net, "g0", "-I", f"g0-r{lane}", rail.port(1, lane).ip)


@pytest.mark.beside
def test_iperf_and_pings_of_mininet_answer(net: Emulation) -> None:
    received, sent = net.iperf([net["g0"], net["g2"]], seconds=1)
    assert float(received.split()[0]) > 0 and float(sent.split()[0]) > 0
    assert net.ping([net["g0"], net["g2"]]) == 0
    with pytest.raises(ConfigError, match="g0 and g3 have no network in common"):
        net.iperf([net["g0"], net["g3"]])


@pytest.mark.beside
def test_optical_switch_passes_nothing_by_itself() -> None:
    with Emulation(RailTopo(servers=2, gpus=1), openflow=None) as net:
        assert not pings(net, "g0", net.plan.rail_of(0).port(1, 0).ip)
        with pytest.raises(ConfigError, match=r"no port of g0 reaches one of g1 .* a circuit must join them"):
            net.iperf()
        began = time.monotonic()
        assert net.pingAll() == 100
        assert time.monotonic() - began < 6, "two pairs, a second for each"


@pytest.mark.beside
def test_switch_with_128_ports() -> None:
    with Emulation(SingleSwitchTopo(128), openflow=None) as net:
        assert len(net["s1"].cmd("ovs-vsctl list-ports s1").split()) == 128
        assert pings(net, "h1", net["h128"].IP())


def test_two_runs_at_once_and_stop_leaves_nothing() -> None:
    topo = RailTopo(servers=2, gpus=1, fabric="electrical")
    before = socket.if_nameindex()
    with Emulation(topo, openflow=None) as one, Emulation(topo, openflow=None) as two:
        assert one.run.id != two.run.id
        assert pings(one, "g0", one.plan.rail_of(0).port(1, 0).ip)
        processes = [Process.of(pid) for net in (one, two) for pid in net.yard.pids.values()]
        two.stop()
        two.stop()
        assert pings(one, "g0", one.plan.rail_of(0).port(1, 0).ip)
    assert not any(process and process.alive for process in processes)
    assert not one.run.path.exists() and not two.run.path.exists()
    assert socket.if_nameindex() == before
    with pytest.raises(MachineError, match="was stopped"):
        one.start()


HOLD = """
import sys, time
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo
net = Emulation(RailTopo(servers=2, gpus=1, fabric="electrical"), openflow=None)
net.start()
host = net["g0"]
started = [host.popen(["sleep", "300"]).pid]
started += host.cmd("sleep 300 & echo $!").split()[-1:]
started += host.cmd("(setsid sleep 300 </dev/null >/dev/null 2>&1 & echo $!)").split()[-1:]
print(net.run.id, net.run._watcher.pid, *started, *net.yard.pids.values(), flush=True)
time.sleep(300)
"""


def hold() -> tuple[subprocess.Popen[bytes], str, list[Process]]:
    """A process with a net that is up, the id of its run, and its watcher, three processes on a host, and daemons."""
    command = [sys.executable, "-c", HOLD]
    owner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, preexec_fn=hear_signals)
    assert owner.stdout is not None
    run_id, *pids = owner.stdout.readline().decode().split()
    processes = [process for pid in pids if (process := Process.of(int(pid))) is not None]
    assert len(processes) == 6
    return owner, run_id, processes


def gone(processes: list[Process], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(process.alive for process in processes):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.beside
def test_after_kill_9_the_watcher_ends_everything_on_hosts_too() -> None:
    """Also what was stopped, and what has left the session of its host."""
    owner, run_id, processes = hold()
    assert owner.stdout is not None
    with owner.stdout:
        for process in processes[1:]:
            os.kill(process.pid, signal.SIGSTOP)
        owner.kill()
        owner.wait()
        began = time.monotonic()
        assert gone(processes, 5), [process for process in processes if process.alive]
        assert not (REGISTRY / run_id).exists(), "the watcher removes the folder before it ends"
        print(f"everything was gone {time.monotonic() - began:.2f} s after kill -9")


def test_the_next_run_clears_what_kill_9_left_without_a_watcher() -> None:
    owner, run_id, (watcher, *processes) = hold()
    assert owner.stdout is not None
    with owner.stdout:
        os.kill(watcher.pid, signal.SIGKILL)
        owner.kill()
        owner.wait()
        *on_host, _, _ = processes
        assert any(process.alive for process in on_host) and (REGISTRY / run_id).is_dir()
        with Emulation(RailTopo(servers=2, gpus=1, fabric="electrical"), openflow=None) as net:
            assert not (REGISTRY / run_id).exists()
            assert gone(processes)
            assert pings(net, "g0", net.plan.rail_of(0).port(1, 0).ip)


@pytest.mark.beside
def test_switch_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "ovs-vswitchd"
    broken.write_text("#!/bin/sh\necho the flux is misaligned\nexit 7\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def refuse(*_: object) -> None:
        raise MachineError("deleting the links failed")

    monkeypatch.setattr(wiring, "clear_links", refuse)
    net = Emulation(RailTopo(servers=2, gpus=1), openflow=None)
    with pytest.raises(MachineError, match="ovs-vswitchd ended with status 7: the flux is misaligned"):
        net.start()  # the first error is said, not that of the tear-down after it
    assert not net.run.path.exists()
