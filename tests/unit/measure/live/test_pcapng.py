"""The file that is written, read back by scapy's own reader."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scapy.utils import RawPcapNgReader

from measure.live.annotation import write_pcapng
from measure.live.packets import Packet

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
