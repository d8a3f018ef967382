"""What a run records of its delayed and lossy links, on a real kernel."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from host_traffic import pings

from measure.live.readings import LinkDelayLog
from railyard.errors import MachineError
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo

pytestmark = [pytest.mark.root, pytest.mark.beside]


@pytest.fixture
def net() -> Iterator[Emulation]:
    topo = RailTopo(servers=2, gpus=1, ports=1, fabric="electrical", delay_ms=5, loss=20)
    with Emulation(topo, openflow=None, link_delay="relay") as running:
        yield running


def test_each_reading_covers_the_time_since_the_one_before(net: Emulation) -> None:
    log = LinkDelayLog(net.delays)
    log.read()
    net["g0"].cmd(f"ping -c 60 -i 0.01 -W 1 {net.plan.rail_of(0).port(1, 0).ip}")
    delay, *lost = log.read()
    assert delay.kind == "delay" and delay["method"] == "relay" and delay["overflowed"] == 0
    assert delay["frames"] >= 100 and 0 < delay["late_p50_s"] <= delay["late_p95_s"] <= delay["late_worst_s"]
    assert {event["interface"] for event in lost} == {"g0-r0", "rail0-eth1", "g1-r0", "rail0-eth2"}
    assert sum(event["dropped"] for event in lost) >= 10
    again, *lost = log.read()
    assert again.t == delay.end and again["frames"] == 0 and again["late_p95_s"] is None
    assert sum(event["dropped"] for event in lost) == 0


def test_a_relay_that_died_is_said_and_not_taken_for_silence(net: Emulation) -> None:
    log = LinkDelayLog(net.delays)
    assert net.delays.relay is not None
    os.kill(net.delays.relay.pid, signal.SIGKILL)
    with pytest.raises(MachineError, match="the relay of delayed links"):
        log.read()


def test_links_without_trouble_have_nothing_to_say() -> None:
    with Emulation(RailTopo(servers=2, gpus=1, ports=1, fabric="electrical"), openflow=None) as net:
        assert pings(net, "g0", net.plan.rail_of(0).port(1, 0).ip)
        assert net.delays.method == "none" and LinkDelayLog(net.delays).read() == []
