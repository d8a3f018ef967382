from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captures import TALK, A, B, C, capture, packet
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, CookedLinux, Dot1Q, Ether
from scapy.packet import Raw

from railyard.errors import ConfigError
from workloads.catalog import load_workload
from workloads.formats.pcap import Endpoints, Message, messages_of, payload_of, program_of, read_pcap
from workloads.inspection import inspect_file, traffic_of
from workloads.program import Compute, Operation, Program, Recv, Send

UDP_AB = Endpoints(17, b"\x0a\0\0\1", 5000, b"\x0a\0\0\2", 9)


def read(folder: Path, *packets: Any, ng: bool = False) -> Program:
    path = folder / "talk.pcap"
    path.write_bytes(capture(packets, ng))
    return read_pcap(path).program


def rounded(op: Operation) -> Operation:
    """A capture tells microseconds."""
    return replace(op, seconds=round(op.seconds, 5)) if isinstance(op, Compute) else op


@pytest.mark.parametrize("ng", [False, True])
def test_bursts_are_messages_and_the_gaps_before_them_are_compute(tmp_path: Path, ng: bool) -> None:
    program = read(tmp_path, *TALK, ng=ng)
    g0, g1, g2 = (tuple(map(rounded, operations)) for operations in program.operations)
    assert g0 == (
        Send(0, "to 1", "p0-1", 1, 2000),
        Recv(1, "from 1", "p0-1", 1, 400),
        Compute(2, "gap", 0.099, (1,)),
        Send(3, "to 2", "p0-2", 2, 2000, (2,)),
    )
    assert g1 == (
        Recv(0, "from 0", "p0-1", 0, 2000),
        Compute(1, "gap", 0.1, (0,)),
        Send(2, "to 0", "p0-1", 0, 400, (1,)),
    )
    assert g2 == (Recv(0, "from 0", "p0-2", 0, 2000),)
    assert program.eager and {name: group.members for name, group in program.groups.items()} == {
        "p0-1": (0, 1), "p0-2": (0, 2)
    }  # fmt: skip


def test_what_tcp_sent_again_counts_once_and_what_the_capture_missed_counts() -> None:
    def sizes(*segments: tuple[int, int], **last: Any) -> int:
        sent = [packet(0, A, B, size, seq % (1 << 32)) for seq, size in segments]
        sent += [packet(0, A, B, **last)] if last else []
        found = (payload_of(bytes(each), 1, len(each), 0) for each in sent)
        return sum(message.bytes for message in messages_of(filter(None, found)))

    assert sizes((1, 100), (101, 100)) == 200
    assert sizes((1, 100), (101, 100), (1, 100), (51, 100)) == 200
    assert sizes((1, 100), (201, 100), (101, 100)) == 300, "out of order"
    assert sizes((1, 100), (201, 100)) == 300, "the second segment was not captured"
    assert sizes((-50, 100), (50, 100)) == 200, "sequence numbers begin again at 0"
    assert sizes((1, 100), (1 << 25, 100)) == 200, "another connection with the same ports"
    assert sizes((1, 100), size=0, seq=500, flags="S") == 100
    assert sizes((1, 100), (100, 1)) == 100, "a keep-alive"


def test_flows_of_one_pair_at_the_same_time_do_not_wait_for_each_other(tmp_path: Path) -> None:
    both = [packet(0.001 * n, A, B, 100, port=5000 + n % 2) for n in range(20)]
    program = read(tmp_path, *both, packet(0.005, B, A, 8), packet(1, A, B, 4, port=7))
    first, gap, second, back, late, last = program.operations[0]
    assert isinstance(first, Send) and isinstance(second, Send) and isinstance(back, Recv) and isinstance(last, Send)
    assert isinstance(gap, Compute) and isinstance(late, Compute)
    assert (first.group, second.group, back.group, last.group) == ("p0-1", "p0-1.1", "p0-1", "p0-1")
    assert (first.deps, gap.deps, second.deps, last.bytes) == ((), (), (gap.id,), 4)
    assert late.seconds == pytest.approx(1 - 0.019, abs=1e-6), "since the later of the two was sent"


def test_a_capture_is_a_workload_and_says_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "talk.pcap"
    path.write_bytes(capture(TALK))
    contents = inspect_file(str(path))
    assert contents.traffic == ((0, 1, 2000), (0, 2, 2000), (1, 0, 400)) and contents.format == "packet capture"
    assert contents.notes[0] == f"rank 0 is {A}, rank 1 is {B}, rank 2 is {C}."
    assert "3 flows sent 4,400 bytes of payload in 3 messages" in contents.notes[1]
    assert "UDP 10.0.0.1 port 5000 to 10.0.0.2 port 9: 2,000 bytes, messages: 1." in contents.notes
    workload = load_workload(str(path), ranks=3)
    assert traffic_of(workload.program) == {(0, 1): 2000, (0, 2): 2000, (1, 0): 400}
    assert (workload.servers, workload.gpus_per_server) == (3, 1)


ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
TO_B = IP(src=A, dst=B)
DATA = Raw(bytes(40))


@pytest.mark.parametrize(
    ("frame", "linktype", "size"),
    [
        (ETHERNET / TO_B / UDP(sport=5000, dport=9) / DATA, 1, 40),
        (ETHERNET / Dot1Q(vlan=5) / TO_B / UDP(sport=5000, dport=9) / DATA, 1, 40),
        (CookedLinux(proto=0x800) / TO_B / UDP(sport=5000, dport=9) / DATA, 113, 40),
        (TO_B / UDP(sport=5000, dport=9) / DATA, 101, 40),
        (ETHERNET / TO_B / ICMP() / DATA, 1, 48),
        (ETHERNET / TO_B / TCP(flags="A"), 1, None),
        (ETHERNET / IP(src=A, dst="224.0.0.1") / UDP() / DATA, 1, None),
        (Ether(dst="ff:ff:ff:ff:ff:ff") / IP(src=A, dst="10.0.0.255") / UDP() / DATA, 1, None),
        (ETHERNET / IP(src=A, dst=A) / UDP() / DATA, 1, None),
        (ETHERNET / ARP(), 1, None),
        (ETHERNET / IPv6(src="fe80::1", dst="fe80::2") / UDP() / DATA, 1, 40),
        (ETHERNET / IPv6(src="fe80::1", dst="ff02::1") / UDP() / DATA, 1, None),
        (ETHERNET / TO_B / UDP() / DATA, 147, None),
    ],
)
def test_payload_of_links_and_protocols(frame: Any, linktype: int, size: int | None) -> None:
    found = payload_of(bytes(frame), linktype, len(frame), 7)
    assert (found and found.bytes) == size
    if found is not None and UDP in frame and IP in frame:
        assert found == (7, UDP_AB, size, None, False)
    if size:
        assert payload_of(bytes(frame)[: -len(DATA)], linktype, len(frame), 7) == found, "captured without its payload"


def test_a_frame_that_was_not_split_yet_has_the_length_of_the_wire() -> None:
    frame = bytearray(bytes(packet(0, A, B, 1000, seq=5)))
    frame[16:18] = b"\0\0"
    assert (found := payload_of(bytes(frame), 1, len(frame), 0)) and found.bytes == 1000


def test_a_packet_without_a_time_is_refused(tmp_path: Path) -> None:
    data = capture(TALK[:1], ng=True)
    simple = struct.pack("<IIIIII", 3, 24, 4, 0, 24, 0)[:16] + bytes(4) + struct.pack("<I", 24)
    (tmp_path / "simple.pcapng").write_bytes(data + simple)
    with pytest.raises(ConfigError, match="says no time of packet 2"):
        read_pcap(tmp_path / "simple.pcapng")


def test_a_program_of_no_gap_and_of_many_hosts() -> None:
    flows = [Endpoints(17, bytes([10, 0, 0, n]), 1, bytes([10, 0, 0, n + 1]), 1) for n in range(5)]
    hosts = {bytes([10, 0, 0, n]): n for n in range(6)}
    program = program_of("chain", hosts, [Message(flow, 0, 0, 4) for flow in flows])
    assert [len(operations) for operations in program.operations] == [1, 2, 2, 2, 2, 1]
    assert not any(isinstance(op, Compute) for operations in program.operations for op in operations)
