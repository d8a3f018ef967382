"""Background traffic on real links: it keeps its rate alone, and takes what it needs from who shares its port."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from measure.live.counters import Counters
from railyard.errors import MachineError
from railyard.scale import goodput_share
from topos.kernel import namespaces
from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import HostEnd
from topos.rails import RailTopo
from workloads.stragglers.background import Background

pytestmark = pytest.mark.root

RATE_MBPS = 50.0
SECONDS = 1.0


@contextmanager
def electrical(slow: dict[int, float] | None = None) -> Iterator[Emulation]:
    topo = RailTopo(servers=3, gpus=1, ports=1, fabric="electrical", rate_mbps=RATE_MBPS, slow=slow)
    with Emulation(topo, openflow=None) as net:
        yield net


@pytest.fixture(scope="module")
def net() -> Iterator[Emulation]:
    with electrical() as running:
        yield running


def fds(net: Emulation) -> dict[int, int]:
    return {rank: net.netns_fd(f"g{rank}") for rank in range(net.plan.ranks)}


def wire_bytes(net: Emulation, rank: int) -> int:
    """What the port of a rank sent so far, as the kernel counts it."""
    with Counters(net.netns_fd(f"g{rank}")) as counters:
        return counters.links()[f"g{rank}-r0"].tx_bytes


def stream_mbps(net: Emulation, source: int, target: int, seconds: float) -> float:
    """Payload rate of a greedy TCP stream between two ranks, without its start."""
    ports = [net.plan.rail_of(rank).port(rank, 0) for rank in (source, target)]
    with ExitStack() as stack:
        with namespaces.inside(net.netns_fd(f"g{target}")):
            listener = stack.enter_context(socket.create_server((ports[1].ip, 0)))
        with namespaces.inside(net.netns_fd(f"g{source}")):
            sender = stack.enter_context(socket.create_connection(listener.getsockname()))
        receiver = stack.enter_context(listener.accept()[0])
        end = time.monotonic() + seconds + 0.5
        sender.settimeout(1.0)

        def send() -> None:
            while time.monotonic() < end:
                sender.send(bytes(65536))

        sending = threading.Thread(target=send)
        sending.start()
        start, got, into = time.monotonic() + 0.5, 0, bytearray(1 << 18)
        while (now := time.monotonic()) < start + seconds:
            size = receiver.recv_into(into)
            got += size if now > start else 0
        sending.join()
    return got * 8 / seconds / 1e6


@pytest.mark.timed
def test_alone_it_reaches_its_rate(net: Emulation) -> None:
    share = 0.8
    with Background.on(net.plan, fds(net), rank=2, share=share) as traffic:
        before, start = wire_bytes(net, 2), time.monotonic()
        time.sleep(SECONDS)
        counted = (wire_bytes(net, 2) - before) * 8 / (time.monotonic() - start) / 1e6
        sent = traffic.stop()
    wanted = share * RATE_MBPS
    assert counted == pytest.approx(wanted, rel=0.05), f"the port counted {counted:.2f} Mb/s"
    assert sent.mbps(net.plan.goodput_share) == pytest.approx(wanted, rel=0.05)
    assert sent.received_bytes == sent.sent_bytes, "all of it arrives"


@pytest.mark.timed
def test_who_shares_the_port_gets_the_rest_and_who_does_not_gets_all(net: Emulation) -> None:
    line = RATE_MBPS * goodput_share(net.plan.mtu)
    with Background.on(net.plan, fds(net), rank=0, share=0.4) as traffic:
        shared = stream_mbps(net, 0, 2, SECONDS)
        other = stream_mbps(net, 2, 0, SECONDS)
        sent = traffic.stop()
    assert shared == pytest.approx(0.6 * line, rel=0.1), f"{shared:.1f} of {line:.1f} Mb/s"
    assert other == pytest.approx(line, rel=0.05), f"{other:.1f} of {line:.1f} Mb/s"
    assert sent.mbps(net.plan.goodput_share) == pytest.approx(0.4 * RATE_MBPS, rel=0.1)


@pytest.mark.timed
def test_a_slow_link_is_slow_both_ways_and_its_peers_are_not() -> None:
    with electrical(slow={1: 0.5}) as net:
        line = RATE_MBPS * goodput_share(net.plan.mtu)
        assert stream_mbps(net, 1, 0, 1.0) == pytest.approx(0.5 * line, rel=0.05)
        assert stream_mbps(net, 0, 1, 1.0) == pytest.approx(0.5 * line, rel=0.05)
        assert stream_mbps(net, 0, 2, 1.0) == pytest.approx(line, rel=0.05)


@pytest.mark.beside
def test_nothing_of_it_is_left_when_it_is_closed_unasked(net: Emulation) -> None:
    with Background.on(net.plan, fds(net), rank=0, share=0.5) as traffic:
        process = traffic._process
        assert process is not None
    assert process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    with pytest.raises(MachineError, match="was not started"):
        traffic.stop()


@pytest.mark.beside
def test_no_way_is_one_sentence(net: Emulation, capfd: pytest.CaptureFixture[str]) -> None:
    port = net.plan.rail_of(0).port(0, 0)
    source, nowhere = (
        HostEnd(net.netns_fd("g0"), port.interface, port.ip),
        HostEnd(net.netns_fd("g1"), "lo", "127.0.0.1"),
    )
    with pytest.raises(MachineError, match="background traffic did not start"):
        Background(source, nowhere, 10, net.plan.mtu).start()
    message = capfd.readouterr().err
    assert "cannot connect to 127.0.0.1" in message and "Traceback" not in message
