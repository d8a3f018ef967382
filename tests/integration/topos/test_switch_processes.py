"""A fabric whose rails are on different processes of Open vSwitch."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from host_traffic import pings, pings_soon
from raw_frames import forget_caches, reaches, running

from measure.live.readings import Readings
from railyard.errors import ConfigError, MachineError
from topos.kernel.emulation import Emulation
from topos.kernel.run_watcher import Process
from topos.rails import RailTopo

pytestmark = [pytest.mark.root, pytest.mark.beside]


def rails(**topology: object) -> RailTopo:
    return RailTopo(servers=2, gpus=2, **topology)


@pytest.fixture
def net() -> Iterator[Emulation]:
    topo = rails(fabric="electrical", scale_up=True)
    with Emulation(topo, openflow=None, datapath="ovs", open_vswitch="netdev", switch_processes=2) as made:
        yield made


def test_both_processes_forward_are_sampled_and_end_with_the_run(net: Emulation, tmp_path: Path) -> None:
    assert net.forwarding["switch_processes"] == 2
    processes = [Process.of(pid) for pid in net.yard.pids.values()]
    assert len(processes) == 4 and all(processes) and set(net.yard.pids.values()) <= set(net.pids)
    with Readings(net, net.plan).sampler(tmp_path / "log") as sampler:
        for rank in (0, 1):  # by rail0 and rail1
            assert pings(net, f"g{rank}", net.plan.rail_of(rank).port(rank + 2, 0).ip)
        time.sleep(0.3)  # some samples
        loads = [event for event in sampler.stop() if event.kind == "cpu"]
    assert loads and all(load["switch_busy"] is not None for load in loads)
    folder = net.run.path
    net.stop()
    assert not folder.exists() and not any(process.alive for process in processes if process)


def test_tools_find_each_switch_where_it_is(net: Emulation) -> None:
    rail0, rail1 = net["rail0"].vsctl("list-br").split(), net["rail1"].vsctl("list-br").split()
    assert "rail0" in rail0 and "rail1" in rail1 and not set(rail0) & set(rail1)
    assert set(rail0) | set(rail1) == {switch.name for switch in net.switches}
    for switch in net.switches:
        assert "priority=10" in switch.dpctl("dump-flows")
        assert (net.run.path / f"{switch.name}.mgmt").is_socket()


@pytest.mark.thorough
def test_a_host_is_cut_and_mended_on_both(net: Emulation) -> None:
    targets = [("g0", net.plan.rail_of(0).port(2, 0).ip), ("g2", net.plan.rail_of(0).port(0, 0).ip)]
    net.cut("g0")
    assert not any(pings(net, *target) for target in targets)
    net.mend("g0")
    assert all(pings_soon(net, *target) for target in targets)


@pytest.mark.parametrize(
    "daemon",
    [
        "ovs-vswitchd-2",
        pytest.param("ovsdb-server-2", marks=pytest.mark.thorough),
        pytest.param("ovs-vswitchd", marks=pytest.mark.thorough),
    ],
)
def test_the_end_of_one_is_said_with_its_switches(net: Emulation, daemon: str) -> None:
    net.check()
    os.kill(net.yard.pids[daemon], signal.SIGKILL)
    os.waitid(os.P_PID, net.yard.pids[daemon], os.WEXITED | os.WNOWAIT)
    switches = "rail1, srv1" if daemon.endswith("-2") else "rail0, srv0"
    with pytest.raises(
        MachineError, match=f"the private {daemon.removesuffix('-2')} of {switches} ended with status -9"
    ):
        net.check()


@pytest.mark.thorough
def test_one_controller_rewires_both() -> None:
    options: dict[str, Any] = {"datapath": "ovs", "open_vswitch": "netdev", "switch_processes": 2}
    with running(rails(fabric="ocs", ports=2), "os-ken", **options) as fabric, fabric.client() as client:
        assert len(fabric.net.yard.instances) == 2 and fabric.net.waitConnected(5)
        for pairs, far in (((1, 3), 0), ((1, 4), 1)):
            for rail in ("rail0", "rail1"):
                client.rewire(rail, [pairs], "overwrite", 0.0)
            forget_caches(fabric.net)
            assert reaches(fabric.net, 0, 0) == [(2, far)] and reaches(fabric.net, 1, 0) == [(3, far)]


def test_more_processes_are_refused_where_the_kernel_forwards() -> None:
    net = Emulation(rails(fabric="electrical"), openflow=None, datapath="mirred", switch_processes=2)
    with pytest.raises(ConfigError, match=r"switch_processes.*must be auto or 1 where the kernel forwards"):
        net.start()
    assert not net.run.path.exists()
    with Emulation(rails(fabric="electrical"), openflow=None, datapath="mirred") as one:
        assert one.forwarding["switch_processes"] == 1 and set(one.yard.pids) == {"ovsdb-server", "ovs-vswitchd"}
