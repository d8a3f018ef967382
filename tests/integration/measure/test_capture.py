"""Packets of a real ring all-reduce, captured at the hosts, explained, written and read back."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.utils import RawPcapNgReader

from measure.live.annotation import annotate, write_pcapng
from measure.live.capture import Capture, Captured, taps_of
from measure.live.packets import tcp_segment
from railyard.errors import ConfigError, MachineError
from railyard.scale import Scale
from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import inside
from topos.rails import RailTopo
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher
from workloads.agent.transport.message import HEADER_BYTES
from workloads.collectives.catalog import schedule
from workloads.program import Collective, Compute, Group, Program

pytestmark = [pytest.mark.root, pytest.mark.beside]

RANKS, SIZE, STEPS = 4, 400_000, 2
GROUP = Group("dp0", "dp", tuple(range(RANKS)))
OPERATIONS = (Compute(0, "compute", 0.005), Collective(1, "sum", "all_reduce", "dp0", SIZE, (0,), "ring"))
PROGRAM = Program("ring", (OPERATIONS,) * RANKS, {"dp0": GROUP})
SAYS = re.compile(
    r"(?:sent again: )?step (\d+), all-reduce dp0 #0, transfer (\d+): round (\d+), chunk (\d+) (copy|reduce), "
    r"rank (\d+) -> rank (\d+), (?:header of|bytes (\d+)-(\d+) of) (\d+)"
)


@pytest.fixture(scope="module")
def net() -> Iterator[Emulation]:
    with Emulation(
        RailTopo(servers=RANKS, gpus=1, ports=1, fabric="electrical", rate_mbps=100), openflow=None
    ) as running:
        yield running


def _netns_fds(net: Emulation) -> dict[int, int]:
    return {rank: net.netns_fd(f"g{rank}") for rank in range(RANKS)}


@pytest.fixture(scope="module")
def captured(net: Emulation, tmp_path_factory: pytest.TempPathFactory) -> Captured:
    folder = tmp_path_factory.mktemp("capture")
    fds = _netns_fds(net)
    configs = [
        AgentConfig(r, "job", "native", PROGRAM, Scale(1.0), net.plan, str(folder / f"{r}.jsonl"), steps=STEPS)
        for r in range(RANKS)
    ]
    with AgentLauncher.start() as launcher, Capture(folder / "spool", taps_of(net.plan, fds)) as capture:
        team = launcher.launch(configs, list(fds.values()))
        try:
            team.wait_ready(10)
            team.go(time.monotonic() + 0.02)
            team.wait_done(30)
        finally:
            team.stop()
        return capture.stop()


def test_every_byte_of_every_transfer_is_in_the_capture_and_has_its_comment(net: Emulation, captured: Captured) -> None:
    assert captured.missed == 0 and not captured.full
    packets = captured.packets
    comments = annotate(packets, PROGRAM, net.plan)
    ring = schedule("all_reduce", RANKS, "ring")
    bytes_of: Counter[tuple[int, int]] = Counter()
    for packet, lines in zip(packets, comments, strict=True):
        for line in lines if packet.outgoing else ():
            if "is ready to receive" in line or line.startswith("sent again"):
                continue
            says = SAYS.fullmatch(line)
            assert says, line
            step, transfer, number, chunk = (int(says[k]) for k in (1, 2, 3, 4))
            meant = ring.transfers[transfer]
            assert (number, chunk, says[5]) == (meant.round, meant.chunk, meant.op)
            assert (int(says[6]), int(says[7])) == (meant.src, meant.dst)
            assert packet.interface.startswith(f"g{meant.src}-"), "the sender's own port"
            assert int(says[10]) == SIZE // RANKS
            if says[8]:
                bytes_of[step, transfer] += int(says[9]) - int(says[8]) + 1
    assert set(bytes_of) == {(step, transfer) for step in range(STEPS) for transfer in range(len(ring.transfers))}
    assert set(bytes_of.values()) == {SIZE // RANKS}


def test_what_one_port_sends_another_receives(net: Emulation, captured: Captured) -> None:
    comments = annotate(captured.packets, PROGRAM, net.plan)
    ends: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for packet, lines in zip(captured.packets, comments, strict=True):
        ends[packet.outgoing][packet.interface] += len(lines)
        segment = tcp_segment(packet)
        assert not lines or (segment is not None and segment.length > 0)
    payload = sum(s.length for p in captured.packets if p.outgoing and (s := tcp_segment(p)))
    least = STEPS * 2 * (RANKS - 1) * (SIZE + RANKS * HEADER_BYTES)
    assert least <= payload <= least * 1.02
    assert set(ends[True]) == set(ends[False]) == {f"g{rank}-r0" for rank in range(RANKS)}
    times = [packet.t_ns for packet in captured.packets]
    assert times == sorted(times) and abs(times[-1] / 1e9 - time.time()) < 120


def test_the_file_reads_back(net: Emulation, captured: Captured, tmp_path: Path) -> None:
    comments = annotate(captured.packets, PROGRAM, net.plan)
    path = tmp_path / "ring.pcapng"
    ports = [port.interface for rank in range(RANKS) for _, port in net.plan.host_ports(rank)]
    write_pcapng(path, captured.packets, comments, interfaces=ports)
    with RawPcapNgReader(str(path)) as reader:
        found = list(reader)
        assert [options["name"].decode() for _, _, options in reader.interfaces] == ports  # type: ignore[attr-defined]
    assert [data for data, _ in found] == [packet.data for packet in captured.packets]
    told = [tuple(line.decode() for line in meta.comments or ()) for _, meta in found]  # type: ignore[attr-defined]
    assert told == comments


def test_a_capture_takes_no_more_than_it_may(net: Emulation, tmp_path: Path) -> None:
    fds = _netns_fds(net)
    with Capture(tmp_path / "spool", taps_of(net.plan, {0: fds[0], 1: fds[1]}), max_bytes=300) as capture:
        with inside(fds[0]), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            for _ in range(5):
                out.sendto(bytes(60), (_ip(net, 1), 9))
        found = capture.stop()
    assert found.full and 1 <= len(found.packets) <= 3
    assert sum(len(packet.data) for packet in found.packets) <= 300


def _ip(net: Emulation, rank: int) -> str:
    return net.plan.host_ports(rank)[0][1].ip.split("/")[0]


def test_what_cannot_be_captured_is_said(net: Emulation, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one port"):
        Capture(tmp_path / "spool", [])
    taps = taps_of(net.plan, {0: net.netns_fd("g0")})
    with pytest.raises(MachineError, match="capture did not start"):
        Capture(tmp_path / "no" / "folder", taps).start()
    with pytest.raises(MachineError, match="not started"):
        Capture(tmp_path / "spool", taps).stop()
