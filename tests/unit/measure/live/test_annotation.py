"""Comments on packets made by hand (with scapy): in order, sent again, reordered, wrapped, half captured."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw
from scapy.utils import RawPcapNgReader

from measure.live.annotation import annotate, write_pcapng
from measure.live.packets import Packet, pack_record, read_spool, tcp_segment
from topos.plan import FabricPlan, HostPort, SwitchPlan
from workloads.agent.transport.message import HEADER_BYTES, Header
from workloads.collectives.catalog import schedule
from workloads.program import Collective, Group, Operation, Program, Recv, Send
from workloads.rank.flows import Flow

RANKS = 4
MSS = 8948
RING = schedule("all_reduce", RANKS, "ring")
FLOW = Flow(step=2, group=1, sequence=1)
FIRST = next(n for n, t in enumerate(RING.transfers) if t.src == 2 and t.dst == 3 and t.round == 0)
CHUNK = RING.transfers[FIRST].chunk
SAYS = f"step 2, all-reduce dp0 #1, transfer {FIRST}: round 0, chunk {CHUNK} reduce, rank 2 -> rank 3"


def _plan() -> FabricPlan:
    ports = tuple(
        HostPort(r + 1, f"g{r}", r, 0, f"g{r}-r0", f"02:00:00:00:00:{r + 1:02x}", f"10.1.0.{r + 1}/16", 100.0)
        for r in range(RANKS)
    )
    return FabricPlan("electrical", RANKS, 1, 1, 9000, (SwitchPlan("rail0", 1, "electrical", "rail", ports),))


def _program() -> Program:
    def operations(rank: int) -> tuple[Operation, ...]:
        found: list[Operation] = [
            Collective(0, "first", "all_gather", "dp0", 4096),
            Collective(1, "second", "all_reduce", "dp0", 1 << 19, (0,), "ring"),
        ]
        if rank == 0:
            found.append(Send(2, "forward", "pp0", 2, 4096, (1,)))
        if rank == 2:
            found.append(Recv(2, "forward", "pp0", 0, 4096, (1,)))
        return tuple(found)

    groups = {"pp0": Group("pp0", "pp", (0, 2)), "dp0": Group("dp0", "dp", (0, 1, 2, 3))}
    return Program("two", tuple(operations(rank) for rank in range(RANKS)), groups)


PLAN, PROGRAM = _plan(), _program()


def _frame(src: int, dst: int, sequence: int, payload: bytes, flags: str = "A") -> bytes:
    return bytes(
        Ether()
        / IP(src=f"10.1.0.{src + 1}", dst=f"10.1.0.{dst + 1}")
        / TCP(sport=40000, dport=7700, seq=sequence % (1 << 32), flags=flags, options=[("NOP", None)] * 12)
        / Raw(payload)
    )


def _packets(frames: list[bytes], interface: str = "g2-r0", start_ns: int = 1_000) -> list[Packet]:
    return [Packet(start_ns + n, interface, True, len(frame), frame) for n, frame in enumerate(frames)]


def _stream(content: bytes, src: int = 2, dst: int = 3, initial: int = 77, size: int = MSS) -> list[bytes]:
    """A SYN and ``content`` in segments of ``size``."""
    pieces = range(0, len(content), size)
    return [
        _frame(src, dst, initial, b"", "S"),
        *(_frame(src, dst, initial + 1 + at, content[at : at + size]) for at in pieces),
    ]


def _message(transfer: int, length: int, flow: Flow = FLOW) -> bytes:
    return Header("data", flow, transfer, length).pack() + bytes(length)


def _says(packets: list[Packet]) -> list[tuple[str, ...]]:
    return annotate(packets, PROGRAM, PLAN)


def test_a_message_over_many_packets() -> None:
    comments = _says(_packets(_stream(_message(FIRST, 131072))))
    assert comments[0] == (), "a SYN carries nothing"
    assert comments[1] == (f"{SAYS}, bytes 0-8919 of 131072",), "28 bytes are the header"
    assert comments[2] == (f"{SAYS}, bytes 8920-17867 of 131072",)
    assert comments[-1][0].endswith("-131071 of 131072")
    assert len(comments) == 1 + -(-(131072 + HEADER_BYTES) // MSS)


def test_several_messages_in_one_packet_and_a_header_alone() -> None:
    ready = Header("ready", FLOW, 5).pack()
    later = RING.transfers.index(next(t for t in RING.transfers if t.src == 2 and t.round == 1))
    content = ready + _message(FIRST, 100) + Header("data", FLOW, later, 50).pack() + bytes(50)
    cut = HEADER_BYTES * 3 + 100
    frames = [_frame(2, 3, 77, b"", "S"), _frame(2, 3, 78, content[:cut]), _frame(2, 3, 78 + cut, content[cut:])]
    _, first, second = _says(_packets(frames))
    assert first[0] == "step 2, all-reduce dp0 #1: rank 2 is ready to receive from rank 3, up to round 5"
    assert first[1] == f"{SAYS}, bytes 0-99 of 100"
    assert first[2].endswith("rank 2 -> rank 3, header of 50 bytes") and "round 1" in first[2]
    assert second == (first[2].replace("header of 50 bytes", "bytes 0-49 of 50"),)


def test_a_header_cut_in_two_by_the_segments() -> None:
    comments = _says(_packets(_stream(_message(FIRST, 40) * 3, size=30)))
    assert comments[1][0].endswith("bytes 0-1 of 40")
    assert comments[3] == (f"{SAYS}, bytes 32-39 of 40", f"{SAYS}, header of 40 bytes")


def test_a_segment_that_was_sent_again_says_so() -> None:
    frames = _stream(_message(FIRST, 30000))
    sent = [frames[0], frames[1], frames[2], frames[4], frames[2], frames[3]]
    comments = _says(_packets(sent))
    assert comments[4][0] == "sent again: " + comments[2][0]
    assert not comments[5][0].startswith("sent again"), "what arrives late is not what was sent before"
    assert not comments[3][0].startswith("sent again")


def test_the_receivers_copy_is_not_sent_again() -> None:
    frames = _stream(_message(FIRST, 30000))
    there = [replace(p, interface="g3-r0", outgoing=False) for p in _packets(frames, start_ns=5_000)]
    comments = _says(_packets(frames) + there)
    assert comments[: len(frames)] == comments[len(frames) :]


@given(st.randoms(use_true_random=False), st.integers(0, 2**32 - 1), st.integers(1, 65000))
@settings(max_examples=30)
def test_order_wraps_and_sizes_of_segments_do_not_matter(rand: random.Random, initial: int, size: int) -> None:
    content = b"".join(_message(n % len(RING.transfers), 7000 * n) for n in range(6))
    size = max(size, 3000)
    expected = _says(_packets(_stream(content, size=size)))
    packets = _packets(_stream(content, initial=initial, size=size))
    shuffled = packets[1:]
    rand.shuffle(shuffled)
    by_place = {p.data: c for p, c in zip(packets[1:], expected[1:], strict=True)}
    arrived = [packets[0], *(replace(p, t_ns=2_000 + n) for n, p in enumerate(shuffled))]
    assert _says(arrived)[1:] == [by_place[p.data] for p in shuffled]


def test_a_stream_whose_start_was_missed_gets_no_comment() -> None:
    comments = _says(_packets(_stream(_message(FIRST, 30000))[1:]))
    assert set(comments) == {()}


def test_a_missing_payload_does_no_harm_and_a_missing_header_ends_the_comments() -> None:
    content = _message(FIRST, 3000) + _message(FIRST, 3000) + _message(FIRST, 3000)
    frames = _stream(content, size=1000)
    without_payload = frames[:2] + frames[3:]
    assert all(_says(_packets(without_payload))[1:])
    without_header = [f for n, f in enumerate(frames) if n != 1 + 3028 // 1000]
    comments = _says(_packets(without_header))
    assert all(comments[1:4]) and not any(comments[5:])


def test_a_connection_that_opens_again_is_a_new_stream() -> None:
    frames = _stream(_message(FIRST, 5000), initial=500) + _stream(_message(FIRST, 6000), initial=9_000_000)
    comments = _says(_packets(frames))
    assert comments[1][0].endswith("of 5000") and comments[3][0].endswith("bytes 0-5999 of 6000")
    again = _says(_packets([frames[0], frames[0], frames[1]]))
    assert again[2] == comments[1], "a SYN that is sent again is the same connection"


def test_a_send_of_a_pair() -> None:
    content = _message(0, 4096, Flow(3, 0, 0, point_to_point=True))
    ready = Header("ready", Flow(3, 0, 0, point_to_point=True)).pack()
    (_, comment) = _says(_packets(_stream(ready, src=2, dst=0)))
    assert comment == ("step 3, send pp0 #0: rank 2 is ready to receive from rank 0",)
    (_, comment) = _says(_packets(_stream(content, src=0, dst=2)))
    assert comment == ("step 3, send pp0 #0: rank 0 -> rank 2, bytes 0-4095 of 4096",)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (Header("data", Flow(0, 9, 0), 0, 10), "step 0, group 9 (unknown to the program), bytes 0-9 of 10"),
        (Header("data", Flow(0, 1, 7), 0, 10), "step 0, collective dp0 #7: rank 2 -> rank 3, bytes 0-9 of 10"),
        (Header("data", FLOW, 999, 10), "beyond the 24 transfers of its schedule, bytes 0-9 of 10"),
    ],
)
def test_what_the_program_does_not_know_is_said(header: Header, says: str) -> None:
    comments = _says(_packets(_stream(header.pack() + bytes(10))))
    assert comments[1][0].endswith(says)


def test_other_traffic_has_no_comment() -> None:
    others = [
        bytes(Ether() / ARP(pdst="10.1.0.2")),
        bytes(Ether() / IP(dst="10.1.0.2") / UDP(dport=7667) / Raw(b"x" * 40)),
        b"short",
        *_stream(b"GET / HTTP/1.1 and so on, for longer than a header of ours"),
    ]
    assert set(_says(_packets(others))) == {()}


def test_ethernet_padding_is_no_payload() -> None:
    frame = _frame(2, 3, 5, b"")
    padded = frame + bytes(20)
    segment = tcp_segment(Packet(0, "g2-r0", True, len(padded), padded))
    assert segment is not None and segment.length == 0 and segment.payload == b""


def test_a_frame_kept_in_part_still_has_its_length() -> None:
    frame = _frame(2, 3, 5, bytes(1000))
    segment = tcp_segment(Packet(0, "g2-r0", True, len(frame), frame[:100]))
    assert segment is not None and segment.length == 1000 and len(segment.payload) == 100 - (len(frame) - 1000)


def test_a_spool_gives_back_what_went_in(tmp_path: Path) -> None:
    packets = [Packet(10**18 + n, f"g{n % 2}-r0", bool(n % 2), 9000, bytes([n]) * n) for n in range(4)]
    names = ["g0-r0", "g1-r0"]
    spool = tmp_path / "spool"
    records = [
        pack_record(p.t_ns, names.index(p.interface), p.outgoing, p.length, len(p.data)) + p.data for p in packets
    ]
    spool.write_bytes(b"".join(records)[:-1])
    assert list(read_spool(spool, names)) == packets[:-1], "the last one is cut short"


T_NS = 1_790_000_000_123_456_000
PACKETS = [
    Packet(T_NS + 2_000, "g1-r0", False, 100, b"b" * 100),
    Packet(T_NS, "g0-r0", True, 9014, b"a" * 9014),
    Packet(T_NS + 7_000, "g0-r0", True, 61, b"c" * 61),
]
COMMENTS = [(), ("step 2, first", "step 2, second: \u2192"), ("sent again",)]


def _read(path: Path) -> tuple[list[Any], list[tuple[bytes, Any]]]:
    """The interfaces and the packets of a file."""
    with RawPcapNgReader(str(path)) as reader:
        packets = list(reader)
        return reader.interfaces, packets  # type: ignore[attr-defined]


def test_every_packet_comes_back_in_order_with_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "packets.pcapng"
    write_pcapng(path, PACKETS, COMMENTS)
    _, found = _read(path)
    assert [data for data, _ in found] == [PACKETS[1].data, PACKETS[0].data, PACKETS[2].data]
    metas = [meta for _, meta in found]
    assert [meta.ifname for meta in metas] == [b"g0-r0", b"g1-r0", b"g0-r0"]
    assert [meta.comments for meta in metas] == [
        [line.encode() for line in COMMENTS[1]], None, [b"sent again"]]  # fmt: skip
    assert [meta.direction for meta in metas] == [2, 1, 2]
    times = [(meta.tshigh << 32 | meta.tslow) * 1000 for meta in metas]
    assert times == [T_NS, T_NS + 2_000, T_NS + 7_000]


def test_every_port_has_an_interface_block_and_no_other_is_there(tmp_path: Path) -> None:
    path = tmp_path / "packets.pcapng"
    write_pcapng(path, PACKETS, COMMENTS, interfaces=["g0-r0", "g0-r1", "g1-r0"])
    interfaces, found = _read(path)
    assert [options["name"] for _, _, options in interfaces] == [b"g0-r0", b"g0-r1", b"g1-r0"]
    assert [meta.ifname for _, meta in found] == [b"g0-r0", b"g1-r0", b"g0-r0"]
    assert {link for link, _, _ in interfaces} == {1}


def test_the_length_on_the_wire_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "packets.pcapng"
    write_pcapng(path, [replace(packet, data=packet.data[:96]) for packet in PACKETS])
    _, found = _read(path)
    assert [(len(data), meta.wirelen) for data, meta in found] == [(96, 9014), (96, 100), (61, 61)]
    assert all(meta.comments is None for _, meta in found)


def test_a_capture_without_packets_is_a_file_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "packets.pcapng"
    write_pcapng(path, [], interfaces=["g0-r0"])
    content = path.read_bytes()
    assert content.startswith(struct.pack("<I", 0x0A0D0D0A)) and b"g0-r0" in content
    assert _read(path)[1] == []


def test_scapy_is_not_imported_before_a_file_is_written() -> None:
    code = "import sys, measure.live.annotation, measure.live.capture; print('scapy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "packets.pcapng").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="Too many levels"):
        write_pcapng(tmp_path / "packets.pcapng", PACKETS)
    assert not (tmp_path / "elsewhere").exists()
