"""The sampler and the probe train against a real kernel: two namespaces joined by a veth pair, no switch."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from measure.figures.step import throughputs
from measure.live.probes import INTERVAL_S, ProbeTrain
from measure.live.sampler import HostInterface, Sampler, queue_events
from railyard.scale import Scale
from topos.kernel.namespaces import inside, make
from topos.kernel.netlink import Netlink, VethEnd, address, link_up, neighbour, route, veth
from topos.kernel.packet_sockets import Tap
from topos.kernel.queues import token_bucket
from topos.plan import FabricPlan, HostPort, SwitchPlan

pytestmark = pytest.mark.root

INDEX = 10
DARK_S = 0.05


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    """A host's namespace with ``g0-r0`` and a yard with the other end, ``rail0-eth1``; gone with their descriptors."""
    host, yard = make(2)
    try:
        with Netlink(host) as kernel:
            kernel.run([veth(VethEnd("g0-r0", INDEX), VethEnd("rail0-eth1", INDEX + 1, None, yard), 9000)])
            kernel.run([link_up(INDEX, "g0-r0"), address(INDEX, "g0-r0", "10.0.0.1", 24)])
        with Netlink(yard) as kernel:
            kernel.run([link_up(INDEX + 1, "rail0-eth1")])
        with Netlink(host) as kernel:
            kernel.run([route(INDEX, "10.0.0.1", 24, 1, None)])
            kernel.run([neighbour(INDEX, "10.0.0.2", "02:00:00:00:00:02")])
        yield host, yard
    finally:
        os.close(host)
        os.close(yard)


@pytest.mark.timed(late_ms=3)  # as near as dark times are compared
def test_a_train_sees_how_long_a_link_is_dark(pair: tuple[int, int]) -> None:
    host, yard = pair
    sender, receiver = Tap(host, "g0-r0"), Tap(yard, "rail0-eth1")
    train = ProbeTrain([sender], ["02:00:00:00:00:02"], {"yard": receiver}, count=round(0.4 / INTERVAL_S))
    with train, Netlink(host) as kernel:
        time.sleep(0.1)
        kernel.run([token_bucket(INDEX, "g0-r0", 0.00001, 1, 1)])  # nothing passes
        start = time.monotonic()
        time.sleep(DARK_S)
        kernel.run([token_bucket(INDEX, "g0-r0", 1000, 100_000, 1_000_000)])
        real = time.monotonic() - start
        seen = train.frames().dark_time()
    assert seen.seconds == pytest.approx(real, abs=0.003), f"train {seen.seconds:.4f} s, clock {real:.4f} s"
    assert seen.first_lost_t == pytest.approx(start, abs=0.003)


@pytest.mark.beside
def test_the_sampler_counts_what_a_host_sends(pair: tuple[int, int], tmp_path: Path) -> None:
    host, yard = pair
    labels = {"rail0-eth1": HostInterface("g0-r0", 0, 0)}
    with inside(host):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with out, Sampler(tmp_path / "link.jsonl", yard, labels, [os.getpid()], interval_s=0.02) as sampler:
        for _ in range(20):
            out.sendto(bytes(8000), ("10.0.0.2", 9))
            time.sleep(0.01)
        events = sampler.stop()
    counted = [e for e in events if e.kind == "bytes"]
    sent = 20 * (8000 + 42)
    assert sent <= counted[-1]["tx_bytes"] - counted[0]["tx_bytes"] <= sent + 2000, "IPv6 chatter may come on top"
    (series,) = throughputs(events, Scale(1.0))
    assert max(series.tx_gbps) > 0.001
    loads = [e for e in events if e.kind == "cpu"]
    assert loads and all(0 <= e["busy"] <= 1 and e["switch_thread"] is not None for e in loads)


@pytest.mark.beside
def test_queue_drops_are_read_in_the_hosts_namespace(pair: tuple[int, int]) -> None:
    host, _ = pair
    port = HostPort(1, "g0", 0, 0, "g0-r0", "02:00:00:00:00:01", "10.0.0.1", 1.0)
    plan = FabricPlan("ocs", 1, 1, 1, 9000, (SwitchPlan("rail0", 0x10000, "ocs", "rail", (port,)),))
    with Netlink(host) as kernel:
        kernel.run([token_bucket(INDEX, "g0-r0", 0.1, 9100, 9100)])
    with inside(host), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for _ in range(10):
            out.sendto(bytes(8000), ("10.0.0.2", 9))
    (event,) = queue_events({0: host}, plan)
    assert (event["interface"], event["rank"], event["lane"]) == ("g0-r0", 0, 0)
    assert 1 <= event["dropped"] <= 10
